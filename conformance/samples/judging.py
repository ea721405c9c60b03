"""Samples judged as an audit judges them: a ledger whose plan is sealed before a token is read, then the other checks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

from conformance.cases import PLAIN, Case, Setting, part
from conformance.environment import environment
from conformance.findings import EngineReport, Finding, Verdict
from conformance.law_audit import can_catch, findings_of_cases, sealed_ledgers
from conformance.levels import AuditSettings, Level
from conformance.protocols import Mode, Output, Request
from conformance.sampled_case import SampledCase
from conformance.samples.findings import OfMode
from conformance.samples.modes import Defaults, ModeSurvey
from conformance.samples.reading import BadSamples
from conformance.samples.survey import OFF, Survey, digest, judged, request_of
from conformance.statistics import Ledger
from conformance.statistics.evidence import WrongUse
from conformance.subject import Subject
from conformance.unfinished import Findings, mark_unfinished, not_speculations
from conformance.watcher import Silent, Watcher
from specref.models import BadModel

CHUNK = 64
LARGEST_BLOCK = 1 << 24
"""Numbers in the laws of a chunk: 128 MiB."""
KEPT = 10_000
"""Requests of a mode that the checks look at which see an output as a whole."""


@dataclass(frozen=True)
class Judging:
    """How samples are judged. engine, version: what the report calls their origin. has_draft: whether the subject's draft model
    is the engine's. logprobs: of which law the returned ones are, "raw" or "processed". seed: the judge's own.
    """

    engine: str
    version: str = "(samples)"
    alpha: float = 1e-6
    seed: int = 0
    has_draft: bool = False
    logprobs: str = "raw"
    defaults: Defaults = field(default_factory=Defaults)


def judge_samples(
    path: Path, found: Survey, subject: Subject, judging: Judging, watcher: Watcher | None = None
) -> EngineReport:
    """Judge the file that `found` is the survey of. watcher: is told how it goes on. Raises BadSamples."""
    watching, samples = watcher or Silent(), _Samples(path, found, subject, judging)
    watching.plan(judging.engine, samples.plan)
    watching.begin(judging.engine, sum(one.tokens for one in found.modes.values()))
    try:
        return samples.report(lambda more: watching.advance(judging.engine, more, path.name))
    finally:
        watching.end(judging.engine)


class _Samples:
    def __init__(self, path: Path, found: Survey, subject: Subject, judging: Judging) -> None:
        self.path, self.found, self.subject, self.judging = path, found, subject, judging
        self.modes = {name: _mode(one, judging) for name, one in found.modes.items() if one.sampled or one.greedy}
        self.accepting = [name for name, mode in self.modes.items() if mode.exposes_rounds and mode.rule != "undeclared"]
        self.settings = {name: self._settings(found.modes[name]) for name in self.modes}
        self.ledgers = self._sealed()
        self.states: dict[str, SampledCase] = {}
        self.answers: dict[str, list[tuple[Request, Output, bool]]] = {name: [] for name in self.modes}
        self.findings: Findings = {}
        self.proven: list[str] = []

    def _settings(self, one: ModeSurvey) -> AuditSettings:
        floor = one.floor[bool(self.subject.eos)]
        # The false-alarm rate is one ledger's alone, or a quarter each goes to the control, to speculation and to acceptance.
        shared = bool(self.accepting) or (OFF in self.modes and len(self.modes) > 1)
        level = Level("samples", max(1, floor), one.greedy, "samples gathered elsewhere", requests=int(shared))
        usual = max(1, round(floor / max(one.sampled, 1)))  # tokens of a request, by which shards are cut
        return AuditSettings(level, self.judging.alpha, self.judging.seed, max(one.k, 1), one.temperature, usual)

    def _sealed(self) -> dict[str, Ledger]:
        """The ledgers, from what was counted alone."""
        self.cases = {name: self._case(name) for name in self.modes if self.found.modes[name].sampled}
        ledgers: dict[str, Ledger] = {}
        for name in ("control", "speculation"):
            some = [case for case in self.cases.values() if part(case.mode) == name]
            k = max([self.settings[case.mode.name].k for case in some], default=1)
            if some:
                settings = replace(self.settings[some[0].mode.name], k=k)
                ledgers |= sealed_ledgers(some, self.judging.engine, settings, [self.subject])
        return ledgers

    def _case(self, name: str) -> Case:
        one, mode = self.found.modes[name], self.modes[name]
        same = [other for other in self.modes if self.found.modes[other].sampled and (other == OFF) == (name == OFF)]
        given = {field: value for field, value in (one.law[1] if one.law else {}).items() if value is not None}
        if "logit_bias" in given:
            given["logit_bias"] = dict(given["logit_bias"])
        limit = {"max_tokens": max(1, self.settings[name].max_tokens, given.get("min_tokens", 0))}
        return Case(mode, Setting(PLAIN, {**given, **limit}), tokens=self.settings[name].level.tokens, weight=1 / len(same))

    def plan(self) -> str:
        """What is judged, and what that will have shown."""
        heat = next(iter(self.settings.values()))
        cases = [replace(case, tokens=max(1, self.found.modes[name].tokens)) for name, case in self.cases.items()]
        return can_catch(cases, self.ledgers, [self.subject], heat)

    def report(self, watch: Callable[[int], None]) -> EngineReport:
        """Judge everything."""
        started, clock = datetime.now(UTC), time.monotonic()
        for name, case in self.cases.items():
            case = replace(case, tokens=self._most(name))
            self.states[name] = SampledCase(case, self.subject, self.settings[name], self.ledgers[part(case.mode)], Lock())
        problems: dict[str, str] = {}
        for name, requests, outputs in self._chunks():
            if name in problems or name in self.proven:
                continue
            try:
                before = self.states[name].tokens
                if self.states[name].judge(requests, outputs):
                    self.proven.append(name)  # the rest could not change that
                watch(self.states[name].tokens - before)
            except (WrongUse, BadModel) as refused:
                problems[name] = f"cannot be judged: {refused}"
        for state in self.states.values():
            state.case = replace(state.case, tokens=state.tokens)  # n is whatever the file has
        for finding in findings_of_cases(list(self.states.values()), self.ledgers):
            self.findings[finding.requirement, finding.mode] = finding
        for name, mode in self.modes.items():
            of_mode = OfMode(mode, self.answers[name], self._limited(name), self.subject, self.states.get(name))
            alpha = self.judging.alpha / 4 / max(len(self.accepting), 1)
            self._add(of_mode.findings(alpha, has_draft=self.judging.has_draft))
            for requirement in ("LAW-1", "LAW-2") if name in problems else ():
                mark_unfinished(self.findings, requirement, name, problems[name])
        return self._report(started, time.monotonic() - clock)

    def _most(self, name: str) -> int:
        """An upper bound of the mode's tokens that follows from its requests; without limits, its order of magnitude."""
        most = max(1, self.found.modes[name].most)
        return most if self._limited(name) else 10 ** math.ceil(math.log10(most))

    def _limited(self, name: str) -> bool:
        """Whether the limit of every output is known."""
        return self.found.modes[name].has_limits or self.judging.defaults.max_tokens is not None

    def _add(self, findings: Sequence[Finding]) -> None:
        self.findings |= {(one.requirement, one.mode): one for one in findings}

    def _chunks(self) -> Iterator[tuple[str, list[Request], list[Output]]]:
        """Sampled requests of each mode in the order of submission, some at a time; all others are kept aside on the way."""
        waiting: dict[str, list[tuple[Request, Output]]] = {name: [] for name in self.modes}
        sizes = dict.fromkeys(self.modes, 0)
        for number, sample in judged(self.path, self.judging.defaults):
            try:
                request = request_of(sample, self.judging.defaults, self.subject.eos)
            except ValueError as error:  # the target's own ends and min_tokens, say
                raise BadSamples(number, "settings", str(error), "correct it") from error
            output, name = sample.the_output(), sample.mode
            if len(self.answers[name]) < KEPT:
                self.answers[name].append((request, output, sample.finished))
            if request.settings.temperature == 0:
                continue
            waiting[name].append((request, output))
            sizes[name] += len(output.tokens) * self.subject.target.vocabulary
            if len(waiting[name]) >= CHUNK or sizes[name] >= LARGEST_BLOCK:
                yield _unzipped(name, waiting[name])
                waiting[name], sizes[name] = [], 0
        if digest(self.path) != self.found.digest:
            raise BadSamples(0, self.path.name, "was changed while it was judged", "give the command again once it is complete")
        yield from (_unzipped(name, some) for name, some in waiting.items() if some)

    def _report(self, started: datetime, seconds: float) -> EngineReport:
        judging, names = self.judging, list(self.modes)
        order = sorted(self.findings.values(), key=lambda one: (names.index(one.mode), one.requirement))
        ledger = self.ledgers.get("speculation", self.ledgers.get("control"))
        return EngineReport(
            judging.engine,
            judging.version,
            "samples",
            judging.alpha,
            judging.seed,
            started.isoformat(timespec="seconds"),
            round(seconds, 1),
            self.subject.target_name,
            self.subject.draft_name,
            tuple(not_speculations(order, dict.fromkeys(names, OFF))),
            tuple(state.report() for state in self.states.values() if state.tokens),
            environment(),
            self._plan(),
            ledger.look().log10_e if ledger else None,
            tuple(self._notes()),
        )

    def _plan(self) -> dict[str, object]:
        return {
            "samples": self.path.name,
            "sha256 of the samples": self.found.digest,
            "requests of each mode": {name: one.submitted for name, one in self.found.modes.items()},
            "tokens of each mode": {name: one.tokens for name, one in self.found.modes.items()},
            "registered tokens (chi-square, KS)": {name: case.tokens for name, case in self.cases.items()},
            "sealed plans": {name: ledger.plan.digest for name, ledger in self.ledgers.items()},
        }

    def _notes(self) -> Iterator[str]:
        yield "Judged from samples: how they were chosen, and that none is missing, is their giver's word."
        if not self.judging.has_draft:
            yield "Judged without the draft model: with its folder as --draft, faults of verification show in far fewer tokens."
        if OFF not in self.modes:
            yield f'There are no samples of a mode "{OFF}": what is not speculation\'s fault cannot be told from what is.'
        elif any(one.mode == OFF and one.verdict is Verdict.VIOLATES for one in self.findings.values()):
            yield (
                "Even without speculation the samples are not the target's. Is --target the very model that made them "
                "(weights, revision, prompt with its BOS token), and does every line state its settings?"
            )
        for name, one in self.found.modes.items():
            if one.omitted and one.not_judged:
                yield (
                    f"{name}: {len(one.omitted)} requests were omitted. The {one.not_judged} after the first of them were not "
                    "judged: requests that are left out for what they would have said bias the rest."
                )
            elif one.omitted:
                yield f"{name}: {len(one.omitted)} requests were omitted, which is said to be unrelated to their tokens."
            if one.unfinished:
                yield f"{name}: {one.unfinished} outputs were cut off; what they hold was judged, their ends were not."
        for name in self.proven:
            yield f"{name}: proven wrong after {self.states[name].tokens:,} of its tokens; the law of the rest was not judged."
        for name, answers in self.answers.items():
            if len(answers) == KEPT:
                yield f"{name}: all tokens were judged under LAW; the other checks looked at the first {KEPT:,} requests."


def _mode(one: ModeSurvey, judging: Judging) -> Mode:
    return Mode(
        one.name,
        {} if one.name == OFF else {"sampled": "elsewhere"},
        one.rule,
        "draft model" if judging.has_draft else "n-gram",
        exposes_rounds=one.has_rounds,
        exact_draft=judging.has_draft,
        logprobs=judging.logprobs if one.has_logprobs else "",
    )


def _unzipped(name: str, some: Sequence[tuple[Request, Output]]) -> tuple[str, list[Request], list[Output]]:
    return name, [request for request, _ in some], [output for _, output in some]
