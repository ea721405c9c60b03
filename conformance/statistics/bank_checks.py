"""Checks that are views of the fault bank: the whole, one family of bets, and strata judged alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from conformance.statistics.bank import FaultBank
from conformance.statistics.blocks import Segment, TokenBlock
from conformance.statistics.check import Check
from conformance.statistics.evidence import Evidence, Ints, log_mean_exp
from conformance.statistics.scoring import Scored

if TYPE_CHECKING:
    from conformance.statistics.counted import Counted


class BankCheck(Check):
    """The fault bank over all tokens and contexts of the mode."""

    def __init__(self, bank: FaultBank) -> None:
        self.name, self.bank = "bank", bank
        self.sums = {"log_wealth": np.zeros(len(bank)), "n": np.zeros(1, np.int64)}

    def observe(self, scored: Scored) -> None:
        """Add each bet's log wealth."""
        self.sums["log_wealth"] += scored.log_bets.sum(axis=0)
        self.sums["n"] += len(scored.block)

    def observe_counts(self, counted: Counted) -> None:
        """Add each bet's log wealth."""
        self.sums["log_wealth"] += counted.log_wealth
        self.sums["n"] += counted.n

    def evidence(self) -> Evidence:
        """The mixture over bets."""
        return self.bank.evidence(self.sums["log_wealth"], int(self.sums["n"][0]), self.name)


class FamilyCheck(BankCheck):
    """One family of the bank alone: the temperature tilts are the martingale of the likelihood.

    ``ln p(x) - sum p ln p`` summed over tokens has mean 0; its exponential martingale with the exact normaliser of
    every row is the wealth of a bet on another temperature.
    """

    def __init__(self, bank: FaultBank, name: str, family: str) -> None:
        super().__init__(bank)
        self.name, self.columns = name, bank.family(family)

    def evidence(self) -> Evidence:
        """The mixture over the bets of the family, in equal parts."""
        wealth = self.sums["log_wealth"][self.columns]
        holder = self.bank.names[self.columns[int(np.argmax(wealth))]] if len(wealth) else ""
        log_e = log_mean_exp(wealth) if len(wealth) else 0.0
        return Evidence(self.name, int(self.sums["n"][0]), log_e, holder=holder)


class StrataCheck(Check):
    """The bank on each stratum of tokens alone, the mean taken over strata.

    A stratum must be **predictable**: whether a token belongs to it is settled before the token is drawn. Slots, rows,
    contexts, shards, bonus tokens and tokens after a rejection are; accepted tokens are not (see `segments`).
    """

    def __init__(self, bank: FaultBank, name: str, strata: int, label: Callable[[TokenBlock], Ints | None]) -> None:
        self.name, self.bank, self.strata, self.label = name, bank, strata, label
        self.sums = {"log_wealth": np.zeros((strata, len(bank))), "n": np.zeros(strata, np.int64)}

    def observe(self, scored: Scored) -> None:
        """Add log wealth by stratum; tokens labelled -1 belong to none, large labels to the last."""
        label = self.label(scored.block)
        if label is None:
            return
        label = np.minimum(label, self.strata - 1)
        # A product with the one-hot labels: one pass, where np.add.at would take a hundred times as long.
        member = (label == np.arange(self.strata)[:, None]).astype(np.float64)
        self.sums["log_wealth"] += member @ scored.log_bets
        self.sums["n"] += np.bincount(label[label >= 0], minlength=self.strata)

    def evidence(self) -> Evidence:
        """The mean over strata of each one's mixture over bets."""
        prior = np.exp(self.bank.log_prior)
        each = np.array([log_mean_exp(wealth, prior) for wealth in self.sums["log_wealth"]])
        worst = int(np.argmax(each))
        bet = self.bank.names[int(np.argmax(self.bank.log_prior + self.sums["log_wealth"][worst]))]
        detail = {"log10_e": (each / np.log(10)).tolist(), "n": self.sums["n"].tolist()}
        holder = f"{self.name} {worst}: {bet}" if self.strata > 1 else bet
        return Evidence(self.name, int(self.sums["n"].sum()), log_mean_exp(each), holder=holder, detail=detail)


def bonus(block: TokenBlock) -> Ints | None:
    """Stratum 0: bonus tokens. That all drafts were accepted is known before the bonus token is drawn."""
    return None if block.segment is None else np.where(block.segment == Segment.BONUS, 0, -1)


def after_rejection(block: TokenBlock) -> Ints | None:
    """Stratum 0: tokens whose predecessor in the same request replaced a rejected draft."""
    if block.segment is None:
        return None
    label = np.full(len(block), -1, dtype=np.int64)
    same = block.request[1:] == block.request[:-1]
    label[1:][same & (block.segment[:-1] == Segment.RESIDUAL)] = 0
    return label
