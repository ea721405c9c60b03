"""A commented adapter to begin with: what `specref new-engine` writes.

Two skeletons: a whole engine, and only its verification function, which is less work and is judged on rows of our making.
"""

from __future__ import annotations

import keyword
import re
from pathlib import Path

import jinja2

from conformance.problems import UsageProblem

TEMPLATES = {"engine": "engine.py.j2", "component": "component.py.j2"}
"""By what is audited."""


def skeleton(name: str, what: str = "engine") -> str:
    """The text of an adapter for the engine called `name`.

    >>> "class MyEngineAdapter(Engine):" in skeleton("my-engine")
    True

    Raises UsageProblem for a name that no Python module can have.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    template = environment.get_template(TEMPLATES[what])
    word = _word(name)
    class_name = "".join(part[0].upper() + part[1:] for part in word.split("_") if part)
    return template.render(name=name, word=word, module=f"{word}_adapter", class_name=class_name)


def write_skeleton(name: str, folder: Path, what: str = "engine") -> Path:
    """Write NAME_adapter.py into the folder. Raises UsageProblem if it is there already, or cannot be written."""
    text = skeleton(name, what)
    path = folder / f"{_word(name)}_adapter.py"
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageProblem(f"{path} is there already, and is left as it is; move it away or give another name") from None
    except OSError as error:
        raise UsageProblem(f"cannot write {path}: {error.strerror}; run the command in a folder of your own") from error
    return path


def _word(name: str) -> str:
    """The name as part of a module's name.

    >>> _word("My-Engine")
    'my_engine'
    """
    word = re.sub(r"[-. ]+", "_", name).lower()
    if not re.fullmatch(r"[a-z][a-z0-9_]*", word) or keyword.iskeyword(word):
        raise UsageProblem(f"{name!r} cannot name a Python module; use letters, digits and -, for instance: my-engine")
    return word
