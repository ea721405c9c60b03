"""The ways of running economize that are audited.

A mode's `speculation`: "technique" is what drafts, "k" the drafts per cycle, "tree" the paths of Medusa's tree, and "verifier"
one that is not lossless.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance.protocols import Mode

DOCS = "https://github.com/Thiggel/economize#readme"
TREE = ((0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0))
"""Paths of a small Medusa tree, by ranks."""


def all_modes(k: int) -> Sequence[Mode]:
    """Every mode with `k` drafts per cycle, speculation off first."""
    model: dict[str, Any] = {"technique": "draft_model", "k": k}
    heads: dict[str, Any] = {"technique": "medusa", "k": k}
    return (
        _mode("off", {}, "target"),
        _mode("draft model", model, "ratio", "draft model"),
        _mode("lookup", {"technique": "lookup", "k": k}, "one_hot", "n-gram"),
        _mode("early exit", {"technique": "early_exit", "k": k}, "ratio"),
        _mode("Medusa, chain", heads, "ratio"),
        _mode("Medusa, tree", heads | {"tree": TREE}, "undeclared"),
        _mode("draft model, typical", model | {"verifier": "typical"}, "typical", "draft model", lossy="typical acceptance"),
        _mode("draft model, accept all", model | {"verifier": "accept_all"}, "undeclared", "draft model", lossy="all are kept"),
    )


def _mode(name: str, speculation: dict[str, Any], rule: str, draft_law: str = "", lossy: str = "") -> Mode:
    promises = {"SEED-1": DOCS}
    if speculation and not lossy:
        promises["ACCEPT-3"] = DOCS
    exact = draft_law == "draft model" and not lossy
    return Mode(name, speculation, rule, draft_law, lossy=lossy, promises=promises, exact_draft=exact)
