"""Faults of rows: a right rule that reads the laws of another position or of another request."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from conformance.components import Floats, Ints
from conformance.controls.control import Control
from conformance.controls.stages.verifiers import chain, tree
from specref.chance import Chance
from specref.draft import Draft
from specref.laws import Law, positive_part
from specref.rules import Rule, Verified

KIND = "sampler"
Row = Callable[[int, int], int]
"""Which row is read at position i of a round of k drafts."""


def reading(
    *,
    accept: Row | None = None,
    accept_q: Row | None = None,
    replace: Row | None = None,
    replace_q: Row | None = None,
    bonus: Row | None = None,
) -> Rule:
    """The ratio rule that reads other rows: of p or q where it accepts or replaces, or of p for the bonus."""

    def own(i: int, k: int) -> int:
        return i

    def changed(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
        k, q = len(draft.tokens), draft.laws
        for i, x in enumerate(draft.tokens):
            if not chance.accepts(p[(accept or own)(i, k)][x], q[(accept_q or own)(i, k)][x], slot=("accept", i)):
                target = p[(replace or own)(i, k)]
                left = positive_part(target - q[(replace_q or own)(i, k)])
                return Verified(i, chance.picks(left if left.any() else target, slot=("emit",)))
        return Verified(k, chance.picks(p[(bonus or own)(k, k)], slot=("emit",)))

    return changed


def fault(id: str, rule: Rule, requirements: Sequence[str], *reports: str, sees: bool = False) -> Control:
    """A ratio rule that reads wrong rows."""
    return Control(id, KIND, "ratio", tuple(requirements), chain("ratio", rule), reports, acceptance_sees=sees)


def q_of_the_row_before(p: Floats, q: Floats | None, drafts: Ints) -> tuple[Floats, Floats | None, Ints]:
    """Two requests change places after drafting, the table of q does not."""
    return p, None if q is None else np.roll(q, 1, axis=0), drafts


def bonus_of_the_row_before(p: Floats, q: Floats | None, drafts: Ints) -> tuple[Floats, Floats | None, Ints]:
    """The bonus row of every request is its neighbour's."""
    return np.concatenate([p[:, :-1], np.roll(p[:, -1:], 1, axis=0)], axis=1), q, drafts


def leaf_of_the_next_request(
    p: Floats, q: Floats | None, tokens: Ints, parents: Ints
) -> tuple[Floats, Floats | None, Ints, Ints]:
    """A scan that is one too long: the last node's law is read from the next request's row."""
    return np.concatenate([p[:, :-1], np.roll(p[:, -1:], -1, axis=0)], axis=1), q, tokens, parents


FAULTS = (
    fault("row i+1 used at a rejection", reading(replace=lambda i, k: i + 1), ["LAW-3", "LAW-5"]),
    fault("bonus from the row before", reading(bonus=lambda i, k: max(k - 1, 0)), ["LAW-3", "LAW-5"]),
    fault("bonus from the first row", reading(bonus=lambda i, k: 0), ["LAW-3", "LAW-5"], "sgl-project/sglang 26163"),
    fault(
        "every replacement from the first row", reading(replace=lambda i, k: 0), ["LAW-3", "LAW-5"], "vllm-project/vllm 8320"
    ),
    fault("drafts tried by the row after them", reading(accept=lambda i, k: i + 1), ["LAW-3", "LAW-5"], sees=True),
    fault("drafts tried by the row before them", reading(accept=lambda i, k: max(i - 1, 0)), ["LAW-3", "LAW-5"], sees=True),
    fault(
        "drafts tried with q of the position before",
        reading(accept_q=lambda i, k: max(i - 1, 0)),
        ["LAW-3", "LAW-4"],
        sees=True,
    ),
    fault("residual with q of the position before", reading(replace_q=lambda i, k: max(i - 1, 0)), ["LAW-4"]),
    Control(
        "q rows in the old order after a swap",
        "batch",
        "ratio",
        ("LAW-3", "LAW-4"),
        chain(given=q_of_the_row_before),
        ("vllm-project/vllm 41044", "1CatAI/1Cat-vLLM 656"),
        acceptance_sees=True,
    ),
    Control("bonus of another request", "batch", "ratio", ("LAW-5",), chain(given=bonus_of_the_row_before)),
    Control(
        "a missing parent reads the next request's row",
        "tree",
        "sequential_one_hot",
        ("LAW-5",),
        tree("one_hot", given=leaf_of_the_next_request),
        ("sgl-project/sglang 36201",),
    ),
)
