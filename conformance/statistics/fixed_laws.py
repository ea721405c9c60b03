"""One fixed pair of laws, prepared once, so that a look at millions of counted samples costs milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from conformance.statistics.bank import FaultBank
from conformance.statistics.evidence import Floats, Ints, WrongUse, law_rows
from conformance.statistics.fixed_n import FINE_BINS
from conformance.statistics.pit import READ
from conformance.statistics.tree import EDGES


class Spread:
    """How the tokens of one law, in the order of falling ``scores``, spread over bins of the PIT.

    A token's mass covers an interval of [0, 1), and its occurrences are spread at random over the bins that the
    interval meets: the same in law as transforming token by token. Tokens of equal score share their interval.
    """

    def __init__(self, scores: Floats, p: Floats, edges: Floats) -> None:
        order = np.argsort(-scores, kind="stable")
        group = np.concatenate([[0], np.cumsum(np.diff(scores[order]) != 0)])
        mass = np.bincount(group, p[order])
        upper = np.minimum(np.cumsum(mass) / mass.sum(), 1.0)
        lower = np.concatenate([[0.0], upper[:-1]])
        self.bins = len(edges) - 1
        first = np.clip(np.searchsorted(edges, lower, side="right") - 1, 0, self.bins - 1)
        last = np.maximum(np.clip(np.searchsorted(edges, upper, side="left") - 1, 0, self.bins - 1), first)
        of_token = np.empty(len(p), np.int64)
        of_token[order] = group
        whole = (first == last)[of_token]
        tokens = np.arange(len(p))
        # Tokens that lie in one bin: a sparse matrix [V, bins]; those that are cut: their shares, one by one.
        ones = np.ones(int(whole.sum()))
        self._whole = csr_array((ones, (tokens[whole], first[of_token[whole]])), shape=(len(p), self.bins))
        self._cut: list[tuple[Ints, int, Floats]] = []
        for g in np.flatnonzero(first != last):
            share = np.diff(np.clip(edges[first[g] : last[g] + 2], lower[g], upper[g]))
            self._cut.append((np.flatnonzero(of_token == g), int(first[g]), share / share.sum()))

    def __call__(self, counts: Ints, rng: np.random.Generator) -> Ints:
        """Counts ``[..., bins]`` of PIT values for token counts ``[..., V]``."""
        out = np.rint(counts @ self._whole).astype(np.int64)
        for tokens, first, share in self._cut:
            drawn = counts[..., tokens].sum(axis=-1)
            if np.any(drawn):
                out[..., first : first + len(share)] += rng.multinomial(drawn, share)
        return out


class FixedLaws:
    """A fixed pair of laws ``[V]`` with the tables that the checks of a bank need."""

    def __init__(self, bank: FaultBank, p: Floats, q: Floats | None) -> None:
        self.bank = bank
        self.p = law_rows("p", np.asarray(p)[None])[0]
        self.q = None if q is None else law_rows("q", np.asarray(q)[None], 1)[0]
        if bank.has_q and self.q is None:
            raise WrongUse("the bank bets with a draft or proxy law q; none was given")

    @cached_property
    def log_table(self) -> Floats:
        """``ln b_j(x)``, ``[J, V]``."""
        return self.bank.log_table(self.p, self.q)

    @cached_property
    def leaves(self) -> Sequence[Spread]:
        """The spread over the leaves of the tree, for every order."""
        return [Spread(scores, self.p, EDGES) for scores in self._scores]

    @cached_property
    def fine_bins(self) -> Sequence[Spread]:
        """The spread over fine bins, for the orders that fixed-n checks read."""
        edges = np.linspace(0, 1, FINE_BINS + 1)
        return [Spread(scores, self.p, edges) for scores in self._scores[:READ]]

    @property
    def _scores(self) -> list[Floats]:
        scores = [-np.arange(len(self.p), dtype=np.float64), self.p]
        if self.q is not None and self.bank.has_q:
            with np.errstate(divide="ignore", invalid="ignore"):
                scores.append(np.where(self.p > 0, self.q / self.p, -1.0))  # p = 0 carries no mass: last
            scores.append(self.q)
            scores.append(scores[0] + np.where(self.p > self.q, len(self.p), 0))
        return scores
