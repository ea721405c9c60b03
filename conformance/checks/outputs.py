"""Where outputs that should be equal differ: what SEED, BATCH and DRAFT have in common."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from conformance.checks.places import Place
from conformance.protocols import Tokens
from conformance.statistics.greedy import Margin

END = "the end of the output"


def differences(
    expected: Sequence[Tokens],
    found: Sequence[Tokens],
    what: str = "request",
    *,
    logits: Sequence[npt.NDArray[np.float64]] | None = None,
    margin: Margin | None = None,
) -> list[Place]:
    """The first place at which each pair of outputs differs.

    With the target's `logits` along the expected outputs (`[len(output), V]` each) and a `margin`, a difference between two
    tokens whose logits lie within the margin is a near-tie, and left out: what follows it was written after another history.

    >>> [str(place) for place in differences([(1, 2), (3,)], [(1, 5), (3,)])]
    ['request 0, position 1: expected token 2, found token 5']
    >>> rows = [np.array([[0.0, 1.0, 0.0], [0.0, 2.0, 2.0]])]
    >>> differences([(1, 1)], [(1, 2)], logits=rows, margin=Margin(1e-9, "float64", 10_000))
    []
    """
    places = []
    for number, (one, other) in enumerate(zip(expected, found, strict=True)):
        at = next((i for i, (x, y) in enumerate(zip(one, other)) if x != y), min(len(one), len(other)))
        if at == len(one) == len(other):
            continue
        if logits is not None and margin is not None and at < min(len(one), len(other)):
            row = logits[number][at]
            if abs(row[one[at]] - row[other[at]]) <= margin.value:
                continue
        places.append(Place(f"{what} {number}, position {at}", _token(one, at), _token(other, at)))
    return places


def _token(output: Tokens, at: int) -> str:
    return f"token {output[at]}" if at < len(output) else END
