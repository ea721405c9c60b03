"""The audit of one engine: LAW over all cases, greedy decoding, the other families, and the engine's parts; one report.

Jobs run side by side in `lanes` processes of the engine. Whatever an engine does ends in a report: a crash or a hang becomes
the verdict "error" of what was not judged yet in that mode, and the rest goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from typing import Any, Protocol

import numpy as np

from conformance.asking import Asking
from conformance.cases import Case, CasePlan, part, plan_cases
from conformance.checks.accept import acceptance_finding
from conformance.checks.draft import hostile_finding
from conformance.checks.places import not_exposed, not_promised
from conformance.component_audit import NONE, audit_components
from conformance.environment import environment
from conformance.families import GROUPS, STATISTICAL, control_of, family_findings
from conformance.findings import EngineReport, Finding, ModeReport, Verdict
from conformance.greedy_audit import Continued, continue_greedily, greedy_of, has_margin, paired_of, self_draft_of
from conformance.harness import EngineFailed, EngineInfo, Runner
from conformance.lanes import Lanes
from conformance.law_audit import findings_of_cases, sealed_ledgers
from conformance.levels import AuditSettings
from conformance.protocols import Mode, Output, Request
from conformance.sampled_case import SampledCase
from conformance.sampling import NonsenseOutput
from conformance.statistics import Ledger
from conformance.statistics.evidence import WrongUse
from conformance.stop_requests import ends_findings
from conformance.subject import Subject
from conformance.unfinished import Findings, mark_unfinished, not_speculations
from specref.models import BadModel

MOST_FAILURES = 3
"""After this many crashes or hangs an engine is not started again."""
SELF_DRAFT = -1
"""Marks the engine whose draft is the target itself."""


class Watcher(Protocol):
    """Is told how an audit goes on, for a progress display."""

    def begin(self, engine: str, total: int) -> None:
        """An engine's audit begins; `total` tokens, prompts and parts are planned."""

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


@dataclass(frozen=True)
class Pair:
    """A further pair of target and draft that an engine is audited with. name: tells it from the first."""

    name: str
    make_runner: Callable[[], Runner]
    subject: Subject


def audit_engine(
    name: str,
    make_runner: Callable[[], Runner],
    subject: Subject,
    settings: AuditSettings,
    *,
    lanes: int = 1,
    watcher: Watcher | None = None,
    others: Sequence[Pair] = (),
    self_draft: Callable[[], Runner] | None = None,
) -> EngineReport:
    """Audit one engine and report. make_runner starts one process of it (up to `lanes` are used at once).

    others: further pairs of models, with which modes and settings are judged pairwise. self_draft: starts the engine with the
    target in the draft's place.
    """
    audit = _Audit(name, make_runner, subject, settings, watcher or Silent(), others=others, self_draft=self_draft)
    return audit.run(lanes)


@dataclass
class _Job:
    """Something to do with a running engine. reports: (requirement, name) of what it may leave unfinished."""

    what: str
    mode: Mode
    do: Callable[[Runner], None]
    size: int
    reports: Sequence[tuple[str, str]] = ()
    pair: int = 0


@dataclass
class _Audit:
    name: str
    make_runner: Callable[[], Runner]
    subject: Subject
    settings: AuditSettings
    watcher: Watcher
    others: Sequence[Pair] = ()
    self_draft: Callable[[], Runner] | None = None
    plan: CasePlan = field(default_factory=lambda: CasePlan((), {}))
    states: list[SampledCase] = field(default_factory=list)
    findings: Findings = field(default_factory=dict)
    continued: dict[str, Continued] = field(default_factory=dict)
    answers: dict[str, list[tuple[Request, Output]]] = field(default_factory=dict)
    failures: dict[str, EngineFailed] = field(default_factory=dict)
    lossy: Ledger | None = None
    lock: Lock = field(default_factory=Lock)

    def run(self, lanes: int) -> EngineReport:
        started, clock = datetime.now(UTC), time.monotonic()
        makers = [self.make_runner, *(pair.make_runner for pair in self.others), *filter(None, [self.self_draft])]
        engines = Lanes(makers, lanes)
        try:
            with engines.runner() as first:
                info = first.describe(self.settings.k)
        except EngineFailed as failed:
            engines.close()
            finding = Finding("ENGINE", "all", Verdict.ERROR, f"{failed.kind}: {failed}")
            return self._report(EngineInfo(self.name, "unknown", ()), [finding], started, clock, {})
        self.plan = plan_cases(info.modes, self.settings, self.subject, [pair.name for pair in self.others])
        ledgers = self._ledgers(info.modes)
        _ = self.subject.tolerance  # measured once, before threads ask for it
        jobs = self._jobs(info.modes, ledgers)
        self.watcher.begin(self.name, sum(job.size for job in jobs))
        try:
            with ThreadPoolExecutor(lanes) as pool:
                list(pool.map(lambda job: self._do(job, engines), jobs))
            findings = self._judged(info.modes, jobs, ledgers)
        finally:
            engines.close()
            self.watcher.end(self.name)
        return self._report(info, findings, started, clock, ledgers)

    @property
    def _subjects(self) -> list[Subject]:
        return [self.subject, *(pair.subject for pair in self.others)]

    @property
    def _alpha(self) -> float:
        """The ledger's false-alarm rate: all of it where nothing else is judged by statistics, else half."""
        level = self.settings.level
        return self.settings.alpha / 2 if level.requests or level.rows else self.settings.alpha

    def _ledgers(self, modes: Sequence[Mode]) -> dict[bool, Ledger]:
        """The run's ledger (True) and the control's (False), with their plans sealed."""
        made = sealed_ledgers(self.plan.cases, self.name, self.settings, self._subjects, self._alpha)
        self.lossy = made.get("lossy")
        return {what == "speculation": ledger for what, ledger in sorted(made.items()) if what != "lossy"}

    def _ledger(self, mode: Mode, ledgers: Mapping[bool, Ledger]) -> Ledger:
        if part(mode) == "lossy":
            assert self.lossy is not None
            return self.lossy
        return ledgers[mode.speculates]

    def _jobs(self, modes: Sequence[Mode], ledgers: Mapping[bool, Ledger]) -> list[_Job]:
        """The control comes first, and the long jobs before the short ones, so that the lanes end together."""
        level = self.settings.level
        jobs = [self._case_job(case, self._ledger(case.mode, ledgers)) for case in self.plan.cases]
        for mode in modes:
            jobs.append(_Job("greedy", mode, partial(self._greedy, mode), level.prompts, [("GREEDY-1", mode.name)]))
            if level.requests:
                requirements = [one for group, _ in GROUPS for one in group if mode.speculates or one != "ACCEPT-3"]
                reports = [(one, mode.name) for one in requirements]
                jobs.append(_Job("families", mode, partial(self._families, mode), 40 * level.requests, reports))
                if mode.speculates and self.self_draft and mode.draft_law == "draft model" and "ACCEPT-2" in mode.promises:
                    pair, do = len(self.others) + 1, partial(self._self_draft, mode)
                    jobs.append(_Job("self-draft", mode, do, level.requests, [("ACCEPT-2", mode.name)], pair))
        jobs.sort(key=lambda job: (job.pair, job.mode.speculates, -job.size))
        if level.rows:
            jobs.insert(0, _Job("components", modes[0], self._components, level.rows, [("LAW-3", NONE)]))
        return jobs

    def _case_job(self, case: Case, ledger: Ledger) -> _Job:
        state = SampledCase(case, self._subjects[case.pair], self.settings, ledger, self.lock)
        self.states.append(state)
        do = partial(state.run, watch=lambda amount: self.watcher.advance(self.name, amount, case.name))
        reports = [(requirement, case.name) for requirement in ("LAW-1", "LAW-2")]
        return _Job(case.setting.name, case.mode, do, case.tokens, reports, case.pair)

    def _do(self, job: _Job, engines: Lanes) -> None:
        problem = self._given_up(job)
        if problem is None:
            with engines.runner(job.pair) as runner:
                problem = self._problem(job, runner)
        for requirement, name in job.reports if problem else ():
            mark_unfinished(self.findings, requirement, name, problem or "")

    def _given_up(self, job: _Job) -> str | None:
        failed = self.failures.get(job.mode.name) if job.what != "components" else None
        if failed is None and len(self.failures) >= MOST_FAILURES:
            failed = list(self.failures.values())[-1]
        return f"not judged, because the engine had failed before ({failed.kind}: {failed})" if failed else None

    def _problem(self, job: _Job, runner: Runner) -> str | None:
        """Do a job; what went wrong with it."""
        try:
            job.do(runner)
        except EngineFailed as failed:
            if failed.kind != "unsupported":
                self.failures[job.mode.name] = failed
            return f"{failed.kind}: {failed}"
        except NonsenseOutput as nonsense:
            return f"nonsense: {nonsense}"
        except (WrongUse, BadModel) as refused:  # numerics too coarse for the check, or no numbers at all
            return f"cannot be judged: {refused}"
        return None

    def _greedy(self, mode: Mode, runner: Runner) -> None:
        planned = self.settings.level.prompts

        def watch(amount: int) -> None:
            self.watcher.advance(self.name, amount, f"{mode.name}, greedy")

        done = continue_greedily(runner, mode, self.subject, self.settings, watch, planned)
        self.continued[mode.name] = done
        self._answered(mode, zip(done.requests, done.answers))
        self._put(greedy_of(mode, done, self.subject, planned))

    def _families(self, mode: Mode, runner: Runner) -> None:
        asking = Asking(runner, mode, self.subject, self.settings)
        try:
            for found in family_findings(asking, self.settings.alpha / 4 / self._modes):
                if isinstance(found, EngineFailed):
                    raise found
                self._put(found)
        finally:
            self._answered(mode, asking.answered)
            self.watcher.advance(self.name, 40 * self.settings.level.requests, f"{mode.name}, families")

    def _self_draft(self, mode: Mode, runner: Runner) -> None:
        own = replace(self.subject, draft=self.subject.target)
        self._put(self_draft_of(runner, mode, own, self.settings))

    def _components(self, runner: Runner) -> None:
        def watch(name: str) -> None:
            self.watcher.advance(self.name, 0, f"component {name}")

        for finding in audit_components(runner, self.subject, self.settings, self.settings.alpha / 4, watch):
            self._put(finding)
        self.watcher.advance(self.name, self.settings.level.rows, "components")

    @property
    def _modes(self) -> int:
        return max(1, len({case.mode.name for case in self.plan.cases}))

    def _put(self, finding: Finding) -> None:
        self.findings[finding.requirement, finding.mode] = finding

    def _answered(self, mode: Mode, some: Iterable[tuple[Request, Output]]) -> None:
        with self.lock:
            self.answers.setdefault(mode.name, []).extend(some)

    def _judged(self, modes: Sequence[Mode], jobs: Sequence[_Job], ledgers: Mapping[bool, Ledger]) -> list[Finding]:
        """All findings, now that everything was asked."""
        unfinished = {key: one for key, one in self.findings.items() if one.requirement in ("LAW-1", "LAW-2")}
        named = {"speculation" if speculating else "control": ledger for speculating, ledger in ledgers.items()}
        if self.lossy is not None:
            named["lossy"] = self.lossy
        for finding in findings_of_cases(self.states, named):
            self._put(finding)
            before = unfinished.get((finding.requirement, finding.mode))
            if before is not None:
                mark_unfinished(self.findings, finding.requirement, finding.mode, before.summary)
        for state in self.states:
            if not state.case.pair:
                self._answered(state.mode, state.first)
        for mode in modes:
            self._ends(mode)
            if mode.speculates and self.settings.level.requests:
                self._acceptance(mode)
        self._compared(modes)
        order = {name: place for place, name in enumerate(self._names(modes))}
        found = sorted(self.findings.values(), key=lambda one: (order.get(one.mode, len(order)), one.mode, one.requirement))
        return not_speculations(found, self._controls(modes))

    def _ends(self, mode: Mode) -> None:
        """STOP in one mode, over all that it answered."""
        answered, level = self.answers.get(mode.name), self.settings.level
        if not answered:
            return
        for finding in ends_findings(mode, answered, planned=min(4, level.requests) or 1, k=self.settings.k):
            refused = self.findings.get((finding.requirement, finding.mode))
            if finding.n or (level.requests and refused is None):
                self._put(finding)

    def _acceptance(self, mode: Mode) -> None:
        """ACCEPT-1 from the rounds of the plain case and its like, and what is to be said where ACCEPT-2 was not tried."""
        for requirement, what in (("ACCEPT-1", "its acceptance"), ("ACCEPT-2", "full acceptance of the target's own drafts")):
            if requirement not in mode.promises:
                self._put(not_promised(requirement, mode.name, what))
        if "ACCEPT-2" in mode.promises and ("ACCEPT-2", mode.name) not in self.findings:
            self._put(not_exposed("ACCEPT-2", mode.name, "a way to let the target draft for itself"))
        if "ACCEPT-1" not in mode.promises:
            return
        state = next((one for one in self.states if one.mode.name == mode.name and one.drafts), None)
        if state is None:
            self._put(not_exposed("ACCEPT-1", mode.name, "its rounds"))
            return
        parts: list[Any] = list(zip(*state.drafts, strict=True))
        p, q, drafts, flags = (np.concatenate(some) for some in parts)
        alpha = self.settings.alpha / 4 / self._modes / STATISTICAL
        self._put(acceptance_finding(mode.name, mode.rule, p, q, drafts, flags, planned=1, alpha=alpha))

    def _compared(self, modes: Sequence[Mode]) -> None:
        """Greedy outputs beside the control's: GREEDY-2 where no token convicts alone, else DRAFT-2 of hostile drafts."""
        convicts = has_margin(self.subject)
        for mode in modes:
            control = control_of(mode, modes)
            on, off = (self.continued.get(one.name) for one in (mode, control or mode))
            if on is None or off is None or not mode.speculates or mode.lossy:
                continue
            planned = self.settings.level.prompts
            if not convicts:
                alpha = self.settings.alpha / 4 / self._modes / STATISTICAL
                self._put(paired_of(mode, on, off, self.subject, planned, alpha))
            elif mode.speculation.get("hostile"):
                outputs = {str(mode.speculation["hostile"]): on.outputs}
                logits, margin = self.subject.target.logits(off.sequences), self.subject.margin
                self._put(hostile_finding(mode.name, off.outputs, outputs, planned, logits=logits, margin=margin))

    def _names(self, modes: Sequence[Mode]) -> list[str]:
        """Every name under which something is reported, in the report's order."""
        return [
            name
            for mode in modes
            for name in dict.fromkeys([mode.name, *(case.name for case in self.plan.cases if case.mode.name == mode.name)])
        ]

    def _controls(self, modes: Sequence[Mode]) -> dict[str, str]:
        """By the name of a report, that of the same thing without speculation."""
        found = {}
        for mode in modes:
            control = control_of(mode, modes) if mode.speculates else mode
            for name in self._names([mode]):
                found[name] = name.replace(mode.name, control.name, 1) if control else ""
        return found

    def _report(
        self,
        info: EngineInfo,
        findings: Sequence[Finding],
        started: datetime,
        clock: float,
        ledgers: Mapping[bool, Ledger],
    ) -> EngineReport:
        settings, ledger = self.settings, ledgers.get(True)
        reports: dict[str, ModeReport] = {state.case.name: state.report() for state in self.states if state.tokens}
        plan = {
            "tokens of each case": {case.name: case.tokens for case in self.plan.cases},
            "pairs of values that meet in a case": {factors: list(pairs) for factors, pairs in self.plan.pairs.items()},
            "prompts per greedy mode": settings.level.prompts,
            "requests per group of the other families": settings.level.requests,
            "rows per component": settings.level.rows,
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
            tuple(reports[name] for name in self._names(info.modes) if name in reports),
            environment(),
            plan,
            ledger.look().log10_e if ledger else None,
            tuple(self._notes(info.modes)),
        )

    def _notes(self, modes: Sequence[Mode]) -> list[str]:
        notes = []
        for mode in modes:
            beyond = sum(state.beyond for state in self.states if state.mode.name == mode.name)
            beyond += self.continued[mode.name].beyond if mode.name in self.continued else 0
            if beyond:
                said = f"outputs that went on after their end (EOS or the limit): {beyond}"
                notes.append(f"{mode.name}: {said}. What follows the end was not judged.")
        return notes
