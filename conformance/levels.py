"""How much to sample: four levels, each with a stated cost, and the settings of one audit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from conformance.problems import UsageProblem


@dataclass(frozen=True)
class Level:
    """How much is judged. tokens: in the plain case of a mode. prompts: continued greedily in each mode. about: in words.

    cases: which sampling settings are judged beside the plain one: none, a share in which every two values meet, or all.
    budget: tokens over all cases together, which share it where they would exceed it; 0 sets no limit. requests: of each group
    of the family checks; 0 leaves them out. rows: through each verifier that is audited alone, and so in proportion for the
    other components; 0 leaves components out. seconds: for all components together, of which slow ones do less; 0: no limit.
    all_modes: whether every mode is run, or the first of each rule and law of drafts.
    """

    name: str
    tokens: int
    prompts: int
    about: str
    cases: Literal["plain", "share", "all"] = "plain"
    budget: int = 0
    requests: int = 0
    rows: int = 0
    seconds: float = 0.0
    all_modes: bool = True

    def prompts_of(self, modes: int) -> int:
        """Prompts of each of so many modes: with a budget, more than three share what three would have.

        >>> LEVELS["quick"].prompts_of(3), LEVELS["quick"].prompts_of(30)
        (50, 5)
        """
        return self.prompts if modes <= 3 or not self.budget else max(3, round(3 * self.prompts / modes))

    def of_tokens(self, tokens: int) -> Level:
        """The same level with so many tokens in the plain case of a mode; other cases in proportion.

        Raises UsageProblem for less than a token.

        >>> LEVELS["standard"].of_tokens(1_000_000).budget
        1200000
        """
        if tokens < 1:
            raise UsageProblem(f"tokens is {tokens}; give a number of 1 or more, for instance 1000000")
        return replace(self, tokens=tokens, budget=round(self.budget * tokens / self.tokens))

    def scaled(self, share: float) -> Level:
        """The same level with a share of its samples (for an engine whose samples are dear), at least 5 prompts.

        >>> LEVELS["quick"].scaled(0.25).tokens
        10000
        """
        return replace(
            self,
            tokens=round(self.tokens * share),
            prompts=max(5, round(self.prompts * share)),
            budget=round(self.budget * share),
            requests=min(self.requests, max(2, round(self.requests * share))),
        )


LEVELS = {
    level.name: level
    for level in (
        Level("smoke", 3_000, 10, "about a minute: gross faults", "plain", 9_000, 2, 2_048, 60),
        Level("quick", 40_000, 50, "a few minutes on two cores: the default", "share", 60_000, 4, 16_384, 180),
        Level("standard", 200_000, 200, "up to twenty-five minutes an engine", "all", 240_000, 8, 98_304, 600),
        Level("deep", 2_000_000, 1_000, "hours: small leaks", "all", 0, 64, 1_228_800),
    )
}


LOWEST_TEMPERATURE = 0.01
"""Below it, float32 rounding divided by the temperature would be seen as a fault."""


@dataclass(frozen=True)
class AuditSettings:
    """The settings of one audit. Raises UsageProblem for a value out of range.

    alpha: the false-alarm rate of each engine's audit. seed: everything random follows from it. k: drafts per round.
    temperature: of the sampled modes. max_tokens: the limit of each output.
    """

    level: Level
    alpha: float = 1e-6
    seed: int = 0
    k: int = 4
    temperature: float = 1.0
    max_tokens: int = 64

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise UsageProblem(f"alpha is {self.alpha:g}; the false-alarm rate must lie between 0 and 1, for instance 1e-6")
        if self.k < 1:
            raise UsageProblem(f"k is {self.k}; give the drafts of a round, 1 or more")
        if not (self.temperature == 0 or LOWEST_TEMPERATURE <= self.temperature < math.inf):
            raise UsageProblem(
                f"temperature is {self.temperature:g}; give 0 (greedy only), or a finite number from {LOWEST_TEMPERATURE:g} up"
            )
        if self.seed < 0:
            raise UsageProblem(f"seed is {self.seed}; give a whole number of 0 or more")


def level_named(name: str) -> Level:
    """The level called `name`. Raises UsageProblem naming the known ones."""
    if name not in LEVELS:
        raise UsageProblem(f"no level is called {name!r}; give one of {', '.join(LEVELS)}")
    return LEVELS[name]
