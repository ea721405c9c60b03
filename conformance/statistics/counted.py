"""Samples of one fixed pair of laws, as counts: what checks read instead of a scored block."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from conformance.statistics.evidence import Floats, Ints
from conformance.statistics.fixed_laws import FixedLaws


@dataclass(frozen=True)
class Counted:
    """``n`` samples with token counts ``[V]``; each view is computed when a check first asks for it."""

    laws: FixedLaws
    counts: Ints
    n: int
    rng: np.random.Generator

    @cached_property
    def log_wealth(self) -> Floats:
        """Log wealth of every bet, ``[J]``."""
        return self.laws.log_table @ self.counts

    @cached_property
    def leaves(self) -> Ints:
        """PIT counts over the leaves of the tree, ``[orders, LEAVES]``."""
        return np.stack([spread(self._possible, self.rng) for spread in self.laws.leaves])

    @cached_property
    def fine_bins(self) -> Ints:
        """PIT counts over fine bins, ``[orders, FINE_BINS]``."""
        return np.stack([spread(self._possible, self.rng) for spread in self.laws.fine_bins])

    @property
    def _possible(self) -> Ints:
        return np.where(self.laws.p > 0, self.counts, 0)
