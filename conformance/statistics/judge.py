"""The judge of one mode: it scores each block of tokens once and hands the scores to the checks of the plan."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from conformance.statistics.bank import FaultBank, token_counts
from conformance.statistics.bank_checks import BankCheck, FamilyCheck, StrataCheck, after_rejection, bonus
from conformance.statistics.bets import STANDARD_BETS, Bet
from conformance.statistics.blocks import Segment, TokenBlock
from conformance.statistics.check import Check
from conformance.statistics.counted import Counted
from conformance.statistics.dependence import CrossRowCheck, LagCheck
from conformance.statistics.evidence import Evidence, Floats, Ints, WrongUse
from conformance.statistics.fixed_laws import FixedLaws
from conformance.statistics.fixed_n import ChiSquareCheck, KSCheck
from conformance.statistics.omnibus import OmnibusCheck
from conformance.statistics.plan import ModePlan
from conformance.statistics.scoring import score
from conformance.statistics.segments import SegmentCheck
from conformance.statistics.tolerance import worst_mean

OUTSIDE = ("acceptance", "draft law", "edges", "greedy")
"""Checks whose evidence reaches the ledger from elsewhere, as `Ledger.put`."""


class ModeJudge:
    """Holds the statistical checks of one mode; its memory does not grow with the number of tokens.

    ``observe``         adds a `TokenBlock`; blocks must come in the order of submission.
    ``observe_counts``  adds samples of one fixed pair of laws, as counts.
    ``evidence``        one `Evidence` per check of the plan that is held here.
    ``state``, ``load``, ``merge``  store, resume, and join the shard that follows.

    ``seed`` is the judge's own (PIT uniforms, null tables); it is recorded in the state, and each shard has another.
    ``bets`` are those that the plan seals; by default the standard ones among them.
    """

    def __init__(self, plan: ModePlan, seed: int, bets: Sequence[Bet] | None = None) -> None:
        if bets is None:
            bets = [bet for bet in STANDARD_BETS if bet.seal in plan.bets]
        given = tuple(bet.seal for bet in bets)
        if given != plan.bets:
            different = sorted(set(given) ^ set(plan.bets))
            raise WrongUse(f"the bets are not those sealed in the plan (they differ in {different}); seal them there first")
        self.plan, self.seed = plan, seed
        self.bank = FaultBank(bets, has_q=plan.has_q)
        held = _checks(plan, self.bank, seed)
        self.checks: dict[str, Check] = {name: held[name] for name in plan.checks if name not in OUTSIDE}
        self.tokens = 0
        self.impossible = 0
        self.first_request: int | None = None
        self._next: tuple[int, int] | None = None  # the next request and position that may come

    def observe(self, block: TokenBlock) -> None:
        """Add a block of tokens."""
        if self.plan.has_q and block.q is None:
            raise WrongUse(f"mode {self.plan.name!r} was planned with a draft or proxy law q; the block has none")
        self._keep_order(block)
        if not len(block):
            return
        rng = np.random.default_rng([self.seed, 0, self.first_request or 0, self.tokens])
        deflate = partial(_worst_mean, eta=self.plan.eta) if self.plan.eta else None
        scored = score(block, self.bank, rng, self.plan.ratio_rule, deflate)
        for check in self.checks.values():
            check.observe(scored)
        self.tokens += len(block)
        self.impossible += scored.impossible

    def observe_counts(self, laws: FixedLaws, counts: Ints) -> None:
        """Add independent samples from one fixed pair of laws, as counts ``[V]``."""
        if self.plan.eta:
            raise WrongUse("counts of a fixed pair of laws are judged exactly; with eta > 0 pass blocks of tokens")
        if laws.bank is not self.bank:
            raise WrongUse("prepare the laws with this judge's own bank: `judge.fixed_laws(p, q)`")
        counts = token_counts(counts, len(laws.p))
        rng = np.random.default_rng([self.seed, 4, self.first_request or 0, self.tokens])
        counted = Counted(laws, counts, int(counts.sum()), rng)
        for check in self.checks.values():
            check.observe_counts(counted)
        self.tokens += counted.n
        self.impossible += int(counts[laws.p == 0].sum())

    def fixed_laws(self, p: Floats, q: Floats | None = None) -> FixedLaws:
        """Prepare a fixed pair of laws ``[V]`` once, for `observe_counts`."""
        return FixedLaws(self.bank, p, q)

    def evidence(self) -> list[Evidence]:
        """The evidence of every check held here, and "support" where p is exact and an impossible token came out."""
        found = [check.evidence() for check in self.checks.values()]
        if self.plan.exact_p and self.impossible:
            found.append(Evidence("support", self.tokens, math.inf, holder=f"{self.impossible} tokens with p = 0"))
        return found

    def state(self) -> dict[str, Any]:
        """Everything needed to resume or merge, as plain JSON values."""
        return {
            "seed": self.seed,
            "tokens": self.tokens,
            "impossible": self.impossible,
            "first_request": self.first_request,
            "next": list(self._next) if self._next else None,
            "checks": {name: check.state() for name, check in self.checks.items()},
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Resume from a stored state."""
        if set(state["checks"]) != set(self.checks):
            raise WrongUse(f"the stored state holds checks {sorted(state['checks'])}, the plan {sorted(self.checks)}")
        self.seed, self.tokens, self.impossible = state["seed"], state["tokens"], state["impossible"]
        self.first_request = state["first_request"]
        self._next = tuple(state["next"]) if state["next"] else None
        for name, check in self.checks.items():
            check.load(state["checks"][name])

    def merge(self, later: ModeJudge) -> None:
        """Add the shard that follows in the order of submission. Counts and log wealth add; e-values never do."""
        if later.plan != self.plan:
            raise WrongUse("shards of different plans cannot be merged")
        if later.seed == self.seed:
            raise WrongUse(f"both shards were judged with seed {self.seed}; give each shard a seed of its own")
        if self._next is not None and later.first_request is not None and later.first_request != self._next[0]:
            raise WrongUse(
                f"the shard begins with request {later.first_request}, but request {self._next[0]} comes next; "
                "merge shards in the order of submission, never of completion"
            )
        for name, check in self.checks.items():
            check.merge(later.checks[name])
        self.tokens += later.tokens
        self.impossible += later.impossible
        self.first_request = later.first_request if self.first_request is None else self.first_request
        self._next = later._next or self._next

    def _keep_order(self, block: TokenBlock) -> None:
        first, last = block.first_request, block.last_request
        if first is None or last is None:
            return
        if self._next is None:
            self.first_request = first
            if len(block) and block.position[0] != 0:
                raise WrongUse("the first block begins in the middle of a request; requests enter from position 0")
        else:
            request, position = self._next
            goes_on = first == request - 1 and len(block) and block.position[0] == position
            if not goes_on and (first != request or (len(block) and block.position[0] != 0)):
                raise WrongUse(
                    f"a block that begins with request {first} cannot follow request {request - 1} at position "
                    f"{position - 1}; requests enter in the order of submission, as the longest prefix of finished ones"
                )
        position = int(block.position[-1]) + 1 if len(block) and block.request[-1] == last else 0
        self._next = (last + 1, position)


def _worst_mean(p: Floats, bet: Floats, eta: float) -> Floats:
    return worst_mean(p, bet, eta)


def _checks(plan: ModePlan, bank: FaultBank, seed: int) -> dict[str, Check]:
    """Every check that a judge can hold, by name."""
    known: list[Check] = [
        BankCheck(bank),
        OmnibusCheck(plan.has_q),
        FamilyCheck(bank, "likelihood", "temperature"),
        SegmentCheck(Segment.ACCEPTED),
        SegmentCheck(Segment.RESIDUAL),
        StrataCheck(bank, "bonus", 1, bonus),
        StrataCheck(bank, "after a rejection", 1, after_rejection),
        StrataCheck(bank, "slot", plan.k + 1, lambda block: block.slot),
        StrataCheck(bank, "row", plan.rows, lambda block: block.row),
        StrataCheck(bank, "context", plan.contexts, lambda block: block.context),
        StrataCheck(bank, "shard", plan.shards, lambda block: block.request // plan.requests_per_shard),
        LagCheck(plan.has_q, plan.k + 1),
        CrossRowCheck(plan.has_q, plan.rows),
        ChiSquareCheck(plan.registered_n, plan.has_q, seed),
        KSCheck(plan.registered_n, plan.has_q, seed),
    ]
    return {check.name: check for check in known}
