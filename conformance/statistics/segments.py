"""Accepted and replaced tokens, each under its own law.

That a token was accepted is settled by the token itself, so accepted tokens do not follow p. Under the ratio rule
they follow ``min(p, q)``, and the tokens drawn after a rejection follow ``max(p - q, 0)``, both normalised, given
everything before the round's decision at this place.
"""

from __future__ import annotations

import numpy as np

from conformance.statistics.blocks import Segment
from conformance.statistics.check import Check
from conformance.statistics.evidence import Evidence, log_mean_exp
from conformance.statistics.pit import ORDERS, READ
from conformance.statistics.scoring import Scored
from conformance.statistics.tree import LEAVES, leaf_counts, log_shape


class SegmentCheck(Check):
    """Bets on the shape of the PIT of one segment's tokens, in three orders."""

    def __init__(self, segment: Segment) -> None:
        self.name, self.segment = segment.name.lower(), segment
        self.sums = {"leaves": np.zeros((READ, LEAVES), np.int64)}

    def observe(self, scored: Scored) -> None:
        """Add the tokens of this segment."""
        if scored.segment_pit is None or scored.block.segment is None:
            return
        chosen = (scored.block.segment == self.segment) & ~np.isnan(scored.segment_pit[0])
        self.sums["leaves"] += leaf_counts(scored.segment_pit[:, chosen])

    def evidence(self) -> Evidence:
        """The mean over orders."""
        logs = log_shape(self.sums["leaves"])
        holder = f"order of {ORDERS[int(np.argmax(logs))]}"
        return Evidence(self.name, int(self.sums["leaves"][0].sum()), log_mean_exp(logs), holder=holder)
