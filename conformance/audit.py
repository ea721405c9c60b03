"""The audit of one engine: every mode sampled and greedy, speculation off first, one ledger for all that speculates.

Modes run side by side in `lanes` processes of the engine. Whatever an engine does ends in a report: a crash or a hang becomes
the verdict "error" of what was not judged yet.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from queue import SimpleQueue
from threading import Lock
from typing import Protocol

from conformance.checks.greedy import greedy_finding
from conformance.checks.law import law_findings
from conformance.checks.stop import stop_findings
from conformance.findings import EngineReport, Finding, ModeReport, Verdict
from conformance.harness import EngineFailed, EngineInfo, Runner
from conformance.levels import AuditSettings
from conformance.protocols import Mode, Output, Request
from conformance.sampling import NonsenseOutput, SampledMode, check_output, judged_part, request_seed
from conformance.statistics import Ledger, ModePlan, Plan
from conformance.statistics.evidence import WrongUse
from conformance.subject import Subject
from specref.models import BadModel
from specref.processors import SamplingSettings


class Watcher(Protocol):
    """Is told how an audit goes on, for a progress display."""

    def begin(self, engine: str, total: int) -> None:
        """An engine's audit begins; `total` tokens and prompts are planned."""

    def advance(self, engine: str, amount: int, doing: str) -> None:
        """Some more were judged, in the mode that `doing` names."""

    def end(self, engine: str) -> None:
        """The engine's audit has ended."""


class Silent:
    """Watches without showing anything."""

    def begin(self, engine: str, total: int) -> None:
        """See `Watcher.begin`."""

    def advance(self, engine: str, amount: int, doing: str) -> None:
        """See `Watcher.advance`."""

    def end(self, engine: str) -> None:
        """See `Watcher.end`."""


def audit_engine(
    name: str,
    make_runner: Callable[[], Runner],
    subject: Subject,
    settings: AuditSettings,
    *,
    lanes: int = 1,
    watcher: Watcher | None = None,
) -> EngineReport:
    """Audit one engine and report. make_runner starts one process of it (up to `lanes` are used at once)."""
    audit = _Audit(name, make_runner, subject, settings, watcher or Silent())
    return audit.run(lanes)


@dataclass
class _Audit:
    name: str
    make_runner: Callable[[], Runner]
    subject: Subject
    settings: AuditSettings
    watcher: Watcher
    findings: dict[tuple[str, str], Finding] = field(default_factory=dict)
    mode_reports: dict[str, ModeReport] = field(default_factory=dict)
    beyond: dict[str, int] = field(default_factory=dict)
    answers: dict[str, list[tuple[Request, Output]]] = field(default_factory=dict)
    failure: EngineFailed | None = None
    lock: Lock = field(default_factory=Lock)

    def run(self, lanes: int) -> EngineReport:
        started, clock = datetime.now(UTC), time.monotonic()
        idle: SimpleQueue[Runner] = SimpleQueue()
        for _ in range(lanes):
            idle.put(self.make_runner())
        first = idle.get()
        try:
            info = first.describe(self.settings.k)
        except EngineFailed as failed:
            first.close()
            finding = Finding("ENGINE", "all", Verdict.ERROR, f"{failed.kind}: {failed}")
            return self._report(EngineInfo(self.name, "unknown", ()), [finding], started, clock, None)
        idle.put(first)
        ledgers = self._ledgers(info.modes)
        jobs = self._jobs(info.modes, ledgers)
        self.watcher.begin(self.name, sum(job.size for job in jobs))
        try:
            with ThreadPoolExecutor(lanes) as pool:
                list(pool.map(lambda job: self._do(job, idle), jobs))
        finally:
            while not idle.empty():
                idle.get().close()
            self.watcher.end(self.name)
        findings = self._law_findings(jobs, ledgers)
        return self._report(info, findings, started, clock, ledgers.get(True))

    def _ledgers(self, modes: Sequence[Mode]) -> dict[bool, Ledger]:
        """The run's ledger (True) and the control's (False), with their plans sealed."""
        ledgers = {}
        for speculating in (False, True):
            some = [mode for mode in modes if mode.speculates == speculating]
            if some and self.settings.temperature > 0:
                plans = tuple(self._mode_plan(mode, 1 / len(some)) for mode in some)
                plan = Plan(plans, self.settings.alpha)
                ledgers[speculating] = Ledger(plan, f"{self.name} seed {self.settings.seed}", self.settings.seed)
        return ledgers

    def _mode_plan(self, mode: Mode, weight: float) -> ModePlan:
        level = self.settings.level
        return ModePlan.standard(
            mode.name,
            level.tokens,
            weight=weight,
            k=self.settings.k,
            segments=mode.exposes_rounds and mode.speculates,
            slots=mode.exposes_rounds and mode.speculates,
            batch=False,
            ratio_rule=mode.rule == "ratio" and mode.draft_law == "draft model" and mode.exposes_rounds,
            requests_per_shard=max(1, level.tokens // self.settings.max_tokens // 8),
        )

    def _jobs(self, modes: Sequence[Mode], ledgers: dict[bool, Ledger]) -> list[_Job]:
        jobs = [_Job(mode, None, self.settings.level.prompts) for mode in modes]
        for mode in modes:
            if mode.speculates in ledgers:
                state = SampledMode(mode, self.subject, self.settings, ledgers[mode.speculates], self.lock)
                jobs.append(_Job(mode, state, self.settings.level.tokens))
        # The control comes first, and the long jobs before the short ones, so that the lanes end together.
        return sorted(jobs, key=lambda job: (job.mode.speculates, job.sampled is None))

    def _do(self, job: _Job, idle: SimpleQueue[Runner]) -> None:
        if self.failure is not None:
            return
        runner = idle.get()
        try:
            if job.sampled is not None:
                job.sampled.run(runner, lambda amount: self.watcher.advance(self.name, amount, job.mode.name))
            else:
                self._greedy(job.mode, runner)
        except EngineFailed as failed:
            job.problem = f"{failed.kind}: {failed}"
            if failed.kind != "unsupported":
                self.failure = failed
        except NonsenseOutput as nonsense:
            job.problem = f"nonsense: {nonsense}"
        except (WrongUse, BadModel) as refused:  # numerics too coarse for the check, or no numbers at all
            job.problem = f"cannot be judged: {refused}"
        finally:
            idle.put(runner)

    def _greedy(self, mode: Mode, runner: Runner) -> None:
        """Continue the prompts at temperature 0; the same prompts in every mode."""
        planned = self.settings.level.prompts
        sampling = SamplingSettings(max_tokens=self.settings.max_tokens, temperature=0.0, eos=self.subject.eos)
        seeds = [request_seed(self.settings.seed, "greedy", number) for number in range(planned)]
        requests = [Request(self.subject.prompts.prompt(seed), sampling, seed) for seed in seeds]
        answers: list[Output] = []
        for answer in runner.generate(mode, requests):
            answers.append(answer)
            self.watcher.advance(self.name, 1, f"{mode.name}, greedy")
        # Only now that all were heard: an answer left in the pipe would be taken for the next mode's.
        for request, answer in zip(requests, answers, strict=True):
            check_output(request, answer, self.subject.target.vocabulary)
        outputs = [judged_part(request, answer) for request, answer in zip(requests, answers)]
        self.answers.setdefault(mode.name, []).extend(zip(requests, answers))
        self.beyond[mode.name] = sum(len(answer.tokens) > len(part) for answer, part in zip(answers, outputs))
        with self.lock:
            margin = self.subject.margin
        logits = self.subject.target.logits([(request.prompt, output) for request, output in zip(requests, outputs)])
        finding = greedy_finding(mode.name, outputs, logits, margin, planned)
        self.findings[finding.requirement, mode.name] = finding

    def _law_findings(self, jobs: Sequence[_Job], ledgers: dict[bool, Ledger]) -> list[Finding]:
        looks = {speculating: ledger.look() for speculating, ledger in ledgers.items()}
        for job in jobs:
            state = job.sampled
            requirements = ("GREEDY-1",) if state is None else ("LAW-1", "LAW-2")
            if state is not None and state.tokens:
                self.beyond[job.mode.name] = self.beyond.get(job.mode.name, 0) + state.beyond
                self.mode_reports[job.mode.name] = state.report()
                self.answers.setdefault(job.mode.name, []).extend(state.first)
                for finding in law_findings(
                    ledgers[job.mode.speculates],
                    job.mode.name,
                    looks[job.mode.speculates],
                    state.rows,
                    tokens=state.tokens,
                    planned=self.settings.level.tokens,
                ):
                    self.findings[finding.requirement, job.mode.name] = finding
            for requirement in requirements:
                self._mark_unfinished(job, requirement)
        for mode, answered in self.answers.items():
            self._stop_findings(mode, answered)
        order = {mode: place for place, mode in enumerate(dict.fromkeys(job.mode.name for job in jobs))}
        found = sorted(self.findings.values(), key=lambda finding: (order[finding.mode], finding.requirement))
        return _not_speculations(found, {job.mode.name for job in jobs if not job.mode.speculates})

    def _stop_findings(self, mode: str, answered: Sequence[tuple[Request, Output]]) -> None:
        """STOP in one mode, for the kinds of end that were due in what it answered, sampled and greedy."""
        requests, outputs = zip(*answered, strict=True)
        for finding in stop_findings(mode, requests, outputs, planned=1):
            if finding.n:
                self.findings[finding.requirement, mode] = finding

    def _mark_unfinished(self, job: _Job, requirement: str) -> None:
        """What a problem kept from being judged gets the verdict that says so; a violation found before it stands."""
        known = self.findings.get((requirement, job.mode.name))
        if known is not None and known.verdict in (Verdict.VIOLATES, Verdict.CONFORMS):
            return
        problem = job.problem
        if problem is None and known is None and self.failure is not None:
            problem = f"not judged, because the engine had failed before ({self.failure.kind}: {self.failure})"
        if problem is None:
            return
        verdict = Verdict.ERROR
        if problem.startswith("unsupported") and known is None:  # it may refuse a mode, but not half of it
            verdict = Verdict.NOT_EXPOSED
        elif problem.startswith("cannot be judged"):
            verdict = Verdict.INCONCLUSIVE
        base = known or Finding(requirement, job.mode.name, verdict, problem)
        self.findings[requirement, job.mode.name] = replace(base, verdict=verdict, summary=problem)

    def _report(
        self, info: EngineInfo, findings: Sequence[Finding], started: datetime, clock: float, ledger: Ledger | None
    ) -> EngineReport:
        settings = self.settings
        plan = {
            "tokens per sampled mode": settings.level.tokens,
            "prompts per greedy mode": settings.level.prompts,
            "drafts per round (k)": settings.k,
            "temperature": settings.temperature,
            "new tokens per request": settings.max_tokens,
            "sealed plan": ledger.plan.digest if ledger else "none",
        }
        return EngineReport(
            self.name,
            info.version,
            settings.level.name,
            settings.alpha,
            settings.seed,
            started.isoformat(timespec="seconds"),
            round(time.monotonic() - clock, 1),
            self.subject.target_name,
            self.subject.draft_name,
            tuple(findings),
            tuple(self.mode_reports[mode.name] for mode in info.modes if mode.name in self.mode_reports),
            environment(),
            plan,
            ledger.look().log10_e if ledger else None,
            tuple(
                f"{mode}: outputs that went on after their end (EOS or the limit): {n}. What follows the end was not judged."
                for mode, n in self.beyond.items()
                if n
            ),
        )


@dataclass
class _Job:
    """One mode, sampled (with its state) or greedy. problem: why it could not be finished."""

    mode: Mode
    sampled: SampledMode | None
    size: int
    problem: str | None = None


def _not_speculations(findings: Sequence[Finding], controls: set[str]) -> list[Finding]:
    """Mark violations that the control shows too: a fault that is there without speculation is not speculation's."""
    control = {one.requirement for one in findings if one.mode in controls and one.verdict is Verdict.VIOLATES}
    return [
        replace(one, not_speculation=True) if one.verdict is Verdict.VIOLATES and one.requirement in control else one
        for one in findings
    ]


def environment() -> dict[str, str]:
    """Versions that a reader needs to repeat the audit."""
    versions = {"python": platform.python_version(), "machine": platform.machine()}
    for package in ("specref", "torch", "transformers", "numpy"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed as a package"
    return versions
