"""Temperature, and the processors that keep only the more probable tokens: top-k, top-p, min-p.

Where tokens tie, the one with the lower id ranks first. Engines may break ties otherwise; a judge with a tolerance counts tied
tokens at an edge as neither inside nor outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from specref.models import Tokens, softmax
from specref.processors.processed import Processor
from specref.processors.rows import Mask, NothingLeft, Row, can_be_drawn, keep_only, scale

_SMALLEST_TEMPERATURE = 1e-6


def ranked(row: Row) -> npt.NDArray[np.intp]:
    """The token ids of `row [V]` from the most to the least probable; ties: the lower id first.

    >>> ranked(np.array([0.0, 2.0, 1.0, 2.0]))
    array([1, 3, 2, 0])
    """
    return np.argsort(-row, kind="stable")


def _weights(row: Row) -> Row:
    """Weights `[V]` of a row that has a token left, in the row's own arithmetic."""
    if not can_be_drawn(row).any():
        raise NothingLeft("an earlier processor forbids every token, so there is nothing to truncate")
    return row if row.dtype == object else softmax(row)


@dataclass(frozen=True)
class Temperature(Processor):
    """Divides logits by `temperature`. 0 is greedy: the law that is certain of the most probable token, ties to the lowest id.

    >>> Temperature(0.5)(np.array([1.0, 2.0]), (), ())
    array([2., 4.])
    >>> Temperature(0)(np.array([1.0, 2.0, 2.0]), (), ())
    array([-inf,   2., -inf])
    """

    temperature: float | Fraction

    def __post_init__(self) -> None:
        if not (self.temperature == 0 or _SMALLEST_TEMPERATURE <= self.temperature < np.inf):
            raise ValueError(
                f"temperature is {self.temperature}; give 0 for greedy, or a finite number from {_SMALLEST_TEMPERATURE} up"
            )

    def __call__(self, row: Row, prompt: Tokens, output: Tokens) -> Row:
        """See `Processor.__call__`."""
        if self.temperature == 0:
            return keep_only(row, np.arange(len(row)) == int(row.argmax()))
        return scale(row, range(len(row)), 1 / Fraction(self.temperature)) if row.dtype == object else row / self.temperature


class Truncation(Processor):
    """A processor that keeps the scores of some tokens and forbids the rest."""

    def kept(self, row: Row) -> Mask:
        """Which tokens of `row [V]` are kept, `[V]`; never none."""
        raise NotImplementedError

    def __call__(self, row: Row, prompt: Tokens, output: Tokens) -> Row:
        """See `Processor.__call__`."""
        return keep_only(row, self.kept(row))


@dataclass(frozen=True)
class TopK(Truncation):
    """Keeps the `k` most probable tokens; ties: the lower ids. k at or above V keeps all. Source: Fan et al. 1805.04833.

    >>> TopK(2)(np.array([0.0, 1.0, 1.0, 1.0]), (), ())
    array([-inf,   1.,   1., -inf])
    """

    k: int

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"top-k is {self.k}; it keeps 1 token or more (leave it out to keep all)")

    def kept(self, row: Row) -> Mask:
        """See `Truncation.kept`."""
        return _mask(len(row), ranked(row)[: self.k])


@dataclass(frozen=True)
class TopP(Truncation):
    """Keeps each token while the mass ranked before it is below `p`: the smallest set whose mass reaches p.

    Ties: the lower ids first. p = 1 keeps every token. Source: Holtzman et al. 1904.09751.
    On exact rows a float p is the Fraction it is (0.9 lies a little above 9/10); give a Fraction where an edge matters.

    >>> from specref.laws import rational
    >>> TopP(Fraction(8, 10))(rational([2, 5, 3]), (), ())                 # 5/10, then 3/10 because 5/10 < 8/10; then enough
    array([Fraction(0, 1), Fraction(1, 2), Fraction(3, 10)], dtype=object)
    """

    p: float | Fraction

    def __post_init__(self) -> None:
        if not 0 < self.p <= 1:
            raise ValueError(f"top-p is {self.p}; it must lie in (0, 1], and 1 keeps every token")

    def kept(self, row: Row) -> Mask:
        """See `Truncation.kept`."""
        if self.p == 1:
            return np.ones(len(row), dtype=bool)
        weights, order = _weights(row), ranked(row)
        cumulative = weights[order].cumsum()
        before = np.concatenate([cumulative[:1] * 0, cumulative[:-1]])
        p = Fraction(self.p) if row.dtype == object else float(self.p)
        return _mask(len(row), order[np.asarray(before < p * cumulative[-1], dtype=bool)])


@dataclass(frozen=True)
class MinP(Truncation):
    """Keeps the tokens whose probability is at least `m` times the largest one; a token exactly on that edge is kept.

    m = 0 keeps every token. Source: Nguyen et al. 2407.01082.

    >>> from specref.laws import rational
    >>> MinP(Fraction(1, 2))(rational([2, 1, 4]), (), ())
    array([Fraction(2, 7), Fraction(0, 1), Fraction(4, 7)], dtype=object)
    """

    m: float | Fraction

    def __post_init__(self) -> None:
        if not 0 <= self.m <= 1:
            raise ValueError(f"min-p is {self.m}; it must lie in [0, 1], and 0 keeps every token")

    def kept(self, row: Row) -> Mask:
        """See `Truncation.kept`."""
        if row.dtype == object:
            return np.asarray(row >= Fraction(self.m) * row.max(), dtype=bool)
        with np.errstate(divide="ignore"):
            return np.asarray(row >= row.max() + np.log(float(self.m)), dtype=bool)


@dataclass(frozen=True)
class Joint(Truncation):
    """Keeps what all of `parts` keep on the same row, instead of each on what the one before it left.

    >>> row = np.log([0.4, 0.3, 0.2, 0.1])
    >>> in_turn = TopP(0.5)(TopK(2)(row, (), ()), (), ())                  # of the two that top-k left, the first has 4/7
    >>> together = Joint((TopK(2), TopP(0.5)))(row, (), ())                # of all four, the first has 4/10
    >>> in_turn.round(1), together.round(1)
    (array([-0.9, -inf, -inf, -inf]), array([-0.9, -1.2, -inf, -inf]))
    """

    parts: Sequence[Truncation]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("Joint needs one truncation or more")

    def kept(self, row: Row) -> Mask:
        """See `Truncation.kept`."""
        mask: Mask = np.logical_and.reduce([part.kept(row) for part in self.parts])
        return mask


def _mask(vocabulary: int, tokens: npt.NDArray[np.intp]) -> Mask:
    mask = np.zeros(vocabulary, dtype=bool)
    mask[tokens] = True
    return mask
