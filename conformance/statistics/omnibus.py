"""The omnibus: an e-process for faults that nobody foresaw.

Five projections of each token: its PIT in the orders of token id, p, q/p, q, and token id with the residual's support first.
Under a correct engine each is uniform whatever the token's law, so counts add over contexts. On each the omnibus bets with a
Polya tree and with tail bets (`tree`), and takes the mean of all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from conformance.statistics.check import Check
from conformance.statistics.evidence import Evidence, log_mean_exp
from conformance.statistics.pit import ORDERS
from conformance.statistics.scoring import Scored
from conformance.statistics.tree import LEAVES, leaf_counts, log_tails, log_tree

if TYPE_CHECKING:
    from conformance.statistics.counted import Counted


class OmnibusCheck(Check):
    """Mean over the projections of a Polya tree and of tail bets."""

    def __init__(self, has_q: bool = True) -> None:
        self.name, self.orders = "omnibus", len(ORDERS) if has_q else 2
        self.sums = {"leaves": np.zeros((self.orders, LEAVES), np.int64)}

    def observe(self, scored: Scored) -> None:
        """Add the PIT values of a block."""
        self.sums["leaves"] += leaf_counts(scored.pit)

    def observe_counts(self, counted: Counted) -> None:
        """Add samples from fixed laws."""
        self.sums["leaves"] += counted.leaves

    def evidence(self) -> Evidence:
        """The mean over projections and kinds of bet; the holder is the one with most evidence."""
        logs, names = [], []
        for order, counts in zip(ORDERS, self.sums["leaves"]):
            logs += [float(log_tree(counts)), float(log_tails(counts))]
            names += [f"order of {order}", f"tails of the order of {order}"]
        detail = {name: log / float(np.log(10)) for name, log in zip(names, logs)}
        n, holder = int(self.sums["leaves"][0].sum()), names[int(np.argmax(logs))]
        return Evidence(self.name, n, log_mean_exp(np.array(logs)), holder=holder, detail={"log10_e": detail})
