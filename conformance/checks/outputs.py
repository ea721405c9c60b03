"""Where outputs or logits that should be equal differ: what SEED, BATCH, DRAFT and TREE have in common."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from conformance.checks.places import Place, judged, nonsense
from conformance.components import Logits
from conformance.findings import Finding
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


def same_logits(requirement: str, mode: str, rows: Logits, margin: Margin, planned: int, names: Sequence[str] = ()) -> Finding:
    """Rows of logits `[n, V]` computed together equal the same rows computed alone, within the margin.

    names: of the rows, as "tree 3, node 5". Masked logits (-inf in both) are equal.
    """
    if rows.together.shape != rows.alone.shape:
        shapes = f"{list(rows.together.shape)} and {list(rows.alone.shape)}"
        return nonsense(requirement, mode, f"logits {shapes} cannot be compared")
    places = []
    with np.errstate(invalid="ignore"):
        apart = np.where(rows.together == rows.alone, 0.0, np.abs(rows.together - rows.alone))
    apart = np.where(np.isnan(apart), np.inf, apart)
    for row in np.flatnonzero(apart.max(axis=1, initial=0.0) > margin.value).tolist():
        token = int(apart[row].argmax())
        where = f"{names[row] if names else f'row {row}'}, token {token}"
        places.append(Place(where, f"logit {rows.alone[row, token]:.6g}", f"{rows.together[row, token]:.6g}"))
    claim = f"every row of logits is that of its context alone, within {margin.value:.2g}"
    return judged(requirement, mode, places, n=len(apart), planned=planned, unit="rows", claim=claim)
