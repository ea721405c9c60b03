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
TYPICAL = (
    "the draft's best token x is kept if p(x) > c = min(0.09, 0.3 exp(-H)), with H the entropy of p, whatever its q(x); the "
    "token after the kept ones is drawn from p where p is at least c"
)
ACCEPT_ALL = "every draft is kept, so that drafted tokens have the draft model's law q; the token after each k of them has p"
"""What is emitted with which probability, after economize's own docstrings (`economize.decoding.verifiers`)."""


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
        _mode("draft model, typical", model | {"verifier": "typical"}, "typical", "draft model", lossy=TYPICAL),
        _mode("draft model, accept all", model | {"verifier": "accept_all"}, "undeclared", "draft model", lossy=ACCEPT_ALL),
    )


def _mode(name: str, speculation: dict[str, Any], rule: str, draft_law: str = "", lossy: str = "") -> Mode:
    promises = {"SEED-1": DOCS}
    if speculation and not lossy:
        promises["ACCEPT-3"] = DOCS
    exact = draft_law == "draft model" and not lossy
    return Mode(name, speculation, rule, draft_law, lossy=lossy, promises=promises, exact_draft=exact)
