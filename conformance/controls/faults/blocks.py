"""Faults of block verification."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.controls.exact import of_round
from conformance.controls.faults.sampler import fault
from specref.draft import Draft
from specref.laws import Law, norm, residual
from specref.rules import rewired
from specref.rules.block import at_most_one, block


def tokenwise_residual(kept_p: Law, of_q: Law) -> Law:
    """The residual of p and q themselves, without the joint ratio."""
    return residual(norm(kept_p), norm(of_q)) if of_q.any() else kept_p


def without_q(p: Sequence[Law], draft: Draft) -> list[tuple[object, object]]:
    """Joint ratios that forget q: the products of p alone."""
    joint: list[tuple[object, object]] = [(1, 1)]
    for law, x in zip(p, draft.tokens):
        kept, of = joint[-1]
        joint.append(at_most_one(kept * law[x], of))
    return joint


BLOCK = (
    fault(
        "block criterion with the token-wise residual",
        rewired(block, residual=tokenwise_residual),
        ["LAW-4"],
        "vllm-project/vllm-ascend 7807",
        declared="block",
        exact=of_round(rewired(block, residual=tokenwise_residual), seed="39"),
    ),
    fault(
        "block: cumulative product without q",
        rewired(block, joint_ratios=without_q),
        ["LAW-3", "LAW-4"],
        declared="block",
        exact=of_round(rewired(block, joint_ratios=without_q)),
        sees=True,
    ),
    fault(
        "block: a prefix kept by its joint ratio alone",
        rewired(block, stopping_odds=lambda joint, p, q: joint),
        ["LAW-4"],
        "vllm-project/vllm-ascend 7807",
        declared="block",
        exact=of_round(rewired(block, stopping_odds=lambda joint, p, q: joint)),
        sees=True,
    ),
)

FAULTS = BLOCK
