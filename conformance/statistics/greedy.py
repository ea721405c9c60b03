"""Temperature 0: when is a token that is not the reference's argmax a fault, and when a near-tie?

In float32 and float64 a hard margin decides: a token whose logit lies below the top by more than 4 times the largest
difference between two non-speculative configurations is wrong. The margin has a cap and is no dial: above the cap it is
refused.

In bfloat16 and float16 no such margin exists. The largest of 10,000 differences does not bound a million, one rounding step
at logits of 16 to 32 is already .125, and rare jumps (expert routing) are lawful. There **no single token convicts**. The same
prompts run with speculation on and off, and per prompt one asks: which arm is the first to emit a token whose gap to the
reference's top exceeds c? If speculation at most doubles the odds of such a token at every position, "on first" has
probability at most 2/3 among the prompts that decide it, whatever the noise; the e-value bets on more.

(Asking instead whether a prompt holds *any* such token accuses a lawful engine where these tokens are common: twice the
flips then fill nearly all prompts, and 95% of the discordant ones are "on only"; under heavy-tailed noise 165 of 200 lawful
runs raised an alarm at 1e-6. The first one decides; what follows it, and may depend on it, is not looked at.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from conformance.statistics.bounds import markov_samples, smallest_caught
from conformance.statistics.evidence import Evidence, Floats, Ints, WrongUse, log_mean_exp
from conformance.statistics.tolerance import Tolerance
from conformance.statistics.wealth import log_threshold

MARGIN_CAPS = {"float32": 1e-3, "float64": 1e-9}
MARGIN_FACTOR = 4
MARGIN_POSITIONS = 10_000

GAPS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""The gaps c (in logits) above which a token counts."""
SHARES = (0.75, 0.9, 0.99)
"""The alternatives bet on: the share of decided prompts in which the arm with speculation is first."""
NULL_SHARE = 2 / 3
"""Speculation may lawfully double the odds of a flip: its windows have other shapes."""


@dataclass(frozen=True)
class Margin:
    """A gap to the top logit that no lawful configuration explains, with where it came from."""

    value: float
    dtype: str
    positions: int


def hard_margin(measured: Tolerance, dtype: str) -> Margin:
    """The margin of GREEDY in `dtype` from a measured tolerance, or WrongUse if this engine cannot be judged token by token.

    >>> hard_margin(Tolerance(eta=2e-5, sigma=1e-5, tau=1e-5, positions=10_000), "float32").value
    8e-05
    >>> hard_margin(Tolerance(eta=.1, sigma=.02, tau=.01, positions=10_000), "bfloat16")
    Traceback (most recent call last):
    conformance.statistics.evidence.WrongUse: no margin convicts in bfloat16: compare paired prompts
    """
    if dtype not in MARGIN_CAPS:
        raise WrongUse(f"no margin convicts in {dtype}: compare paired prompts")
    if measured.positions < MARGIN_POSITIONS:
        raise WrongUse(f"a margin needs {MARGIN_POSITIONS} positions without speculation, got {measured.positions}")
    value = MARGIN_FACTOR * measured.eta
    if value > MARGIN_CAPS[dtype]:
        raise WrongUse(
            f"4 times the largest difference is {value:.2g}, above the cap of {MARGIN_CAPS[dtype]:g} for {dtype}: "
            "compare paired prompts instead"
        )
    return Margin(value, dtype, measured.positions)


def gaps_to_top(tokens: npt.ArrayLike, logits: npt.ArrayLike) -> Floats:
    """How far each emitted token's logit lies below its row's largest.

    tokens `[n]`; logits `[n, V]`, the reference's, given the engine's own history.

    >>> gaps_to_top([1, 0], [[3., 2.5], [3., 2.5]]).tolist()
    [0.5, 0.0]
    """
    x, values = np.asarray(tokens), np.asarray(logits, float)
    if values.ndim != 2 or x.shape != values.shape[:1] or np.isnan(values).any():
        raise WrongUse(f"tokens [n] and logits [n, V] without NaN are needed, got {x.shape} and {values.shape}")
    gaps: Floats = values.max(axis=1) - values[np.arange(len(x)), x]
    return gaps


def assert_greedy(tokens: npt.ArrayLike, logits: npt.ArrayLike, margin: Margin) -> None:
    """Raise AssertionError at the first token whose gap to the top exceeds the margin (deterministic: one token convicts)."""
    gaps = gaps_to_top(tokens, logits)
    wrong = np.flatnonzero(gaps > margin.value)
    if len(wrong):
        raise AssertionError(
            f"{len(wrong)} of {len(gaps)} tokens are not the reference's argmax; the first, at {wrong[0]}, lies "
            f"{gaps[wrong[0]]:.3g} below the top (margin {margin.value:.2g}, from {margin.positions} positions)"
        )


@dataclass
class PairedEvents:
    """Discordant pairs of C kinds of event, and the e-value that they come too often with speculation on.

    A unit (a prompt, or a token of one) is run with speculation on and off. Under the null a discordant unit is "on
    only" with probability at most `null_share`. e = mean over kinds and over theta in `shares` above it of

        (theta / null_share)^on_only * ((1 - theta) / (1 - null_share))^off_only

    Units must be independent given which prompts were run; counts add over shards.

    >>> pairs = PairedEvents(("gap > 1",), null_share=.5, shares=(.75,))
    >>> pairs.add(np.array([[True], [True], [False]]), np.array([[False], [True], [False]]))
    >>> float(np.exp(pairs.log_e))
    1.5
    """

    names: tuple[str, ...]
    null_share: float = NULL_SHARE
    shares: tuple[float, ...] = SHARES
    units: int = 0
    on_only: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    off_only: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def __post_init__(self) -> None:
        if not 0 < self.null_share < min(self.shares) or max(self.shares) >= 1:
            raise WrongUse(f"shares bet on must lie between null_share and 1: {self.shares} against {self.null_share}")
        if not len(self.on_only):
            self.on_only, self.off_only = np.zeros((2, len(self.names)), np.int64)

    def add(self, on: npt.NDArray[np.bool_], off: npt.NDArray[np.bool_]) -> None:
        """Count events `[units, C]` of the two arms; row i of both is the same unit."""
        if on.shape != off.shape or on.ndim != 2 or on.shape[1] != len(self.names):
            raise WrongUse(f"both arms must be [units, {len(self.names)}], got {on.shape} and {off.shape}")
        self.on_only = self.on_only + (on & ~off).sum(axis=0)
        self.off_only = self.off_only + (off & ~on).sum(axis=0)
        self.units += len(on)

    def merge(self, other: PairedEvents) -> None:
        """Take in another shard of the same plan."""
        if (self.names, self.null_share, self.shares) != (other.names, other.null_share, other.shares):
            raise WrongUse("only paired counts of the same plan merge")
        self.on_only, self.off_only = self.on_only + other.on_only, self.off_only + other.off_only
        self.units += other.units

    @property
    def log_wealth(self) -> Floats:
        """The log wealth of each kind and share, `[C, shares]`."""
        won, lost = paired_log_bets(self.null_share, self.shares)
        return np.outer(self.on_only, won) + np.outer(self.off_only, lost)

    @property
    def log_e(self) -> float:
        """The logarithm of the e-value."""
        return log_mean_exp(self.log_wealth)

    def evidence(self, check: str, unit: str = "prompts") -> Evidence:
        """What the ledger takes in; the holder is the kind of event that holds the largest wealth."""
        kind = int(self.log_wealth.max(axis=1).argmax())
        return Evidence(check=check, n=self.units, log_e=self.log_e, holder=self.names[kind], unit=unit)


def paired_log_bets(null_share: float, shares: Sequence[float]) -> tuple[Floats, Floats]:
    """Log factors of an "on only" and of an "off only" unit, `[shares]` each."""
    theta = np.asarray(shares)
    return np.log(theta / null_share), np.log((1 - theta) / (1 - null_share))


def paired_greedy() -> PairedEvents:
    """A fresh account of GREEDY in low precision: one kind of event per gap in `GAPS`."""
    return PairedEvents(tuple(f"gap > {gap:g}" for gap in GAPS))


def first_gaps(gaps: npt.ArrayLike, prompts: npt.ArrayLike, number: int) -> Floats:
    """Where prompt i of one arm has its first token with a gap above c, `[number, 5]`, counted from 0; inf if nowhere.

    gaps, prompts `[n]`, one per token, each prompt's tokens in order.

    >>> first_gaps([.1, .6, 3., 0.], [0, 0, 1, 1], 2).tolist()
    [[1.0, 1.0, inf, inf, inf], [0.0, 0.0, 0.0, 0.0, inf]]
    """
    size, owner = np.asarray(gaps, float), np.asarray(prompts)
    order = np.arange(len(owner)) if (owner[1:] >= owner[:-1]).all() else np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=number)
    starts = np.cumsum(counts) - counts
    gross = np.flatnonzero(size[order] > GAPS[0])  # few: only these are looked at further
    size, owner = size[order[gross]], owner[order[gross]]
    first = np.full((number, len(GAPS)), np.inf)
    for kind, gap in enumerate(GAPS):
        above = size > gap
        np.minimum.at(first[:, kind], owner[above], (gross - starts[owner])[above])
    return first


def earlier(on: Floats, off: Floats) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Events for `PairedEvents.add` from both arms' `first_gaps`: speculation on was first, off was first."""
    return on < off, off < on


def assert_greedy_paired(on: Floats, off: Floats, false_fail_rate: float) -> float:
    """Raise AssertionError if speculation more than doubles the odds of a gross gap; else return log e.

    on, off `[P, 5]`: the `first_gaps` of the two arms; row i of both is the same prompt.
    """
    account = paired_greedy()
    account.add(*earlier(on, off))
    if account.log_e >= log_threshold(false_fail_rate):
        found = account.evidence("greedy")
        raise AssertionError(
            f"with speculation on, tokens far below the reference's top come earlier: on first in {account.on_only.tolist()}, "
            f"off first in {account.off_only.tolist()} of {len(on)} prompts, for gaps above {GAPS}; "
            f"log10 e = {found.log10_e:.1f}"
        )
    return account.log_e


def units_needed(
    on_only: npt.ArrayLike, off_only: npt.ArrayLike, plan: PairedEvents, false_fail_rate: float, false_pass_rate: float
) -> float:
    """Units after which events of probability on_only and off_only `[C]` per unit are missed at most this often.

    `plan` holds the kinds, null share and shares (its counts are not read).
    """
    one, other = np.asarray(on_only, float), np.asarray(off_only, float)
    laws = np.stack([one, other, 1 - one - other], axis=1)  # [C, 3]
    won, lost = paired_log_bets(plan.null_share, plan.shares)
    bets = np.stack([won, lost, np.zeros(len(won))], axis=1)
    pairs = np.repeat(laws, len(won), axis=0)[None]
    weights = np.full(len(pairs[0]), 1 / len(pairs[0]))
    return markov_samples(pairs, np.tile(bets, (len(laws), 1))[None], weights, false_fail_rate, false_pass_rate)


def prompts_needed_for_wrong_tokens(
    rate: float,
    tokens: int,
    flips: npt.ArrayLike,
    false_fail_rate: float,
    false_pass_rate: float,
    far: npt.ArrayLike = (0.9, 0.8, 0.7, 0.5, 0.25),
) -> float:
    """Prompts per arm after which wrong tokens at `rate` per token are missed with at most this probability.

    tokens: per prompt. flips `[5]`: lawful probability per token of a gap above each c in `GAPS`, the same in both arms.
    far `[5]`: the share of wrong tokens whose gap exceeds each c.
    """
    off = np.asarray(flips, float)
    on = 1 - (1 - off) * (1 - rate * np.asarray(far, float))
    neither = (1 - on) * (1 - off)
    decided = (1 - neither**tokens) / (1 - neither)
    return units_needed(on * (1 - off) * decided, off * (1 - on) * decided, paired_greedy(), false_fail_rate, false_pass_rate)


def smallest_detectable_wrong_token_rate(
    prompts: int, tokens: int, flips: npt.ArrayLike, false_fail_rate: float, false_pass_rate: float
) -> float:
    """The smallest rate of wrong tokens that `prompts` of `tokens` each catch; inf if none is. flips as above.

    Searched up to one wrong token per prompt: beyond it all prompts hold one and a longer prompt teaches nothing.
    """

    def caught(rate: float) -> bool:
        return prompts >= prompts_needed_for_wrong_tokens(rate, tokens, flips, false_fail_rate, false_pass_rate)

    return smallest_caught(caught, largest=min(1.0, 1 / tokens))
