"""What samples show beside the law of their tokens: greedy choices, ends, log-probabilities, acceptance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from scipy.special import log_softmax

from conformance.asked_law import forbids, processed, split
from conformance.checks.accept import acceptance_finding, metrics_finding
from conformance.checks.greedy import greedy_finding
from conformance.checks.logprob import logprob_findings, tolerance_of
from conformance.checks.places import not_exposed, not_promised
from conformance.checks.stop import stop_findings
from conformance.components import Floats
from conformance.findings import Finding, Verdict
from conformance.protocols import Mode, Output, Request, Tokens
from conformance.sampled_case import SampledCase
from conformance.sampling import judged_part
from conformance.statistics.acceptance import FLOAT32_ETA, RATIO_RULES
from conformance.statistics.evidence import WrongUse
from conformance.subject import Subject
from specref.models import BadModel

ROWS = 32
"""Requests scored at a time: what a check reads does not have to fit in memory."""
Answered = Sequence[tuple[Request, Output, bool]]
"""Requests, their outputs, and whether each output came to its end."""


@dataclass(frozen=True)
class OfMode:
    """What was kept of one mode. limited: whether the limits of outputs are known. state: its LAW, if anything was sampled."""

    mode: Mode
    answered: Answered
    limited: bool
    subject: Subject
    state: SampledCase | None

    def findings(self, alpha: float, *, has_draft: bool) -> list[Finding]:
        """All findings. alpha: the false-alarm rate of acceptance. has_draft: whether the draft model is the engine's."""
        found = list(self._stop())
        for requirement, judge in (("GREEDY-1", self._greedy), ("LOGPROB-1", self._logprobs)):
            try:
                found += judge()
            except (WrongUse, BadModel) as refused:
                found.append(Finding(requirement, self.mode.name, Verdict.INCONCLUSIVE, f"cannot be judged: {refused}"))
        return found + list(self._acceptance(alpha, has_draft))

    def _stop(self) -> Iterator[Finding]:
        """STOP of finished outputs. Where no limit is told, why an output ended is not known either."""
        some = [(request, output) for request, output, finished in self.answered if finished]
        requests, outputs = [request for request, _ in some], [output for _, output in some]
        for finding in stop_findings(self.mode.name, requests, outputs, planned=1):
            if not self.limited and finding.requirement in ("STOP-3", "STOP-5"):
                yield not_exposed(finding.requirement, self.mode.name, "the limits of its outputs (settings.max_tokens)")
            elif finding.n:
                yield finding

    def _greedy(self) -> list[Finding]:
        """GREEDY-1: penalties and bans belong to what is greedily chosen from."""
        greedy = [(request, judged_part(request, output)) for request, output, _ in self.answered if _is_greedy(request)]
        if not greedy:
            return []
        rows = Scored(self.subject, self.mode, "chosen", [request for request, _ in greedy], [output for _, output in greedy])
        outputs = [output for _, output in greedy]
        return [greedy_finding(self.mode.name, outputs, rows, self.subject.margin, len(outputs))]

    def _logprobs(self) -> list[Finding]:
        """LOGPROB-1 and LOGPROB-2, where log-probabilities are given. Those of a processed law, where it is the same everywhere
        near ours: not greedy, not truncated."""
        kind = self.mode.logprobs
        some = [
            (request, output)
            for request, output, _ in self.answered
            if kind == "raw" or (kind and not _is_greedy(request) and not forbids(request.settings))
        ]
        if not some:
            what = "log-probabilities that can be judged" if kind else "log-probabilities"
            return [not_exposed(requirement, self.mode.name, what) for requirement in ("LOGPROB-1", "LOGPROB-2")]
        outputs, returned = [output for _, output in some], [output.logprobs or () for _, output in some]
        rows = Scored(self.subject, self.mode, kind, [request for request, _ in some], [output.tokens for output in outputs])
        tolerance = tolerance_of(self.subject.tolerance.eta, kind, (request for request, _ in some))
        planned = sum(len(output.tokens) for output in outputs)
        return logprob_findings(self.mode.name, outputs, returned, rows, planned, promised=True, tolerance=tolerance)

    def _acceptance(self, alpha: float, has_draft: bool) -> Iterator[Finding]:
        """ACCEPT-1 from the drafts that the verifier looked at; ACCEPT-3 from the counts that came with the rounds."""
        mode, state = self.mode, self.state
        if not mode.speculates:
            return
        if not mode.exposes_rounds:
            yield from (not_exposed(requirement, mode.name, "its rounds") for requirement in ("ACCEPT-1", "ACCEPT-3"))
            return
        if mode.rule == "undeclared":
            yield not_promised("ACCEPT-1", mode.name, "a rule (the field `rule` of a sample declares one)")
        elif mode.rule in RATIO_RULES and not has_draft:
            yield not_exposed("ACCEPT-1", mode.name, "its draft model (--draft names it)")
        elif state is None or not state.drafts:
            yield not_exposed("ACCEPT-1", mode.name, "drafts at a temperature above 0, without truncation")
        else:
            parts: list[Any] = list(zip(*state.drafts, strict=True))
            p, q, drafts, flags = (np.concatenate(some) for some in parts)
            eta = max(FLOAT32_ETA, self.subject.tolerance.eta)
            yield acceptance_finding(mode.name, mode.rule, p, q, drafts, flags, planned=1, alpha=alpha, eta=eta)
        yield metrics_finding(mode.name, None, [output for _, output, _ in self.answered], planned=1)


def _is_greedy(request: Request) -> bool:
    return request.settings.temperature == 0


class Scored(Sequence[Floats]):
    """The target's rows `[len(output), V]` along each output, computed when they are read.

    what: "chosen" (logits as a greedy choice sees them), "raw" (log-probabilities of the logits themselves) or "processed" (of
    the law that was asked for).
    """

    def __init__(self, subject: Subject, mode: Mode, what: str, requests: Sequence[Request], outputs: Sequence[Tokens]) -> None:
        self._subject, self._mode, self._what, self._requests, self._outputs = subject, mode, what, requests, outputs

    def __len__(self) -> int:
        return len(self._requests)

    @overload
    def __getitem__(self, place: int) -> Floats: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Floats]: ...

    def __getitem__(self, place: int | slice) -> Floats | Sequence[Floats]:
        if isinstance(place, slice):
            return Scored(self._subject, self._mode, self._what, self._requests[place], self._outputs[place])
        return next(self._rows(place, 1))

    def __iter__(self) -> Iterator[Floats]:
        for first in range(0, len(self), ROWS):
            yield from self._rows(first, ROWS)

    def _rows(self, first: int, number: int) -> Iterator[Floats]:
        requests, outputs = self._requests[first : first + number], self._outputs[first : first + number]
        sequences = [(request.prompt, output) for request, output in zip(requests, outputs)]
        for request, sequence, rows in zip(requests, sequences, self._subject.target.logits(sequences)):
            settings = request.settings
            if self._what != "raw":
                before, _ = split(settings.processors(self._mode.order))
                rows = processed(rows, before, *sequence)
            if self._what == "processed":
                rows = rows / float(settings.temperature)
            yield rows if self._what == "chosen" else log_softmax(rows, axis=1)
