"""Greedy decoding: the same prompts in every mode, and with the target as its own draft."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from conformance.checks.accept import self_draft_finding
from conformance.checks.greedy import Arm, divergences, greedy_finding, paired_greedy_finding
from conformance.checks.places import not_exposed
from conformance.findings import Finding, Verdict
from conformance.harness import Runner
from conformance.levels import AuditSettings
from conformance.protocols import Mode, Output, Request, Tokens
from conformance.sampling import check_outputs, judged_part, request_seed
from conformance.scoring import Logits
from conformance.statistics.evidence import WrongUse
from conformance.subject import Subject
from specref.processors import SamplingSettings


@dataclass(frozen=True)
class Continued:
    """Prompts continued at temperature 0. outputs: the part of each answer that is judged."""

    requests: Sequence[Request]
    answers: Sequence[Output]
    outputs: Sequence[Tokens]

    @property
    def beyond(self) -> int:
        """Outputs that went on after their end."""
        return sum(len(answer.tokens) > len(part) for answer, part in zip(self.answers, self.outputs))

    @property
    def sequences(self) -> list[tuple[Tokens, Tokens]]:
        """(prompt, output) pairs."""
        return [(request.prompt, output) for request, output in zip(self.requests, self.outputs)]


def continue_greedily(
    runner: Runner, mode: Mode, subject: Subject, settings: AuditSettings, watch: Callable[[int], None], number: int
) -> Continued:
    """Continue `number` prompts, the same ones in every mode. Raises EngineFailed, NonsenseOutput."""
    sampling = SamplingSettings(max_tokens=settings.max_tokens, temperature=0.0, eos=subject.eos)
    seeds = [request_seed(settings.seed, "greedy", number) for number in range(number)]
    requests = [Request(subject.prompts.prompt(seed), sampling, seed) for seed in seeds]
    answers: list[Output] = []
    for answer in runner.generate(mode, requests):
        answers.append(answer)
        watch(1)
    # Only now that all were heard: an answer left in the pipe would be taken for the next mode's.
    check_outputs(requests, answers, subject.target.vocabulary)
    return Continued(requests, answers, [judged_part(request, answer) for request, answer in zip(requests, answers)])


def greedy_of(mode: Mode, done: Continued, subject: Subject, planned: int) -> Finding:
    """GREEDY-1 of one mode; of a lossy one, how often it agrees; where no margin convicts, that it is not run."""
    subject = subject.under(mode)
    logits = subject.target.logits(done.sequences)
    if mode.lossy:
        tokens, wrong = sum(map(len, done.outputs)), len(divergences(done.outputs, logits))
        said = f"declared as lossy ({mode.lossy}); {wrong} of {tokens} tokens are not the target's argmax"
        return Finding("GREEDY-1", mode.name, Verdict.LOSSY_AS_DECLARED, said, len(done.outputs), planned, "prompts")
    try:
        margin = subject.margin
    except WrongUse as refused:
        return Finding("GREEDY-1", mode.name, Verdict.NOT_RUN, f"no single token convicts: {refused}")
    found = greedy_finding(mode.name, done.outputs, logits, margin, planned, subject.texts)
    if found.verdict is not Verdict.VIOLATES:
        return found
    return replace(found, violations=(_shortest(done, logits, margin.value, subject.texts), *found.violations))


def _shortest(done: Continued, logits: Sequence[Logits], margin: float, texts: Sequence[str]) -> str:
    """The wrong token that takes the fewest tokens to reach, with all that whoever wants to see it again must know."""
    wrong = [one for one in divergences(done.outputs, logits) if one.gap > margin]
    one = min(wrong, key=lambda one: len(done.requests[one.prompt].prompt) + one.position)
    request, before = done.requests[one.prompt], done.outputs[one.prompt][: one.position]
    emitted, best = (f"{token} (“{texts[token]}”)" if token < len(texts) else str(token) for token in (one.token, one.best))
    return (
        f"the shortest: prompt {list(request.prompt)} at temperature 0, {request.settings.max_tokens} new tokens asked for; "
        f"after {list(before)} came {emitted} where the target's best is {best}, {one.gap:.3g} logits above it"
    )


def paired_of(mode: Mode, on: Continued, off: Continued, subject: Subject, planned: int, alpha: float) -> Finding:
    """GREEDY-2 of a mode beside its control, in a precision where no single token convicts."""
    with_it, without = (Arm(done.outputs, subject.target.logits(done.sequences)) for done in (on, off))
    return paired_greedy_finding(mode.name, with_it, without, planned, alpha=alpha, texts=subject.texts)


def has_margin(subject: Subject) -> bool:
    """Whether greedy decoding can be judged token by token."""
    try:
        return subject.margin.value >= 0
    except WrongUse:
        return False


def self_draft_of(runner: Runner, mode: Mode, subject: Subject, settings: AuditSettings) -> Finding:
    """ACCEPT-2: the target, drafting for itself, is accepted throughout; from rounds, else from the engine's own counts."""
    before = runner.metrics(mode)
    number = settings.level.requests
    done = continue_greedily(runner, mode, subject, settings, lambda _: None, number)
    after = runner.metrics(mode)
    if mode.exposes_rounds:
        parts = [Output(output, answer.rounds) for output, answer in zip(done.outputs, done.answers)]
        return self_draft_finding(mode.name, parts, subject.target.logits(done.sequences), subject.margin, planned=1)
    if after is None or not {"draft_tokens", "accepted"} <= set(after):
        return not_exposed("ACCEPT-2", mode.name, "its rounds, nor counts of drafted and accepted tokens")
    drafted, accepted = (after[name] - (before or {}).get(name, 0.0) for name in ("draft_tokens", "accepted"))
    logits = subject.target.logits(done.sequences)
    ties = _near_ties(logits, subject.margin.value)
    allowed = settings.k * (number + ties)  # the last round of an output may be cut, and so may one with a near-tie
    wrong = drafted - accepted > allowed
    said = f"{accepted:.0f} of {drafted:.0f} drafts of the target for itself were accepted"
    return Finding(
        "ACCEPT-2",
        mode.name,
        Verdict.VIOLATES if wrong else Verdict.CONFORMS,
        f"{said}; {allowed} may be lost to the ends of outputs and to near-ties",
        n=int(drafted),
        planned=1,
        unit="drafts",
        violations=(f"all rounds: expected at least {drafted - allowed:.0f} accepted, found {accepted:.0f}",) if wrong else (),
    )


def _near_ties(logits: Sequence[Logits], margin: float) -> int:
    """Rows whose two best tokens lie within the margin."""
    best = [np.sort(rows, axis=1)[:, -2:] for rows in logits if len(rows)]
    return sum(int((two[:, 1] - two[:, 0] <= margin).sum()) for two in best)
