"""How wrong can a law still be, over a stream in which every token has laws of its own?

Three readings that hold together: the leak toward the draft (`leak_stream`), the error on every set {q/p >= t}, and total
variation at the resolution "the most probable tokens and the rest". Each is a mean over the contexts of the stream, of signed
deviations: errors that point in opposite directions in different contexts may cancel. In one fixed context `bounds` says more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from conformance.statistics.bounds import capped_ratio
from conformance.statistics.evidence import Floats, Ints, WrongUse
from conformance.statistics.leak_stream import LeakOverContexts, planned_stake

RESOLUTION = 50
"""Tokens that are looked at one by one: in every context those that p holds most probable."""
LARGEST_POWER = 4
"""The sets are {q/p >= t} for t = 1/16, 1/8, ..., 16: powers of 2 up to this one."""
SETS = 2 * LARGEST_POWER + 1


@dataclass(frozen=True)
class MeanBounds:
    """Upper bounds on means over n tokens. unclaimed: below it nothing is said of total variation over the whole vocabulary."""

    n: int
    leak: float
    ratio_sets: float
    total_variation: float
    unclaimed: float


@dataclass
class StreamBounds:
    """Sums over a stream from which the bounds follow, each at a third of `error`.

    A token lies in a set A with probability r(A), given its history; what was seen of it differs from r(A) by a number in an
    interval of length 1, so exp(s (sum of differences) - n s^2 / 8) has mean at most 1 for a stake s fixed in advance
    (Hoeffding), and the sum stays below (ln(c / error) + n s^2 / 8) / s for c sets at all n at once. Total variation between
    m cells is the largest of r(A) - p(A) over 2^m sets A.

    sets `[SETS]`: how often q/p >= t was seen beyond what p says. ranks `[cells]`: the same of every rank, and of the rest
    last, whose probability `rest` adds up.
    """

    planned: int
    error: float
    leak: LeakOverContexts
    ranks: Floats
    sets: Floats = field(default_factory=lambda: np.zeros(SETS))
    rest: float = 0.0
    n: int = 0

    @classmethod
    def plan(cls, p: npt.ArrayLike, q: npt.ArrayLike, planned: int, error: float) -> StreamBounds:
        """For about `planned` tokens of contexts like these p, q `[n, V]`, which are not to be added themselves."""
        if planned < 1 or not 0 < error < 1:
            raise WrongUse(f"planned is {planned} and error {error}; give 1 token or more, and an error between 0 and 1")
        cells = min(RESOLUTION, np.shape(p)[1]) + 1
        return cls(planned, error, LeakOverContexts(planned_stake(p, q, planned, error / 3)), np.zeros(cells))

    def add(self, tokens: npt.ArrayLike, p: npt.ArrayLike, q: npt.ArrayLike) -> None:
        """Take in tokens `[n]` with their laws p, q `[n, V]`."""
        self.leak.add(tokens, p, q)
        x, laws, drafts = np.asarray(tokens), np.asarray(p, float), np.asarray(q, float)
        self.n += len(x)
        self.sets += _beyond_ratios(x, laws, drafts)
        seen, expected = _ranks(x, laws)
        self.ranks += seen - expected
        self.rest += float(expected[-1])

    def upper(self) -> MeanBounds:
        """The bounds, all at once at confidence 1 - `error`, at any n."""
        if not self.n:
            return MeanBounds(0, 1.0, 1.0, 1.0, 1.0)
        third = self.error / 3
        sets = float(abs(self.sets).max()) / self.n + self._radius(math.log(2 * SETS / third))
        ranks = float(abs(self.ranks).sum()) / 2 / self.n + self._radius(len(self.ranks) * math.log(2) - math.log(third))
        readings = (self.leak.upper_bound(third), sets, ranks, ranks + self.rest / self.n)
        return MeanBounds(self.n, *(min(1.0, reading) for reading in readings))

    def _radius(self, stake: float) -> float:
        """What is added to a mean that was seen; stake: ln(sets / error)."""
        s = math.sqrt(8 * stake / self.planned)
        return stake / s / self.n + s / 8


def _beyond_ratios(tokens: Ints, p: Floats, q: Floats) -> Floats:
    """How often tokens lay in {q/p >= t}, less its probability under p; summed over tokens, `[SETS]`."""
    power = np.frexp(capped_ratio(p, q, 2.0 ** (LARGEST_POWER + 1)))[1] - 1  # q/p lies in [2^power, 2^(power + 1))
    place = np.clip(power + LARGEST_POWER + 1, 0, SETS)  # 0: below every t
    seen = np.bincount(place[np.arange(len(tokens)), tokens], minlength=SETS + 1)
    expected = np.bincount(place.ravel(), p.ravel(), minlength=SETS + 1)
    beyond: Floats = np.cumsum((seen - expected)[:0:-1])[::-1]
    return beyond


def _ranks(tokens: Ints, p: Floats) -> tuple[Floats, Floats]:
    """How often the token of each rank of p came, and its probability; summed over tokens, each `[cells]`, the rest last."""
    own = p[np.arange(len(tokens)), tokens][:, None]
    before = (p > own) | ((p == own) & (np.arange(p.shape[1]) < tokens[:, None]))
    size = min(RESOLUTION, p.shape[1])
    heads = -np.sort(np.partition(-p, size - 1, axis=1)[:, :size], axis=1).sum(axis=0)
    seen = np.bincount(np.minimum(before.sum(axis=1), size), minlength=size + 1).astype(float)
    return seen, np.append(heads, max(0.0, float(len(tokens) - heads.sum())))
