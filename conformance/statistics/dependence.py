"""Dependence between tokens: over lags within a request, between rounds, and across the rows of a batch.

Under a correct engine the PIT values are independent. Two kinds of bet look for dependence, in each order of the
vocabulary: products of centred PIT values (a few parameters, fast on smooth dependence), and a Dirichlet mixture on
the 8 x 8 cells of a pair, given the earlier one's cell (any shape of dependence).
"""

from __future__ import annotations

import math

import numpy as np

from conformance.statistics.blocks import TokenBlock
from conformance.statistics.check import Check
from conformance.statistics.dirichlet import log_dirichlet
from conformance.statistics.evidence import Evidence, Floats, Ints, log_mean_exp
from conformance.statistics.pit import ORDERS, READ
from conformance.statistics.scoring import Scored

CELLS = 8
STAKES = np.array([sign * stake for stake in (0.5, 0.1, 0.02) for sign in (1, -1)])


def log_wealth_of_products(products: Floats) -> Floats:
    """Log wealth ``[stakes]`` of bets ``1 + stake * product`` on products in [-1, 1] with conditional mean 0."""
    result: Floats = np.log(1 + STAKES[:, None] * products).sum(axis=1)
    return result


class LagCheck(Check):
    """Pairs of tokens of one request that lie 1 to k + 1 apart, and pairs in the same slot of successive rounds."""

    def __init__(self, has_q: bool, lags: int) -> None:
        orders = READ if has_q else 2
        self.name, self.orders, self.lags = "lag", orders, lags
        self.sums = {
            "pairs": np.zeros((orders, lags + 1, CELLS, CELLS), np.int64),
            "log_wealth": np.zeros((orders, lags + 1, len(STAKES))),
        }
        self._tail: tuple[Ints, Ints, Floats] | None = None

    def observe(self, scored: Scored) -> None:
        """Add the pairs that end in this block; the beginning of a pair may lie in the block before."""
        block, values = scored.block, scored.pit[: self.orders]
        if block.slot is not None:
            # In the order (request, slot, position), neighbours of one slot stand in successive rounds or further.
            order = np.lexsort((block.position, block.slot, block.request))
            same = (np.diff(block.request[order]) == 0) & (np.diff(block.slot[order]) == 0)
            self._add(self.lags, values[:, order[:-1][same]], values[:, order[1:][same]])
        request, position = block.request, block.position
        if self._tail is not None:
            request = np.concatenate([self._tail[0], request])
            position = np.concatenate([self._tail[1], position])
            values = np.concatenate([self._tail[2], values], axis=1)
        old = len(request) - len(block)
        for lag in range(1, self.lags + 1):
            later = np.arange(max(old, lag), len(request))
            later = later[request[later] == request[later - lag]]
            self._add(lag - 1, values[:, later - lag], values[:, later])
        last = np.flatnonzero(request == request[-1])[-self.lags :] if len(request) else np.zeros(0, np.int64)
        self._tail = request[last], position[last], values[:, last]

    def _add(self, place: int, earlier: Floats, later: Floats) -> None:
        cells = (earlier * CELLS).astype(np.int64) * CELLS + (later * CELLS).astype(np.int64)
        products = (2 * earlier - 1) * (2 * later - 1)
        for order in range(self.orders):
            pairs = np.bincount(cells[order], minlength=CELLS * CELLS)
            self.sums["pairs"][order, place] += pairs.reshape(CELLS, CELLS)
            self.sums["log_wealth"][order, place] += log_wealth_of_products(products[order])

    def merge(self, later: Check) -> None:
        """Add the shard that follows; shards begin with a new request, so no pair is cut."""
        super().merge(later)
        self._tail = None

    def evidence(self) -> Evidence:
        """The mean over orders, lags and the two kinds of bet."""
        smooth = np.array([[log_mean_exp(stakes) for stakes in row] for row in self.sums["log_wealth"]])
        uniform = np.full(CELLS, 1 / CELLS)
        cells = np.array(
            [[log_mean_exp(log_dirichlet(table, uniform).sum(axis=0)) for table in row] for row in self.sums["pairs"]]
        )
        both = np.stack([smooth, cells])
        kind, order, place = np.unravel_index(int(np.argmax(both)), both.shape)
        where = f"lag {place + 1}" if place < self.lags else "the same slot of the round before"
        how = ("correlated", "dependent")[kind]
        n = int(self.sums["pairs"][0, 0].sum())
        holder = f"{how} with {where}, order of {ORDERS[order]}"
        detail = {"log10_e": (both.max(axis=0) / math.log(10)).tolist()}
        return Evidence(self.name, n, log_mean_exp(both), holder=holder, unit="pairs", detail=detail)


class CrossRowCheck(Check):
    """Rows of one batch that share randomness: each PIT value against the sum of its elders in the same step.

    Tokens are compared where they stand in the same step and slot; where steps are not known, at the same position of
    ``rows`` requests that were submitted one after another. Groups are looked for within a block.
    """

    def __init__(self, has_q: bool, rows: int) -> None:
        orders = READ if has_q else 2
        self.name, self.orders, self.rows = "cross-row", orders, rows
        self.sums = {"log_wealth": np.zeros((orders, len(STAKES))), "n": np.zeros(1, np.int64)}

    def observe(self, scored: Scored) -> None:
        """Add the tokens that have an elder in their group."""
        if len(scored.block) == 0:
            return
        order, elders, starts = _groups(scored.block, self.rows)
        chosen = elders > 0
        for which in range(self.orders):
            centred = 2 * scored.pit[which, order] - 1
            running = np.cumsum(centred) - centred
            running -= np.repeat(running[starts], np.diff(np.append(starts, len(order))))
            # The elders' sum has standard deviation sqrt(elders / 3): scaled to one and cut at 2, it is the stake.
            lead = np.clip(running[chosen] / np.sqrt(elders[chosen] / 3), -2, 2) / 2
            self.sums["log_wealth"][which] += log_wealth_of_products(lead * centred[chosen])
        self.sums["n"] += int(chosen.sum())

    def evidence(self) -> Evidence:
        """The mean over orders and stakes."""
        logs = np.array([log_mean_exp(stakes) for stakes in self.sums["log_wealth"]])
        holder = f"order of {ORDERS[int(np.argmax(logs))]}"
        return Evidence(self.name, int(self.sums["n"][0]), log_mean_exp(logs), holder=holder)


def _groups(block: TokenBlock, rows: int) -> tuple[Ints, Ints, Ints]:
    """An order in which groups are contiguous and sorted by request, each token's number of elders, group starts."""
    if block.step is not None:
        major, minor = block.step, block.slot if block.slot is not None else np.zeros(len(block), np.int64)
    else:
        major, minor = block.request // rows, block.position
    order = np.lexsort((block.request, minor, major))
    new = (np.diff(major[order]) != 0) | (np.diff(minor[order]) != 0)
    starts = np.flatnonzero(np.concatenate([[True], new]))
    elders = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    return order, elders, starts
