"""The ledger: all evidence of one run, and the one verdict with one false-alarm rate.

    E_run = sum_m v_m sum_c w_mc E_mc          (weights sealed in the plan, before the data)

The run fails if and only if ``E_run >= 1 / alpha`` at any look. The weighted arithmetic mean is the only admissible
way to merge dependent e-values, and it needs nothing about how the checks depend on each other. A failure is final.
The evidence of a re-run on fresh samples multiplies, so that every run is carried and retrying launders nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from conformance.statistics.bets import Bet
from conformance.statistics.blocks import TokenBlock
from conformance.statistics.evidence import Evidence, WrongUse
from conformance.statistics.judge import OUTSIDE, ModeJudge
from conformance.statistics.plan import Plan


@dataclass(frozen=True)
class Named:
    """A mode or a check with its share of the verdict, as named after a failure."""

    mode: str
    check: str
    log10_e: float
    holder: str
    rejected: bool
    """True if e-Holm rejects it at alpha; False if it only holds the largest share."""


@dataclass(frozen=True)
class Verdict:
    """One look at the ledger. ``failed`` stays true once it was."""

    failed: bool
    log10_e: float
    alpha: float
    looks: int
    modes: dict[str, float]
    """log10 E of each mode, after carried runs."""
    named: tuple[Named, ...]
    """After a failure: what e-Holm names, over modes and then checks (at least the largest share)."""
    complete: bool
    """True once every mode has reached its registered n; a look before can only ever prove a failure."""


class Ledger:
    """Holds a judge for each mode of a sealed plan, and the evidence of checks that run elsewhere.

    ``run`` names the samples (an evidence folder, a seed): evidence of the same samples is never multiplied.
    ``seed`` is the judge's own; shards of one run have one seed each. ``bets``: those that the plan seals (see `ModeJudge`).
    """

    def __init__(self, plan: Plan, run: str, seed: int, bets: Sequence[Bet] | None = None) -> None:
        self.plan, self.runs, self.seed = plan, [run], seed
        self._digest = plan.digest
        self.judges = {mode.name: ModeJudge(mode, seed * 1009 + i, bets) for i, mode in enumerate(plan.modes)}
        self._outside: dict[str, dict[str, Evidence]] = {mode.name: {} for mode in plan.modes}
        self._carried_run = 0.0
        self._worst = -math.inf
        self._looks = 0

    def observe(self, mode: str, block: TokenBlock) -> None:
        """Add a block of tokens to one mode, in the order of submission."""
        self._sealed()
        self.judges[self.plan[mode].name].observe(block)

    def put(self, mode: str, evidence: Evidence) -> None:
        """Set the current evidence of a check that runs elsewhere (acceptance, draft law, edges, greedy)."""
        self._sealed()
        if evidence.check not in self.plan[mode].checks or evidence.check not in OUTSIDE:
            raise WrongUse(
                f"check {evidence.check!r} has no weight of its own in mode {mode!r}; weights are sealed before the "
                f"data. Name it in `outside` of the plan (known: {', '.join(OUTSIDE)})"
            )
        before = self._outside[mode].get(evidence.check)
        if before is not None and evidence.n < before.n:
            raise WrongUse(f"evidence of {evidence.check!r} went back from n = {before.n} to {evidence.n}")
        self._outside[mode][evidence.check] = evidence

    def evidence(self, mode: str) -> list[Evidence]:
        """All evidence of one mode."""
        return [*self.judges[self.plan[mode].name].evidence(), *self._outside[mode].values()]

    def look(self) -> Verdict:
        """Look at the evidence; as often as wanted, at any time."""
        self._sealed()
        evidence = {mode.name: {e.check: e for e in self.evidence(mode.name)} for mode in self.plan.modes}
        modes = {name: self._mode_log_e(name, found) for name, found in evidence.items()}
        run = _weighted([(mode.weight, modes[mode.name]) for mode in self.plan.modes]) + self._carried_run
        self._worst = max(self._worst, run)
        self._looks += 1
        failed = self._worst >= -math.log(self.plan.alpha)
        return Verdict(
            failed=failed,
            log10_e=run / math.log(10),
            alpha=self.plan.alpha,
            looks=self._looks,
            modes={name: value / math.log(10) for name, value in modes.items()},
            named=self._name(evidence, modes) if failed else (),
            complete=all(self.judges[mode.name].tokens >= mode.registered_n for mode in self.plan.modes),
        )

    def merge(self, later: Ledger) -> None:
        """Add the shard of the same run that follows: counts and log wealth add, evidence from elsewhere may not."""
        self._sealed()
        if later.plan.digest != self._digest:
            raise WrongUse("ledgers of different plans cannot be merged")
        if later.runs != self.runs:
            raise WrongUse(f"shards belong to one run, not to {self.runs} and {later.runs}; carry a re-run with `carry`")
        if any(later._outside.values()) or any(self._outside.values()):
            raise WrongUse("merge the checks that ran elsewhere first and `put` their evidence once, after the merge")
        for name, judge in self.judges.items():
            judge.merge(later.judges[name])

    def carry(self, previous: Ledger) -> None:
        """Carry the evidence of an earlier run on other samples: E of the run becomes E1 x E2, and so for each check."""
        self._sealed()
        if previous.plan.digest != self._digest:
            raise WrongUse("evidence is carried between runs of one plan only")
        if set(previous.runs) & set(self.runs):
            shared = sorted(set(previous.runs) & set(self.runs))
            raise WrongUse(f"runs {shared} are in both ledgers: evidence from the same samples is never multiplied")
        verdict = previous.look()
        self.runs = [*previous.runs, *self.runs]
        self._carried_run += verdict.log10_e * math.log(10)
        self._worst = max(self._worst, previous._worst)

    def state(self) -> dict[str, Any]:
        """The ledger as plain JSON values, with its plan and seal."""
        return {
            "plan": json.loads(self.plan.to_json()),
            "digest": self._digest,
            "runs": self.runs,
            "seed": self.seed,
            "judges": {name: judge.state() for name, judge in self.judges.items()},
            "outside": {m: {c: _plain(e) for c, e in found.items()} for m, found in self._outside.items()},
            "carried": self._carried_run,
            "worst": self._worst if math.isfinite(self._worst) else None,
            "looks": self._looks,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any], bets: Sequence[Bet] | None = None) -> Ledger:
        """Resume from a stored state; raises if the plan is not the one that was sealed."""
        plan = Plan.from_json(json.dumps(state["plan"]))
        if plan.digest != state["digest"]:
            raise WrongUse("the stored plan was changed after it was sealed; its evidence proves nothing")
        ledger = cls(plan, state["runs"][-1], state["seed"], bets)
        ledger.runs = list(state["runs"])
        for name, stored in state["judges"].items():
            ledger.judges[name].load(stored)
        ledger._outside = {m: {c: Evidence(**e) for c, e in found.items()} for m, found in state["outside"].items()}
        ledger._carried_run, ledger._looks = state["carried"], state["looks"]
        ledger._worst = -math.inf if state["worst"] is None else state["worst"]
        return ledger

    def _mode_log_e(self, mode: str, evidence: dict[str, Evidence]) -> float:
        # A planned check that has not spoken yet counts 0, which can only make a failure harder.
        terms = [(weight, evidence[c].log_e if c in evidence else -math.inf) for c, weight in self.plan[mode].checks.items()]
        if "support" in evidence:
            return math.inf
        return _weighted(terms)

    def _name(self, evidence: dict[str, dict[str, Evidence]], modes: dict[str, float]) -> tuple[Named, ...]:
        """e-Holm over modes, then over the checks of each rejected mode; the largest share if it names none."""
        named: list[Named] = []
        for mode in e_holm(modes, self.plan.alpha):
            logs = {check: e.log_e for check, e in evidence[mode].items()}
            for check in e_holm(logs, self.plan.alpha):
                found = evidence[mode][check]
                named.append(Named(mode, check, found.log10_e, found.holder, True))
        if named:
            return tuple(named)
        shares = [
            (math.log(mode.weight * mode.checks.get(check, 1.0)) + found.log_e, mode.name, found)
            for mode in self.plan.modes
            for check, found in evidence[mode.name].items()
        ]
        _, mode_name, found = max(shares, key=lambda share: share[0])
        return (Named(mode_name, found.check, found.log10_e, found.holder, False),)

    def _sealed(self) -> None:
        if self.plan.digest != self._digest:
            raise WrongUse("the plan was changed after it was sealed; weights are fixed before the data")


def e_holm(log_e: dict[str, float], alpha: float) -> list[str]:
    """Names rejected at familywise error ``alpha`` under any dependence, largest evidence first (Vovk and Wang 2021).

    Closed testing with the arithmetic mean: a hypothesis is rejected if the mean over every set that contains it is at
    least 1 / alpha. The worst set of a given size takes the smallest other e-values.

    >>> e_holm({"a": math.log(1e9), "b": math.log(2.0), "c": math.log(0.5)}, 1e-6)
    ['a']
    """
    order = sorted(log_e, key=lambda name: -log_e[name])
    rejected: list[str] = []
    for name in order:
        smaller = sorted(log_e[other] for other in order if other != name and log_e[other] <= log_e[name])
        values = [log_e[name], *smaller]
        worst = min(_weighted([(1 / (i + 1), v) for v in values[: i + 1]]) for i in range(len(values)))
        if worst < -math.log(alpha):
            break
        rejected.append(name)
    return rejected


def _weighted(terms: list[tuple[float, float]]) -> float:
    """``log(sum w exp(v))`` over (weight, log value)."""
    top = max(value for _, value in terms)
    if math.isinf(top):
        return top
    return top + math.log(sum(weight * math.exp(value - top) for weight, value in terms))


def _plain(evidence: Evidence) -> dict[str, Any]:
    return dict(evidence.__dict__)
