"""From arrays to what a report draws: the output around a wrong token, the mask of a tree, the entries of a cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.pictures import CachePicture, MaskPicture, Parting
from conformance.protocols import Tokens
from conformance.scoring import Logits
from conformance.statistics.greedy import gaps_to_top

BEFORE, AFTER = 6, 5
"""Tokens shown before a wrong one, and from it on."""
PARTINGS = 3
"""Prompts of which the text is shown beside the target's."""
ENTRIES = 64
"""Entries of a cache shown; where it is longer, those around the first difference."""
WIDEST = 48
"""Columns of a mask that is drawn: a longer prefix is cut at its beginning."""


def parting(where: str, output: Tokens, rows: Logits, at: int, bound: float, texts: Sequence[str] = ()) -> Parting:
    """The output around position `at`, beside the target's best tokens. rows: its logits along the output, `[n, V]`.

    >>> rows = np.array([[0.0, 2.0], [3.0, 0.0]])
    >>> parting("prompt 0", (1, 1), rows, at=1, bound=0.1, texts=("no", "yes"))
    Parting(where='prompt 0', start=0, emitted=('yes', 'yes'), best=('yes', 'no'), gaps=(0.0, 3.0), bound=0.1, kind='parting')
    """
    start, end = max(0, at - BEFORE), min(len(output), at + AFTER)
    shown, logits = output[start:end], rows[start:end]

    def text(token: int) -> str:
        return texts[token] if token < len(texts) else f"token {token}"

    best = tuple(text(int(token)) for token in logits.argmax(axis=1))
    gaps = tuple(float(gap) for gap in gaps_to_top(shown, logits))
    return Parting(where, start, tuple(map(text, shown)), best, gaps, bound)


def partings(
    places: Sequence[tuple[int, int]],
    outputs: Sequence[Tokens],
    logits: Sequence[Logits],
    bound: float,
    texts: Sequence[str] = (),
) -> tuple[Parting, ...]:
    """The first (prompt, position) of each of the first prompts; what follows it was written after another history."""
    first: dict[int, int] = {}
    for prompt, position in places:
        first.setdefault(prompt, position)
    some = list(first.items())[:PARTINGS]
    return tuple(parting(f"prompt {prompt}", outputs[prompt], logits[prompt], at, bound, texts) for prompt, at in some)


def mask_picture(
    where: str, prefix: int, parents: Sequence[int], expected: npt.NDArray[np.bool_], found: npt.NDArray[Any]
) -> MaskPicture:
    """A tree's mask `[N, prefix + N]` beside the right one.

    >>> mask_picture("tree 0", 0, (-1, 0), np.tri(2, dtype=bool), np.ones((2, 2))).found
    ('11', '11')
    """
    cut = max(0, expected.shape[1] - WIDEST)
    rows = ["".join("1" if one else "0" for one in row) for row in np.concatenate([expected, found.astype(bool)])[:, cut:]]
    return MaskPicture(where, max(0, prefix - cut), tuple(parents), tuple(rows[: len(expected)]), tuple(rows[len(expected) :]))


def cache_picture(
    where: str, tokens: Tokens, found: npt.NDArray[Any], fresh: npt.NDArray[Any], tolerance: float
) -> CachePicture:
    """Where the entries `[n, ...]` of a cache differ from fresh ones. tokens: those read; a ring holds the last ones only.

    >>> cache_picture("round 0", (5, 6), np.array([0.25, 0.75]), np.array([0.25, 0.5]), 0.0).differences
    (0.0, 0.25)
    """
    both, offset = min(len(found), len(fresh)), len(tokens) - len(fresh)
    apart = np.abs(found[:both].astype(float) - fresh[:both].astype(float)).reshape(both, int(np.prod(fresh.shape[1:])))
    apart = np.where(np.isnan(apart), np.inf, apart).max(axis=1, initial=0.0)
    first = next((i for i, one in enumerate(apart) if not one <= tolerance), both)
    start = 0 if len(fresh) <= ENTRIES else min(max(0, first - ENTRIES // 2), len(fresh) - ENTRIES)
    entries = range(start, min(len(fresh), start + ENTRIES))
    return CachePicture(
        where,
        start + max(offset, 0),
        tuple(str(tokens[i + offset]) if 0 <= i + offset < len(tokens) else "?" for i in entries),
        tuple(float(apart[i]) if i < both else None for i in entries),
        max(0, len(found) - len(fresh)),
        tolerance,
    )
