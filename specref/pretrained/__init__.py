"""A small trained model family, in transformers' format, for tests and audits of speculative decoding.

`target` writes Python's documentation one byte at a time; `draft` is a cheap model that it often accepts; `poor_draft` is
one that it seldom accepts. All share a tokenizer. README.md says how they were made and gives their measured figures.

    >>> from transformers import AutoModelForCausalLM
    >>> target = AutoModelForCausalLM.from_pretrained(path("target"))
    >>> target.config.vocab_size
    114
"""

from __future__ import annotations

import json
from pathlib import Path

_NAMES = ("target", "draft", "poor_draft")
_HERE = Path(__file__).parent


def names() -> tuple[str, ...]:
    """The names of the family's models, the target first.

    >>> names()
    ('target', 'draft', 'poor_draft')
    """
    return _NAMES


def path(name: str) -> Path:
    """The folder of one model, for `from_pretrained`, or for any engine that reads transformers' format.

    Raises ValueError for a name that is not in the family.
    """
    if name not in _NAMES:
        raise ValueError(f"no pretrained model is called {name!r}; the known ones are {', '.join(_NAMES)}")
    return _HERE / name


def held_out(family: Path = _HERE) -> list[str]:
    """The documents that no model of the family was trained on: good prompts, and what `measure` measures on."""
    documents: list[str] = json.loads((family / "held_out.json").read_text(encoding="utf-8"))
    return documents
