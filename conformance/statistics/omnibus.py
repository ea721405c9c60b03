"""The omnibus: an e-process for faults that nobody foresaw.

Four projections of each token, each exactly uniform on equal cells under a correct engine whatever its law, so that
their counts add over contexts: the PIT in the orders of q/p, p and token id (32 cells), and the PIT in the order of p
within eight classes of q/p (8 cells in each). A Dirichlet mixture bets on each; the omnibus is their mean.
"""

from __future__ import annotations

import numpy as np

from conformance.statistics.check import Check, Counted
from conformance.statistics.dirichlet import log_dirichlet
from conformance.statistics.evidence import Evidence, Floats, Ints, log_mean_exp
from conformance.statistics.pit import ORDERS, RATIO_CLASSES
from conformance.statistics.scoring import Scored

CELLS = 32
CLASS_CELLS = 8
FINE_BINS = 1024
"""Bins in which PIT values are kept; 32 of them make a cell."""


class OmnibusCheck(Check):
    """Mean over four projections of a Dirichlet mixture."""

    def __init__(self, orders: int = 3) -> None:
        self.name, self.orders = "omnibus", orders
        self.sums = {
            "cells": np.zeros((orders, CELLS), np.int64),
            "class_cells": np.zeros((len(RATIO_CLASSES) + 1, CLASS_CELLS), np.int64),
        }

    def observe(self, scored: Scored) -> None:
        """Add the cells of a block."""
        self.sums["cells"] += bin_counts(scored.pit, CELLS)
        if scored.ratio_class is not None and scored.pit_in_class is not None:
            cell = scored.ratio_class * CLASS_CELLS + (scored.pit_in_class * CLASS_CELLS).astype(np.int64)
            table = self.sums["class_cells"]
            table += np.bincount(cell, minlength=table.size).reshape(table.shape)

    def observe_counts(self, counted: Counted) -> None:
        """Add the cells of samples from fixed laws."""
        self.sums["cells"] += counted.fine_bins.reshape(self.orders, CELLS, -1).sum(axis=2)
        if counted.class_bins is not None:
            self.sums["class_cells"] += counted.class_bins

    def evidence(self) -> Evidence:
        """The mean over projections; the holder is the projection with most evidence."""
        logs = [log_mean_exp(log_dirichlet(row, np.full(CELLS, 1 / CELLS))) for row in self.sums["cells"]]
        names = [f"order of {name}" for name in ORDERS[: self.orders]]
        if self.orders == 3:
            within = log_dirichlet(self.sums["class_cells"], np.full(CLASS_CELLS, 1 / CLASS_CELLS))
            logs.append(log_mean_exp(within.sum(axis=0)))
            names.append("order of p within classes of q/p")
        holder = names[int(np.argmax(logs))]
        detail = {name: log / float(np.log(10)) for name, log in zip(names, logs)}
        n = int(self.sums["cells"][0].sum())
        return Evidence(self.name, n, log_mean_exp(np.array(logs)), holder=holder, detail={"log10_e": detail})


def bin_counts(values: Floats, bins: int) -> Ints:
    """Counts ``[orders, bins]`` of values ``[orders, n]`` in [0, 1)."""
    cell = (values * bins).astype(np.int64)
    return np.stack([np.bincount(row, minlength=bins) for row in cell])
