"""What is judged under LAW: cases, each a mode with a sampling setting on a pair of models, with the tokens that it is given.

Everything is settled before the first token: which cases there are (`conformance.case_plan`), how many tokens each has, and
its share of the verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from conformance.levels import AuditSettings
from conformance.protocols import Mode, Tokens
from conformance.scoring import laws_at
from conformance.subject import Subject
from specref.processors import SamplingSettings

PLAIN = "plain"
OTHERS = 0.25
"""Tokens of another setting, as a share of the plain one's."""
LEAST = 400
"""Tokens that no case goes below, unless the level itself does."""


@dataclass(frozen=True)
class Setting:
    """A way to sample: a name for people, and the fields of `SamplingSettings` that differ from the plain setting's."""

    name: str
    fields: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def without(self, refused: Sequence[str]) -> Setting:
        """The same setting with some fields left out, which its name tells.

        >>> Setting("all combined", {"top_k": 3, "min_p": 0.1}).without(["min_p"])
        Setting(name='all combined', fields={'top_k': 3})
        """
        return Setting(self.name, {name: value for name, value in self.fields.items() if name not in refused})


@dataclass(frozen=True)
class Case:
    """A mode with a setting on pair number `pair` of models. tokens: how many are judged. weight: its share of the verdict."""

    mode: Mode
    setting: Setting
    pair: int = 0
    pair_name: str = ""
    tokens: int = 0
    weight: float = 1.0

    @property
    def name(self) -> str:
        """What reports call it: the mode's name, and what differs from the plain setting on the first pair of models.

        >>> Case(Mode("off"), Setting("top-k 5")).name
        'off [top-k 5]'
        """
        beside = [self.setting.name] * (self.setting.name != PLAIN) + [self.pair_name] * (self.pair > 0)
        return f"{self.mode.name} [{', '.join(beside)}]" if beside else self.mode.name

    @property
    def is_plain(self) -> bool:
        """Whether it is what its mode's own report is about: the plain setting on the first pair of models."""
        return self.setting.name == PLAIN and not self.pair

    def asks(self, settings: AuditSettings, subject: Subject) -> SamplingSettings:
        """What a request of this case asks for."""
        plain = {"temperature": settings.temperature, "max_tokens": settings.max_tokens, "eos": subject.eos}
        return SamplingSettings(**{**plain, **self.setting.fields})

    def prompt(self, subject: Subject, seed: int) -> Tokens:
        """The prompt of one request. It does not end with the beginning of a banned sequence: engines differ in whether such a
        sequence may begin in the prompt."""
        prompt = subject.prompts.prompt(seed)
        begins = {word[0] for word in self.setting.fields.get("bad_words", ()) if len(word) > 1}
        while len(prompt) > 2 and prompt[-1] in begins:
            prompt = prompt[:-1]
        return prompt


def table(settings: AuditSettings, subject: Subject) -> list[Setting]:
    """The settings, the plain one first. Those about single tokens name ones that the target likes."""
    V = subject.target.vocabulary
    often = common_tokens(subject)
    biased = {often[0]: -2.0, often[1]: -0.5, often[-1]: 1.5}
    banned = {"bad_words": ((often[2],), (often[3], often[4]))}
    waits = {"min_tokens": 8} if subject.eos else {}
    penalties = {"presence_penalty": 0.5, "frequency_penalty": 0.25}
    k = min(20, max(2, V // 3))
    whole = {"temperature": 0.8, "top_k": k, "top_p": 0.95, "min_p": 0.02, "repetition_penalty": 1.1}
    return [
        Setting(PLAIN),
        Setting("temperature 0.6", {"temperature": 0.6}),
        Setting(f"top-k {k}", {"top_k": k}),
        Setting("top-p 0.9", {"top_p": 0.9}),
        Setting("min-p 0.05", {"min_p": 0.05}),
        Setting("repetition penalty", {"repetition_penalty": 1.3}),
        Setting("presence and frequency penalties", penalties),
        Setting("logit bias and min tokens" if waits else "logit bias", {"logit_bias": biased, **waits}),
        Setting("bad words", banned),
        Setting("all combined", {**whole, **penalties, "logit_bias": biased, **banned, **waits}),
    ]


def common_tokens(subject: Subject) -> list[int]:
    """Ten tokens (or V) from the target's favourites down, ends of sequence left out: its mean law over a few prompts."""
    prompts = [subject.prompts.prompt(seed) for seed in range(8)]
    rows = np.concatenate(subject.target.logits([(prompt[:4], prompt[4:]) for prompt in prompts]))
    order = np.argsort(-laws_at(rows, 1.0).mean(axis=0), kind="stable")
    return [int(token) for token in order if token not in subject.eos][:10]


def weighed(cases: Sequence[Case], settings: AuditSettings) -> list[Case]:
    """Tokens and weights. Plain cases have the level's tokens and half of their mode's weight, the others share the rest; where
    all together exceed the level's budget, each has its share of it. The control's weights sum to 1, and so do the others'."""
    level = settings.level
    wanted = [level.tokens * (1 if case.is_plain and not case.mode.brief else OTHERS) for case in cases]
    scale = min(1.0, level.budget / max(sum(wanted), 1)) if level.budget else 1.0
    weights = _weights(cases)
    least = min(LEAST, level.tokens)
    return [
        Case(case.mode, case.setting, case.pair, case.pair_name, max(least, round(n * scale)), weight)
        for case, n, weight in zip(cases, wanted, weights)
    ]


def part(mode: Mode) -> str:
    """The ledger that a mode belongs to: "speculation", its "control", or "lossy" where a mode changes the law on purpose and
    does not say to what.

    >>> part(Mode("off")), part(Mode("fast", {"k": 4}, lossy="typical acceptance"))
    ('control', 'lossy')
    """
    if mode.lossy and mode.ensemble == 1:
        return "lossy"
    return "speculation" if mode.speculates else "control"


def _weights(cases: Sequence[Case]) -> list[float]:
    found = []
    for case in cases:
        ledger = [other for other in cases if part(other.mode) == part(case.mode)]
        mine = [other for other in ledger if other.mode.name == case.mode.name]
        plain = [other for other in mine if other.is_plain]
        modes = len({other.mode.name for other in ledger})
        if len(plain) in (0, len(mine)):
            found.append(1 / modes / len(mine))
        else:
            found.append(0.5 / modes / (len(plain) if case in plain else len(mine) - len(plain)))
    return found
