"""The smallest case in which a wrong law still shows: a short prompt, few drafts, few tokens.

"Tokens do not follow the target's law" is hard to act on. "With this prompt the second token is 17 in 143 of 512 requests,
where 98 are expected" can be put under a debugger. Cases are tried from the smallest on; in the first that shows the fault, the
place and the token that differ most are looked for, and then counted once more with seeds of their own, so that nothing is told
which chance alone picked out. These are the seeds of the script that `conformance.reproduction` writes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from conformance.asking import Asking
from conformance.components import Floats
from conformance.families import control_of
from conformance.harness import Runner
from conformance.levels import AuditSettings
from conformance.probes import ALARM, COMPANY, evidence_against, probe_size
from conformance.protocols import Mode, Output, Request, Tokens
from conformance.sampling import judged_part
from conformance.subject import Subject
from specref.processors import SamplingSettings

PARTS = (4, 16)
"""Tokens of a prompt that are tried before the whole of it."""
SECONDS = 180.0
"""Of a search: whoever waits for it has the verdict already."""
LOOKED_AT, MOST_COUNTED = 512, 2_048
"""Requests of the case that shows it, to find where in it; and at most to count what was found."""
TRIES, LOOKS = 10_000, 20_000
"""The first seed of either; the count begins at 0."""
CLEAR, CONFIRMED = 6.0, 4.0
"""Standard deviations that the count aims at, and those below which nothing is told."""
LEAST_EXPECTED = 5.0
"""A token that is expected less often is not looked at: so small a count is not normal, and standard deviations say little."""


@dataclass(frozen=True)
class Counts:
    """How often each token came at each place of the outputs, and was expected there, `[T, V]`; and the count's variance.

    A token is expected by the target's law given each output's own history: seen less expected is a martingale.
    """

    seen: Floats
    expected: Floats
    variance: Floats

    @property
    def deviations(self) -> Floats:
        """Standard deviations between seen and expected; 0 for a token expected less than `LEAST_EXPECTED` times.

        >>> Counts(np.array([[143.0, 3.0]]), np.array([[98.0, 1.0]]), np.array([[81.0, 1.0]])).deviations.tolist()
        [[5.0, 0.0]]
        """
        often = self.expected >= LEAST_EXPECTED
        return np.where(often, (self.seen - self.expected) / np.sqrt(np.maximum(self.variance, 1e-9)), 0.0)


@dataclass(frozen=True)
class Smallest:
    """A case that shows a wrong law.

    k: drafts of a round. place: of the token in the output, from 0. seen: in how many of `requests` (seeds from 0 on, `COMPANY`
    at a time) it came there; expected: by the target's law; deviations: standard deviations between the two. control: the
    mode without speculation, and how often there; None where the engine has none.
    """

    mode: str
    prompt: Tokens
    k: int
    settings: SamplingSettings
    requests: int
    place: int
    token: int
    seen: int
    expected: float
    deviations: float
    control: tuple[str, int] | None


class OutOfTime(Exception):
    """The search took longer than it may."""


@dataclass(frozen=True)
class _Case:
    asking: Asking
    prompt: Tokens
    k: int
    sampling: SamplingSettings
    until: float

    def outputs(self, seeds: range) -> tuple[list[Request], list[Tokens]]:
        requests = [Request(self.prompt, self.sampling, seed) for seed in seeds]
        found: list[Output] = []
        for start in range(0, len(requests), COMPANY):
            if time.monotonic() > self.until:
                raise OutOfTime
            found += self.asking.ask(requests[start : start + COMPANY])
        return requests, [judged_part(request, output) for request, output in zip(requests, found)]

    def evidence(self, seeds: range) -> float:
        """log10 evidence of all tokens against the target's law."""
        requests, outputs = self.outputs(seeds)
        laws = self.asking.laws(requests, outputs)
        tokens = np.array([token for output in outputs for token in output], dtype=np.int64)
        return evidence_against(tokens, np.concatenate([p for p, _ in laws]), np.concatenate([q for _, q in laws]))

    def counts(self, seeds: range) -> Counts:
        """Of every token at every place."""
        requests, outputs = self.outputs(seeds)
        seen = np.zeros((self.sampling.max_tokens, self.asking.subject.target.vocabulary))
        expected, variance = np.zeros_like(seen), np.zeros_like(seen)
        for start in range(0, len(requests), COMPANY):
            part = slice(start, start + COMPANY)
            for output, (p, _) in zip(outputs[part], self.asking.laws(requests[part], outputs[part])):
                n = len(output)
                seen[np.arange(n), output] += 1
                expected[:n] += p
                variance[:n] += p * (1 - p)
        return Counts(seen, expected, variance)


def smallest(runner: Runner, name: str, subject: Subject, settings: AuditSettings, tokens: int) -> Smallest | None:
    """The smallest case in which a mode's wrong law shows, asked of a fresh process; None if none of those tried shows it.
    tokens: how many the audit took to see it; `probe_size` of that are asked for in each case that is tried.

    Raises EngineFailed and NonsenseOutput, and OutOfTime after `SECONDS`.
    """
    until = time.monotonic() + SECONDS
    for k, mode, control in fewest_drafts_first(runner, name, settings):
        sampling = SamplingSettings(max_tokens=k + 2, temperature=settings.temperature)
        requests = math.ceil(probe_size(tokens) / sampling.max_tokens)
        for prompt in prompts(subject.prompts.prompt(settings.seed)):
            case = _Case(Asking(runner, mode, subject, settings), prompt, k, sampling, until)
            if case.evidence(range(TRIES, TRIES + requests)) >= ALARM:
                found = _counted(case, control)
                if found is not None:
                    return found
    return None


def fewest_drafts_first(runner: Runner, name: str, settings: AuditSettings) -> Iterator[tuple[int, Mode, Mode | None]]:
    """A mode with one draft a round, then with as many as the audit's, and its control; less those k at which it is not there,
    because its name tells its number of drafts. Raises EngineFailed."""
    for k in sorted({1, settings.k}):
        modes = runner.describe(k).modes
        for mode in modes:
            if mode.name == name:
                yield k, mode, control_of(mode, modes) if mode.speculates else None


def prompts(whole: Tokens) -> list[Tokens]:
    """Parts of a prompt, the shortest first. A part that comes twice gives n-gram drafts something to find.

    >>> prompts((7, 1, 2, 3, 4, 5))
    [(7,), (7, 1, 2, 3, 7, 1, 2, 3), (7, 1, 2, 3, 4, 5)]
    """
    return [whole[:1], *(whole[:length] * 2 for length in PARTS if length < len(whole)), whole]


def _counted(case: _Case, control: Mode | None) -> Smallest | None:
    """The token that differs most, counted once more."""
    first = case.counts(range(LOOKS, LOOKS + LOOKED_AT)).deviations
    place, token = divmod(int(np.abs(first).argmax()), first.shape[1])
    clear = LOOKED_AT * (CLEAR / max(abs(float(first[place, token])), 1.0)) ** 2
    requests = min(MOST_COUNTED, max(LOOKED_AT // 2, COMPANY * math.ceil(clear / COMPANY)))
    again = case.counts(range(requests))
    deviations = float(again.deviations[place, token])
    if abs(deviations) < CONFIRMED or deviations * first[place, token] < 0:
        return None
    without = None
    if control is not None:
        asking = Asking(case.asking.runner, control, case.asking.subject, case.asking.settings)
        _, outputs = _Case(asking, case.prompt, case.k, case.sampling, case.until).outputs(range(requests))
        without = control.name, sum(output[place : place + 1] == (token,) for output in outputs)
    return Smallest(
        case.asking.mode.name,
        case.prompt,
        case.k,
        case.sampling,
        requests,
        place,
        token,
        int(again.seen[place, token]),
        float(again.expected[place, token]),
        deviations,
        without,
    )
