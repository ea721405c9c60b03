"""The smallest request whose greedy output is wrong: a short prompt, few drafts, no more tokens than it takes.

No chance is involved at temperature 0, so one request shows it: "token 4 of the output is 17, where the target's best is 3".
Requests are asked one after the other in a fresh process; a fault that needs company or a long run shows in none of them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from conformance.asking import Asking
from conformance.checks.greedy import Divergence, divergences
from conformance.harness import Runner
from conformance.levels import AuditSettings
from conformance.protocols import Mode, Request, Tokens
from conformance.sampling import judged_part, request_seed
from conformance.smallest import SECONDS, OutOfTime, fewest_drafts_first, prompts
from conformance.subject import Subject
from specref.processors import SamplingSettings

PROMPTS = 16
"""Prompts of each length that are tried."""


@dataclass(frozen=True)
class SmallestGreedy:
    """A request at temperature 0 whose output is wrong.

    k: drafts of a round. output: what came, up to the wrong token. best: the target's own choice there, `gap` logits above it.
    control: the mode without speculation, and what came there; None where the engine has none.
    """

    mode: str
    prompt: Tokens
    k: int
    settings: SamplingSettings
    output: Tokens
    best: int
    gap: float
    control: tuple[str, Tokens] | None

    @property
    def place(self) -> int:
        """Of the wrong token in the output, from 0."""
        return len(self.output) - 1


def smallest_greedy(runner: Runner, name: str, subject: Subject, settings: AuditSettings) -> SmallestGreedy | None:
    """The smallest request that shows a mode's wrong greedy output, asked of a fresh process; None if none of those tried does.

    Raises EngineFailed and NonsenseOutput, WrongUse where no single token convicts, and OutOfTime after `SECONDS`.
    """
    until = time.monotonic() + SECONDS
    wholes = [subject.prompts.prompt(request_seed(settings.seed, "greedy", number)) for number in range(PROMPTS)]
    for k, mode, control in fewest_drafts_first(runner, name, settings):
        asking = Asking(runner, mode, subject, settings)
        sampling = replace(asking.greedy, max_tokens=settings.max_tokens)
        for prompt in sorted({part for whole in wholes for part in prompts(whole)}, key=lambda part: (len(part), part)):
            if time.monotonic() > until:
                raise OutOfTime
            found = _wrong(asking, Request(prompt, sampling, 0))
            if found:
                return _cut(asking, found, k, control)
    return None


@dataclass(frozen=True)
class _Wrong:
    request: Request
    output: Tokens
    first: Divergence


def _wrong(asking: Asking, request: Request) -> _Wrong | None:
    """A request whose output has a wrong token, or None."""
    output = judged_part(request, *asking.ask([request]))
    found = divergences([output], asking.subject.target.logits([(request.prompt, output)]))
    first = next((one for one in found if one.gap > asking.subject.margin.value), None)
    return None if first is None else _Wrong(request, output, first)


def _cut(asking: Asking, found: _Wrong, k: int, control: Mode | None) -> SmallestGreedy:
    """The case with no more new tokens than it takes (more, if the fault needs them), and what comes without speculation."""
    shorter = replace(found.request.settings, max_tokens=found.first.position + 1)
    one = _wrong(asking, replace(found.request, settings=shorter)) or found
    without = None
    if control is not None:
        (written,) = Asking(asking.runner, control, asking.subject, asking.settings).ask([one.request])
        without = control.name, judged_part(one.request, written)
    output = one.output[: one.first.position + 1]
    asked = one.request
    return SmallestGreedy(asking.mode.name, asked.prompt, k, asked.settings, output, one.first.best, one.first.gap, without)
