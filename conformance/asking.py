"""One mode of a running engine, as the family checks ask it: requests out, outputs checked and scored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from conformance.asked_law import asked_laws
from conformance.components import Floats
from conformance.findings import Finding
from conformance.harness import Runner
from conformance.levels import AuditSettings
from conformance.problems import EngineFailed
from conformance.protocols import Mode, Output, Request, Tokens
from conformance.sampling import NonsenseOutput, check_outputs, request_seed
from conformance.subject import Subject
from specref.processors import SamplingSettings

LONGEST = 24
"""Tokens of an output in the family checks: several rounds, and no more."""


@dataclass
class Asking:
    """A mode that is asked.

    answered: every request with its output, for the checks that look at all of them. refusals: settings that were refused,
    which may leave an engine in another state than before: it is not asked for anything else afterwards.
    """

    runner: Runner
    mode: Mode
    subject: Subject
    settings: AuditSettings
    answered: list[tuple[Request, Output]] = field(default_factory=list)
    refusals: int = 0

    def __post_init__(self) -> None:
        self.subject = self.subject.under(self.mode)

    @property
    def longest(self) -> int:
        """Tokens of an output."""
        return min(LONGEST, self.settings.max_tokens)

    @property
    def plain(self) -> SamplingSettings:
        """Sampling at temperature 1, with the models' own ends."""
        return SamplingSettings(max_tokens=self.longest, eos=self.subject.eos)

    @property
    def greedy(self) -> SamplingSettings:
        """Temperature 0."""
        return replace(self.plain, temperature=0.0)

    def requests(self, what: str, number: int, sampling: SamplingSettings, *, prompts: int = 0) -> list[Request]:
        """`number` requests for one purpose, with seeds of their own. prompts: how many different ones; 0 is as many as
        requests.
        """
        found = []
        for i in range(number):
            seed = request_seed(self.settings.seed, self.mode.name, what, i)
            of = request_seed(self.settings.seed, "prompt", what, i % prompts if prompts else i)
            found.append(Request(self.subject.prompts.prompt(of), sampling, seed))
        return found

    def ask(self, requests: Sequence[Request]) -> list[Output]:
        """The outputs of requests that are handed over together. Raises EngineFailed, NonsenseOutput."""
        outputs = list(self.runner.generate(self.mode, requests))
        if len(outputs) != len(requests):
            raise NonsenseOutput(f"the engine gave {len(outputs)} outputs to {len(requests)} requests")
        check_outputs(requests, outputs, self.subject.target.vocabulary)
        self.answered += zip(requests, outputs)
        return outputs

    def one_by_one(self, requests: Sequence[Request]) -> list[Output]:
        """The outputs of requests that are handed over one after the other."""
        return [self.ask([request])[0] for request in requests]

    def try_to_ask(self, requests: Sequence[Request]) -> list[Output] | str:
        """The outputs, or the message with which the engine refuses a setting."""
        try:
            return self.ask(requests)
        except EngineFailed as failed:
            if failed.kind != "unsupported":
                raise
            self.refusals += 1
            return str(failed)

    def logits(self, requests: Sequence[Request], outputs: Sequence[Tokens]) -> list[Floats]:
        """The target's raw logits along outputs."""
        return self.subject.target.logits([(request.prompt, output) for request, output in zip(requests, outputs, strict=True)])

    def laws(self, requests: Sequence[Request], outputs: Sequence[Tokens]) -> list[tuple[Floats, Floats]]:
        """p and q along each output, as its own request asked for them."""
        found = []
        for request, output in zip(requests, outputs, strict=True):
            sequence = [(request.prompt, output)]
            draft = None if self.mode.draft_law == "n-gram" else self.subject.draft.logits(sequence)
            target = self.subject.target.logits(sequence)
            asked = asked_laws(
                request.settings, self.mode.order, sequence, target, draft, self.subject.tolerance, self.settings.level.tokens
            )
            found.append((asked.p, asked.q))
        return found


Judge = Callable[[Asking, float], Iterable[Finding | EngineFailed]]
"""Asks a mode and gives what it finds, with the false-alarm rate that the statistical checks of a mode share."""
