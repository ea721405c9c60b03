"""The sealed plan of a run: its modes, the checks of each and their weights, fixed before the first token is sampled.

A mode is a way of speculating that gets a verdict of its own. The weights of the modes sum to 1, and so do the weights
of the checks within a mode; weights of checks that do not apply go to the fault bank. `Plan.digest` seals all of it:
evidence gathered under another digest is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from conformance.statistics.bets import seals
from conformance.statistics.evidence import WrongUse, false_alarm_rate

BANK = "bank"
STREAM_CHECKS = (
    "accepted",
    "residual",
    "bonus",
    "after a rejection",
    "slot",
    "row",
    "lag",
    "cross-row",
    "likelihood",
    "acceptance",
    "draft law",
    "edges",
    "greedy",
)
GROUPS: Mapping[str, tuple[float, tuple[str, ...]]] = {
    "bank": (0.60, (BANK,)),
    "omnibus": (0.15, ("omnibus",)),
    "streams": (0.15, STREAM_CHECKS),
    "alone": (0.07, ("context", "shard")),
    "fixed n": (0.03, ("chi-square", "ks")),
}
"""Weight of each group of checks within a mode; a group's weight is shared equally."""

EXACT_LAW_ONLY = {"omnibus", "accepted", "residual", "lag", "cross-row", "chi-square", "ks"}
"""Checks of the PIT: they hold for the law p itself, not for every law near it."""


def standard_weights(applies: Iterable[str]) -> dict[str, float]:
    """Weights of the checks that apply in a mode. What does not apply adds its weight to the bank.

    >>> weights = standard_weights({"bank", "omnibus", "likelihood", "chi-square", "ks"})
    >>> {name: round(weight, 4) for name, weight in weights.items()}
    {'bank': 0.8085, 'omnibus': 0.15, 'likelihood': 0.0115, 'chi-square': 0.015, 'ks': 0.015}
    """
    wanted = set(applies)
    known = {name for _, names in GROUPS.values() for name in names}
    if wanted - known:
        raise WrongUse(f"unknown checks {sorted(wanted - known)}; the plan knows {sorted(known)}")
    if BANK not in wanted:
        raise WrongUse("the fault bank belongs to every mode: it takes over the weights of checks that do not apply")
    weights = {
        name: total / len(names) for total, names in GROUPS.values() for name in names if name in wanted and name != BANK
    }
    return {BANK: 1.0 - sum(weights.values()), **weights}


@dataclass(frozen=True)
class ModePlan:
    """What is judged in one mode.

    ``weight``         v_m, the mode's share of the verdict.
    ``checks``         weight of each check within the mode; they sum to 1.
    ``registered_n``   the number of tokens, in the order of submission, at which chi-square and KS are read, once.
    ``k``              draft tokens per round; dependence is looked for over lags 1 to k + 1.
    ``has_q``          a draft or proxy law comes with every token.
    ``ratio_rule``     the verifier declares the ratio rule and q is the very law drafts are drawn from: then accepted
                       and replaced tokens have laws of their own.
    ``exact_p``        p is the law that the engine was given, so a token with p = 0 is a violation outright; False
                       where p was computed again and may differ at the edge of a truncation.
    ``rows``           batch rows that are told apart; ``contexts`` likewise.
    ``shards``         number of shards judged alone, each of ``requests_per_shard`` requests (the last takes the rest).
    ``eta``            errors of our logits that count as correct, wherever p is computed again in a fixed context: every
                       bet is divided by its exact worst mean, and checks of the exact law are left out.
    ``bets``           the seals of the fault bank's bets (`Bet.seal`): their names, sizes and weights.
    """

    name: str
    weight: float
    checks: Mapping[str, float]
    registered_n: int
    k: int = 4
    has_q: bool = True
    ratio_rule: bool = False
    exact_p: bool = False
    rows: int = 8
    contexts: int = 1
    shards: int = 8
    requests_per_shard: int = 64
    eta: float = 0.0
    bets: tuple[str, ...] = seals()

    def __post_init__(self) -> None:
        if not 0 < self.weight <= 1:
            raise WrongUse(f"mode {self.name!r} has weight {self.weight}; it must lie in (0, 1]")
        _must_sum_to_one(f"the checks of mode {self.name!r}", self.checks)
        if self.registered_n < 1:
            raise WrongUse(f"mode {self.name!r} registers n = {self.registered_n}; at least one token is needed")
        for name in ("k", "rows", "contexts", "shards", "requests_per_shard"):
            if getattr(self, name) < 1:
                raise WrongUse(f"mode {self.name!r} has {name} = {getattr(self, name)}; it must be at least 1")
        if self.ratio_rule and not self.has_q:
            raise WrongUse(f"mode {self.name!r} declares the ratio rule without q; accepted tokens then have no law")
        if self.eta < 0 or (self.eta > 0 and set(self.checks) & EXACT_LAW_ONLY):
            raise WrongUse(
                f"mode {self.name!r} has eta = {self.eta} and checks {sorted(set(self.checks) & EXACT_LAW_ONLY)}, which "
                "take p at its word; use eta = 0, or leave them out (`ModePlan.standard` does)"
            )
        object.__setattr__(self, "checks", dict(self.checks))

    @classmethod
    def standard(
        cls, name: str, registered_n: int, *, weight: float = 1.0, outside: Iterable[str] = (), **settings: Any
    ) -> ModePlan:
        """The plan of statistics section 6 for what this mode exposes.

        ``outside`` names checks whose evidence comes from elsewhere (acceptance, draft law, edges, greedy).
        ``settings`` are those of `ModePlan`; ``segments``, ``slots``, ``batch`` (all True by default) say whether
        blocks will carry segment codes, slots and batch rows.
        """
        segments, slots, batch = (settings.pop(key, True) for key in ("segments", "slots", "batch"))
        applies = {BANK, "omnibus", "likelihood", "lag", "shard", "chi-square", "ks", *outside}
        applies |= {"bonus", "after a rejection"} if segments else set()
        applies |= {"accepted", "residual"} if segments and settings.get("ratio_rule") else set()
        applies |= {"slot"} if slots else set()
        applies |= {"row", "cross-row"} if batch else set()
        applies |= {"context"} if settings.get("contexts", 1) > 1 else set()
        applies -= EXACT_LAW_ONLY if settings.get("eta") else set()
        return cls(name, weight, standard_weights(applies), registered_n, **settings)


@dataclass(frozen=True)
class Plan:
    """The modes of one run and the run's false-alarm rate ``alpha``.

    >>> plan = Plan((ModePlan.standard("sampling", 50_000),), alpha=1e-6)
    >>> Plan.from_json(plan.to_json()).digest == plan.digest
    True
    """

    modes: tuple[ModePlan, ...]
    alpha: float = 1e-6

    def __post_init__(self) -> None:
        false_alarm_rate(self.alpha)
        if len({mode.name for mode in self.modes}) != len(self.modes):
            raise WrongUse("two modes of the plan share a name")
        _must_sum_to_one("the modes of the plan", {mode.name: mode.weight for mode in self.modes})

    def __getitem__(self, mode: str) -> ModePlan:
        """The plan of one mode."""
        for plan in self.modes:
            if plan.name == mode:
                return plan
        raise WrongUse(f"the plan has no mode {mode!r}; it has {[plan.name for plan in self.modes]}")

    def to_json(self) -> str:
        """The plan as canonical JSON: what the digest covers."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read a plan back."""
        data = json.loads(text)
        modes = tuple(ModePlan(**{**mode, "bets": tuple(mode["bets"])}) for mode in data["modes"])
        return cls(modes, data["alpha"])

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON: the seal."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def _must_sum_to_one(what: str, weights: Mapping[str, float]) -> None:
    if not weights or any(weight <= 0 for weight in weights.values()) or abs(sum(weights.values()) - 1) > 1e-9:
        raise WrongUse(f"the weights of {what} must be positive and sum to 1, not {dict(weights)}")
