"""The ways of running flashspec that are audited.

A mode's `speculation`: "gamma" drafts per round, "strategy" what drafts, "lookup" the prompt itself, "arms" the numbers of
drafts that a bandit chooses from, "static_cache" a cache of so many places, "variant" a rule that is not lossless, and its
"typical_p", for which flashspec takes the place of top-p.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance.protocols import Mode

DOCS = "https://github.com/Mattral/FlashSpec#readme"
COUNTED = {"ACCEPT-3": DOCS}
"""`GenerationResult.arm_steps` has the proposed, accepted and emitted tokens of every step."""
SEEDED = {"SEED-1": DOCS} | COUNTED
"""Promised where the arm does not depend on the clock."""
TYPICAL_P = 0.9
TYPICAL = (
    f"a draft x is kept if abs(-log p(x) - H) <= -log({TYPICAL_P}), with H the entropy of p, whatever its q(x); the token in "
    "the place of the first that is not, or after them all, is drawn from p"
)
"""What is emitted with which probability, after the docstring of `flashspec.sampling.typical`."""


def all_modes(k: int) -> Sequence[Mode]:
    """Every mode with `k` drafts per round (of the composite strategy it is the engine that says how many)."""
    gamma: dict[str, Any] = {"gamma": k}
    model: dict[str, Any] = {"rule": "ratio", "draft_law": "draft model", "exact_draft": True}
    both: dict[str, Any] = {"rule": "undeclared", "draft_law": "draft model"}  # one-hot after a lookup, ratio after none
    typical: dict[str, Any] = {"rule": "typical", "draft_law": "draft model", "lossy": TYPICAL, "promises": COUNTED}
    return (
        Mode("off", rule="target"),
        Mode("draft model", gamma, promises=SEEDED, **model),
        Mode("prompt lookup", gamma | {"lookup": True, "arms": [k]}, "one_hot", "n-gram", promises=SEEDED),
        Mode("lookup, else draft model", gamma | {"strategy": "composite-g6-f2"}, promises=SEEDED, **both),
        Mode("draft model, static cache", gamma | {"static_cache": 128}, promises=SEEDED, **model),
        Mode("draft model, two arms", gamma | {"arms": [2, k]}, promises=COUNTED, **model),
        Mode("off, batches", rule="target", options={"rows": 8}),
        Mode("draft model, batches", gamma, options={"rows": 8}, **model),
        Mode("draft model, typical", gamma | {"variant": "typical", "typical_p": TYPICAL_P}, **typical),
    )
