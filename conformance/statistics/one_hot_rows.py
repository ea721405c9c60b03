"""Row mix-up: every row and position gets a target law of its own that allows one token, so that one sample shows a swap.

With p one-hot there is no chance left: whatever the rule (ratio, block, one-hot, token matching, greedy), row i accepts
the drafts that carry its tokens and then emits its own next token. Any other token names the row and position whose law
was used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conformance.statistics.evidence import Floats, Ints, WrongUse
from conformance.statistics.step_log import NOTHING


@dataclass(frozen=True)
class OneHotRows:
    """A batch of B windows without chance: p `[B, k+1, V]`, q `[B, k, V]`, drafts `[B, k]`, and what must come out.

    `tokens [B, k+1]`: the one token that each law allows, all different. `expected [B, k+1]`: each row's output, padded with
    `NOTHING` after its last token.
    """

    p: Floats
    q: Floats
    drafts: Ints
    tokens: Ints
    expected: Ints


def one_hot_rows(accepted: npt.ArrayLike, k: int, vocabulary: int, rng: np.random.Generator) -> OneHotRows:
    """Windows in which row i accepts `accepted[i]` drafts (0..k); token numbers are assigned at random.

    >>> rows = one_hot_rows([1, 0], 1, 8, np.random.default_rng(0))
    >>> row_mixups(rows, rows.expected)
    []
    >>> row_mixups(rows, rows.expected[::-1])[0].split(":")[0]
    'row 0, position 0 emitted the token of row 1, position 0'
    """
    counts = np.asarray(accepted)
    B = len(counts)
    if vocabulary < B * (k + 1) + 1:
        raise WrongUse(f"{B} rows of {k + 1} positions need a vocabulary of at least {B * (k + 1) + 1}, got {vocabulary}")
    if not (counts.min() >= 0 and counts.max() <= k):
        raise WrongUse(f"accepted counts lie in 0..{k}, got {counts.tolist()}")
    order = rng.permutation(vocabulary)
    tokens = order[: B * (k + 1)].reshape(B, k + 1)
    place = np.arange(k)
    drafts = np.where(place == counts[:, None], order[-1], tokens[:, :k])
    expected = np.where(np.arange(k + 1) <= counts[:, None], tokens, NOTHING)
    eye = np.eye(vocabulary)
    return OneHotRows(eye[tokens], eye[drafts], drafts, tokens, expected)


def row_mixups(rows: OneHotRows, emitted: npt.ArrayLike) -> list[str]:
    """Every place where `emitted [B, k+1]` (padded with `NOTHING`) is not what it must be, and whose law was used instead."""
    found = []
    out = np.asarray(emitted)
    if out.shape != rows.expected.shape:
        raise WrongUse(f"emitted must be [B, k+1] = {rows.expected.shape}, got {out.shape}")
    for i, j in np.argwhere(out != rows.expected):
        source = np.argwhere(rows.tokens == out[i, j])
        if out[i, j] == NOTHING:
            what = "emitted nothing"
        elif len(source):
            what = f"emitted the token of row {source[0][0]}, position {source[0][1]}"
        else:
            what = f"emitted token {out[i, j]}, which no law allows"
        found.append(f"row {i}, position {j} {what}: expected {rows.expected[i, j]}")
    return found


def assert_no_row_mixup(rows: OneHotRows, emitted: npt.ArrayLike) -> None:
    """Raise AssertionError if a row's output shows another row's or position's law (deterministic)."""
    found = row_mixups(rows, emitted)
    if found:
        raise AssertionError(f"{len(found)} places differ; {found[0]}")
