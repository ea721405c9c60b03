"""The named systems of the field, and what works here for each: the README's table is generated from this.

`python -m conformance.systems` rewrites the table between its marks in README.md; a test checks that it is current, and that
every module named in it exists.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
REPORTS = README.parent / "reports"
BEGIN, END = "<!-- systems: begin -->", "<!-- systems: end -->"


@dataclass(frozen=True)
class System:
    """A named system. reference: modules of the plain reference; batched: of the fast paths; audit: engines audited in it."""

    name: str
    reference: tuple[str, ...] = ()
    batched: tuple[str, ...] = ()
    audit: tuple[str, ...] = ()


SYSTEMS = (
    System(
        "Draft-model speculative sampling",
        ("specref.rules.chain",),
        ("specref.batched.chain",),
        audit=("specref", "specref-engine", "transformers", "vllm"),
    ),
    System(
        "The acceptance step alone, from logits",
        ("specref.rules.chain",),
        ("specref.batched.chain", "specref.cuda"),
        audit=("specref", "transformers", "vllm"),
    ),
    System(
        "Greedy speculation (temperature 0)",
        ("specref.rules.chain",),
        ("specref.batched.chain",),
        audit=("specref", "specref-engine", "transformers", "vllm"),
    ),
    System("Medusa heads", ("specref.drafters.medusa",), audit=("specref-engine", "vllm")),
    System(
        "Medusa candidate tree and tree attention",
        ("specref.tree", "specref.tree_attention"),
        ("specref.batched.masks", "specref.cuda"),
        audit=("specref-engine",),
    ),
    System(
        "A general token tree",
        ("specref.tree", "specref.rules.tree"),
        ("specref.batched.tree", "specref.cuda"),
        audit=("specref", "specref-engine"),
    ),
    System("EAGLE-style draft net", ("specref.drafters.eagle",), audit=("specref-engine", "vllm")),
    System(
        "Lookahead decoding, Jacobi iteration",
        ("specref.drafters.lookahead", "specref.drafters.jacobi"),
        audit=("specref-engine",),
    ),
    System("Serving through vLLM", audit=("vllm", "vllm-server")),
    System(
        "KV update after verification",
        ("specref.kv_cache",),
        ("specref.batched.cache", "specref.cuda"),
        audit=("specref-engine", "transformers"),
    ),
    System("Drafts from another family", ("specref.drafters.cross_vocabulary",), audit=("specref-engine", "transformers")),
    System("Choosing a method", ("specref.speedup",)),
)


def exists(module: str) -> bool:
    """Whether a module can be imported here.

    >>> exists("specref.rules.chain"), exists("specref.no_such_module")
    (True, False)
    """
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def table() -> str:
    """The systems as a Markdown table."""
    lines = ["| system | reference | batched | audited in |", "|---|---|---|---|"]
    for system in SYSTEMS:
        cells = (_modules(system.reference), _modules(system.batched), ", ".join(system.audit) or "–")
        lines.append(f"| {system.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _modules(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names if exists(name)) or "–"


def between(begin: str, end: str, table: str, text: str) -> str:
    """The text with a table between two marks, in place of what stood there.

    >>> between("<a>", "<b>", "new", "before <a>old<b> after")
    'before <a>\\nnew\\n<b> after'
    """
    return re.sub(f"{begin}.*?{end}", lambda _: f"{begin}\n{table}\n{end}", text, flags=re.DOTALL)


def with_table(text: str) -> str:
    """README text with the current table between its marks."""
    return between(BEGIN, END, table(), text)


if __name__ == "__main__":
    README.write_text(with_table(README.read_text()))
