"""Truncated targets have an edge, and evidence has to respect it.

Under top-k, top-p or min-p a token just inside the engine's kept set may lie just outside the reference's. Calling it
impossible accuses correct engines (at logit noise of 1e-5 still one run in ten of 1e5 tokens). `kept_sets` says which
tokens are kept for sure (core), and which may be (possible); between them lies the ring. Evidence, per token:

* core: the wealth of each bet is multiplied by b(x) / M, where b bets against our law *conditional on the core*, so that the
  unknown renormalisation cancels, and M is its worst mean over the box of logit errors;
* ring: by 1;
* outside: by B = 1 + 1 / (n delta), where delta is the registered rate of lawful outliers; every token pays
  1 + delta (B - 1).

Where p and q were injected there is no tolerance: a token outside is a violation outright (`outside`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from conformance.statistics.bounds import markov_samples, smallest_caught
from conformance.statistics.evidence import Floats, WrongUse
from conformance.statistics.greedy import PairedEvents
from conformance.statistics.kept_sets import Filter, Mask, kept_sets, outside
from conformance.statistics.tolerance import LEAKS, recentred_ratio, worst_mean
from conformance.statistics.wealth import BetMixture, log_threshold

OUTLIER_RATE = 1e-7
"""The registered rate of lawful tokens outside every kept set. eta is the largest error of at least a thousand
positions, over all V logits; for a larger one to matter it must fall on a token at the edge, and that token, itself unlikely,
must be drawn."""

CUTS = (0.5, 0.9, 0.99)
"""How much of the last kept token's probability the edge bets take away."""


class TruncationBets:
    """Bets against n truncated contexts that no engine within eta can win; wealth lives in a `BetMixture` of `names`.

    logits `[n, V]`, ours before any filter; q `[n, V]`: the draft's law, or any law fixed before the token is seen.
    Bets toward q are blind to a kept set that is one token short, so bets on the last kept token stand beside them
    (placed only where that token is in the core), and one bet looks at outsiders alone.
    """

    def __init__(
        self,
        logits: npt.ArrayLike,
        q: npt.ArrayLike,
        filters: Sequence[Filter],
        eta: float,
        tokens_planned: int,
        outlier_rate: float = OUTLIER_RATE,
        joint: bool = False,
    ) -> None:
        if tokens_planned < 1 or not 0 < outlier_rate < 1:
            raise WrongUse(f"plan at least one token and an outlier rate in (0, 1), got {tokens_planned}, {outlier_rate}")
        self.sets = kept_sets(logits, filters, eta, joint)
        self.nominal = kept_sets(logits, filters, 0.0, joint).possible
        self.outlier = np.log1p(1 / (tokens_planned * outlier_rate))
        self.fee = np.log1p(1 / tokens_planned)  # 1 + delta (B - 1) per token: at most e over the plan
        law = self.sets.core_law()
        draft = np.where(self.sets.core, np.asarray(q, float), 0)
        mass = draft.sum(axis=1, keepdims=True)
        draft = np.divide(draft, mass, out=law.copy(), where=mass > 0)
        self.ratio = recentred_ratio(law, draft)
        self.worst = worst_mean(law, self.ratio, self.sets.eta)
        self._place_edge_bets(law)

    names: tuple[str, ...] = (
        "outside the kept set",
        *(f"last kept token taken away by {cut:.0%}" for cut in CUTS),
        *(f"leak {leak:.3g}" for leak in LEAKS),
    )

    def _place_edge_bets(self, law: Floats) -> None:
        """The last token of our own kept set, where it is in the core beside others; its least probability there."""
        self.last = np.where(self.nominal, self.sets.logits, np.inf).argmin(axis=1)
        row = np.arange(len(law))
        share = law[row, self.last]
        open_row = self.sets.core[row, self.last] & (share < 1)
        odds = np.where(open_row, share, 0) / np.where(open_row, 1 - share, 1) * np.exp(-2 * self.sets.eta)
        self.least = odds / (1 + odds)

    def mixture(self) -> BetMixture:
        """A fresh account for these bets."""
        return BetMixture.equal(self.names)

    def log_factors(self, tokens: npt.ArrayLike, rows: npt.ArrayLike | None = None) -> Floats:
        """Log factors `[m, J]` of `tokens [m]` emitted in contexts `rows [m]` (by default one token per context)."""
        x = np.asarray(tokens)
        i = np.arange(len(x)) if rows is None else np.asarray(rows)
        factors = np.zeros((len(x), len(self.names)))
        core = self.sets.core[i, x]
        taken = np.asarray(CUTS) * (x == self.last[i])[:, None]
        cuts = np.log1p(-taken) - np.log1p(-np.asarray(CUTS) * self.least[i][:, None])
        leaks = np.asarray(LEAKS)
        lean = np.log1p(leaks * (self.ratio[i, x] - 1)[:, None]) - np.log1p(leaks * (self.worst[i] - 1)[:, None])
        factors[:, 1 : 1 + len(CUTS)] = np.where((core & (self.least[i] > 0))[:, None], cuts, 0)
        factors[:, 1 + len(CUTS) :] = np.where(core[:, None], lean, 0)
        factors[outside(x, self.sets, i)] = self.outlier
        won: Floats = factors - self.fee
        return won


def edge_events(tokens: npt.ArrayLike, bets: TruncationBets, rows: npt.ArrayLike | None = None) -> Mask:
    """Events `[m, 2]` to compare with the engine's own output without speculation: (token beyond our kept set, not our last).

    An engine's own rounding moves its edge in both arms alike, so `paired_edges` needs no eta; more events with speculation
    on means a kept set that is too large (first) or too small (second).
    """
    x = np.asarray(tokens)
    i = np.arange(len(x)) if rows is None else np.asarray(rows)
    return np.stack([~bets.nominal[i, x], x != bets.last[i]], axis=1)


EDGE_SHARES = (0.55, 0.65, 0.75, 0.85, 0.95)
"""Alternatives of the paired edge events: last tokens are common in both arms, so a fault moves their balance only a little."""


def paired_edges() -> PairedEvents:
    """A fresh account of `edge_events`: arms of the same prompts, equally often on and off under the null.

    Its units must be independent: tokens of one prompt are not (a text that wanders to a flat context has many edge events in
    a row). Give it one token per prompt, or the `more_often` of whole prompts.
    """
    return PairedEvents(("beyond our kept set", "not its last token"), null_share=0.5, shares=EDGE_SHARES)


def more_often(on: Mask, on_prompts: npt.ArrayLike, off: Mask, off_prompts: npt.ArrayLike, number: int) -> tuple[Mask, Mask]:
    """Per prompt `[number, C]`: more events with speculation on than off, and the reverse; to be added to `paired_edges`.

    on, off: events `[n, C]` of each arm's tokens; on_prompts, off_prompts `[n]` name their prompts. If the arms have one law,
    swapping them changes nothing, so the two outcomes are equally likely in every prompt, however its tokens depend on each
    other.
    """
    counts = np.zeros((2, number, on.shape[1]))
    np.add.at(counts[0], np.asarray(on_prompts), on)
    np.add.at(counts[1], np.asarray(off_prompts), off)
    return counts[0] > counts[1], counts[1] > counts[0]


def assert_truncation_respected(tokens: npt.ArrayLike, bets: TruncationBets, false_fail_rate: float) -> float:
    """Raise AssertionError if tokens `[n]`, one per context of `bets`, prove another law or kept set; else return log e."""
    account = bets.mixture()
    account.add(bets.log_factors(tokens))
    if account.log_e >= log_threshold(false_fail_rate):
        raise AssertionError(
            f"{int(outside(tokens, bets.sets).sum())} of {account.n} tokens lie outside every kept set within eta = "
            f"{bets.sets.eta}; log10 e = {account.log_e / np.log(10):.1f}, held by the bet {account.strongest!r}"
        )
    return account.log_e


def samples_needed_against_truncation_fault(
    fault: npt.ArrayLike, bets: TruncationBets, false_fail_rate: float, false_pass_rate: float
) -> float:
    """Tokens after which an engine with laws `fault [n, V]` in the contexts of `bets` is missed at most this often."""
    laws = np.asarray(fault, float)
    n, V = laws.shape
    table = bets.log_factors(np.tile(np.arange(V), n), np.repeat(np.arange(n), V)).reshape(n, V, -1)
    weights = bets.mixture().weights
    return markov_samples(laws[:, None], table.transpose(0, 2, 1), weights, false_fail_rate, false_pass_rate)


def smallest_detectable_truncation_fault(
    n: int, fault: npt.ArrayLike, correct: npt.ArrayLike, bets: TruncationBets, false_fail_rate: float, false_pass_rate: float
) -> float:
    """The smallest share of tokens from `fault [n, V]` instead of `correct [n, V]` that n tokens catch; inf if none."""
    bad, good = np.asarray(fault, float), np.asarray(correct, float)

    def caught(share: float) -> bool:
        blend = (1 - share) * good + share * bad
        return n >= samples_needed_against_truncation_fault(blend, bets, false_fail_rate, false_pass_rate)

    return smallest_caught(caught)
