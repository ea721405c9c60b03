"""The audit of one engine: LAW over all cases, greedy decoding, the other families, and the engine's parts; one report.

Jobs run side by side in `lanes` processes of the engine. Whatever an engine does ends in a report: a crash or a hang becomes
the verdict "error" of what was not judged yet in that mode, and the rest goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from conformance.asking import Asking, Judge
from conformance.case_plan import plan_cases
from conformance.cases import Case, part
from conformance.component_audit import NONE, audit_components
from conformance.crew import Crew
from conformance.diagnosis import Diagnosis, with_what_follows
from conformance.environment import environment
from conformance.evidence.recording import Evidence, Unkept
from conformance.families import WORK_OF_A_FAMILY, asked_modes, control_of, expected_of, family_findings
from conformance.findings import EngineReport, Finding, ModeReport, Verdict
from conformance.gathered import Gathered
from conformance.greedy_audit import continue_greedily, greedy_of, self_draft_of
from conformance.harness import EngineInfo, Runner
from conformance.jobs import COMPONENTS, FAMILIES, GREEDY, Failures, Job, turns
from conformance.lanes import Lanes
from conformance.law_audit import can_catch, sealed_ledgers
from conformance.levels import AuditSettings
from conformance.not_here import leave_out, not_tried, run_here
from conformance.problems import EngineFailed
from conformance.protocols import Mode
from conformance.sampled_case import SampledCase
from conformance.sampling import NonsenseOutput
from conformance.second_turn import WHAT, has_second_turn, reports_of, second_turn_findings
from conformance.statistics import Ledger, WrongUse
from conformance.subject import Subject
from conformance.triage import first_of_each_mode, narrow
from conformance.unfinished import mark_unfinished
from conformance.watcher import Silent, Watcher
from specref.models import BadModel

MOST_PROBED = 3
"""Modes whose violations are probed at the lowest level; at the others all are."""


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
    evidence: Evidence | None = None,
    without: Collection[str] = (),
) -> EngineReport:
    """Audit one engine and report. make_runner starts one process of it (up to `lanes` are used at once).

    others: further pairs of models, with which modes and settings are judged pairwise. self_draft: starts the engine with the
    target in the draft's place. evidence: where answers are kept, and read from if the audit was interrupted. without: laws
    that are not bet on, so that the judge's own study sees what it would find had nobody thought of a fault.
    """
    watching, kept = watcher or Silent(), evidence or Unkept()
    return _Audit(name, make_runner, subject, settings, watching, others, self_draft, kept, without).run(lanes)


@dataclass
class _Audit:
    name: str
    make_runner: Callable[[], Runner]
    subject: Subject
    settings: AuditSettings
    watcher: Watcher
    others: Sequence[Pair] = ()
    self_draft: Callable[[], Runner] | None = None
    evidence: Evidence = field(default_factory=Unkept)
    without: Collection[str] = ()
    failures: Failures = field(default_factory=Failures)

    def __post_init__(self) -> None:
        self.gathered = Gathered(self.subject, self.settings)
        makers = [self.make_runner, *(pair.make_runner for pair in self.others), *filter(None, [self.self_draft])]
        self.engines = Lanes([self._kept(make, pair) for pair, make in enumerate(makers)])

    def _kept(self, make: Callable[[], Runner], pair: int) -> Callable[[], Runner]:
        return lambda: self.evidence.recording(make(), pair)

    def run(self, lanes: int) -> EngineReport:
        started, clock = datetime.now(UTC), time.monotonic()
        self.engines.open(lanes)
        try:
            try:
                with self.engines.runner() as first:
                    info = first.describe(self.settings.k)
            except EngineFailed as failed:
                finding = Finding("ENGINE", "all", Verdict.ERROR, f"{failed.kind}: {failed}")
                return self._report(EngineInfo(self.name, "unknown", ()), [finding], started, clock, {})
            findings, ledgers = self._judge(run_here(self.gathered.findings, info.modes, self.settings), lanes)
        finally:
            self.engines.close()
        return self._report(info, findings, started, clock, ledgers)

    def _judge(self, modes: Sequence[Mode], lanes: int) -> tuple[list[Finding], dict[str, Ledger]]:
        """Plan, ask, and judge."""
        made, settings = self.gathered, self.settings
        made.modes = modes
        made.plan = plan_cases(modes, settings, self.subject, [pair.name for pair in self.others])
        here = [mode for mode in modes if not mode.not_here]
        made.asked = [mode.name for mode in asked_modes(here, settings)] if settings.level.requests else ()
        leave_out(made.findings, made.plan.absent, modes, settings)
        ledgers = sealed_ledgers(made.plan.cases, self.name, settings, self._subjects, self.without)
        self.evidence.seal(ledgers)
        told = partial(can_catch, made.plan.cases, ledgers, self._subjects, settings)
        self.watcher.plan(self.name, lambda: "\n".join([told(), *not_tried(modes)]))
        _ = self.subject.tolerance  # measured once, before threads ask for it
        jobs = self._jobs(here, ledgers)
        self.watcher.begin(self.name, sum(job.size for job in jobs))
        try:
            with ThreadPoolExecutor(lanes) as pool:
                list(pool.map(self._take_turn, turns(jobs)))
        finally:
            self.watcher.end(self.name)
        findings = self._narrowed(made.judged(ledgers), lanes)
        self.evidence.finish(ledgers)
        return findings, ledgers

    def _narrowed(self, findings: Sequence[Finding], lanes: int) -> list[Finding]:
        """Where a law is violated, probes narrow the cause; the first violation of each mode says it."""
        found = {(one.requirement, one.mode): one for one in findings}
        controls = self.gathered.controls()
        most = 0 if not self.settings.level.requests else MOST_PROBED if self.settings.level.cases == "plain" else None
        together = first_of_each_mode(self.gathered.states, found)[:most]
        if not together:
            return list(findings)
        work = f"{self.name}, causes"

        def cause(state: SampledCase) -> Diagnosis:
            try:
                without = control_of(state.mode, self.gathered.modes) if state.mode.speculates else None
                return narrow(state, found, controls.get(state.case.name, ""), self.engines, without)
            except (EngineFailed, NonsenseOutput, WrongUse, BadModel) as problem:
                return Diagnosis("unknown", f"the probes could not be finished ({problem})")
            finally:
                self.watcher.advance(work, 1, state.case.name)

        self.watcher.begin(work, len(together))
        try:
            with ThreadPoolExecutor(lanes) as pool:
                causes = list(pool.map(cause, [some[0] for some in together]))
        finally:
            self.watcher.end(work)
        for why, some in zip(causes, together, strict=True):
            for mode, name in [(state.mode.name, state.case.name) for state in some]:
                law = next(one for one in ("LAW-1", "LAW-2") if found[one, name].verdict is Verdict.VIOLATES)
                found[law, name] = why.of_mode(some[0].mode.name, mode).added_to(found[law, name])
        return with_what_follows(found.values())

    @property
    def _subjects(self) -> list[Subject]:
        return [self.subject, *(pair.subject for pair in self.others)]

    def _jobs(self, modes: Sequence[Mode], ledgers: Mapping[str, Ledger]) -> list[Job]:
        """All that is to be done: cases, greedy decoding and families of every mode, and the components."""
        level, jobs = self.settings.level, []
        for case in self.gathered.plan.cases:
            jobs.append(self._case_job(case, ledgers[part(case.mode)]))
        for mode in modes:
            if not mode.brief:
                greedy = partial(self._greedy, mode)
                jobs.append(Job(GREEDY, mode, greedy, self.gathered.prompts, [("GREEDY-1", mode.name)]))
            if mode.name not in self.gathered.asked:
                continue
            reports, size = [(one, mode.name) for one in expected_of(mode)], WORK_OF_A_FAMILY * level.requests
            jobs.append(Job(FAMILIES, mode, partial(self._families, mode, family_findings), size, reports))
            if has_second_turn(mode):
                jobs.append(Job(WHAT, mode, partial(self._families, mode, second_turn_findings), size, reports_of(mode)))
            if mode.speculates and self.self_draft and mode.draft_law == "draft model" and "ACCEPT-2" in mode.promises:
                pair, do = len(self.others) + 1, partial(self._self_draft, mode)
                jobs.append(Job("self-draft", mode, do, level.requests, [("ACCEPT-2", mode.name)], pair))
        if level.rows:
            jobs.append(Job(COMPONENTS, self.gathered.modes[0], self._components, level.rows, [("LAW-3", NONE)]))
        return jobs

    def _case_job(self, case: Case, ledger: Ledger) -> Job:
        state = SampledCase(case, self._subjects[case.pair], self.settings, ledger, self.gathered.lock)
        self.gathered.states.append(state)

        def do(runner: Runner) -> None:
            crew = Crew(runner, self.engines, case.pair)
            state.run(crew, lambda amount: self.watcher.advance(self.name, amount, f"{case.name}, {state.standing}"))

        reports = [(requirement, case.name) for requirement in ("LAW-1", "LAW-2")]
        return Job(case.setting.name, case.mode, do, case.tokens, reports, case.pair)

    def _take_turn(self, turn: Sequence[Job]) -> None:
        with self.engines.runner(turn[0].pair) as runner:
            for job in turn:
                problem = self.failures.against(job) or self._problem(job, runner)
                for requirement, name in job.reports if problem else ():
                    mark_unfinished(self.gathered.findings, requirement, name, problem or "")

    def _problem(self, job: Job, runner: Runner) -> str | None:
        """Do a job; what went wrong with it."""
        try:
            job.do(runner)
            self.failures.went_well()
        except EngineFailed as failed:
            self.failures.note(job, failed)
            return f"{failed.kind}: {failed}"
        except NonsenseOutput as nonsense:
            return f"nonsense: {nonsense}"
        except (WrongUse, BadModel) as refused:  # numerics too coarse for the check, or no numbers at all
            return f"cannot be judged: {refused}"
        return None

    def _greedy(self, mode: Mode, runner: Runner) -> None:
        def watch(amount: int) -> None:
            self.watcher.advance(self.name, amount, f"{mode.name}, greedy")

        planned = self.gathered.prompts
        done = continue_greedily(runner, mode, self.subject, self.settings, watch, planned)
        self.gathered.continued[mode.name] = done
        self.gathered.answered(mode, zip(done.requests, done.answers))
        self.gathered.put(greedy_of(mode, done, self.subject, planned))

    def _families(self, mode: Mode, judge: Judge, runner: Runner) -> None:
        asking = Asking(runner, mode, self.subject, self.settings)
        try:
            for found in judge(asking, self.gathered.alpha_of_mode):
                if isinstance(found, EngineFailed):
                    raise found
                self.gathered.put(found)
        finally:
            self.gathered.answered(mode, asking.answered)
            self.watcher.advance(self.name, WORK_OF_A_FAMILY * self.settings.level.requests, f"{mode.name}, families")
            if asking.refusals:  # what a refusal leaves behind is not the next mode's fault
                self.engines.spend(runner)

    def _self_draft(self, mode: Mode, runner: Runner) -> None:
        own = replace(self.subject, draft=self.subject.target)
        self.gathered.put(self_draft_of(runner, mode, own, self.settings))

    def _components(self, runner: Runner) -> None:
        watch = partial(self.watcher.advance, self.name, 0)
        found = list(audit_components(runner, self.subject, self.settings, self.settings.alpha / 4, watch))
        for finding in found:
            self.gathered.put(finding)
        alone = "its parts alone" if any(one.mode != NONE for one in found) else "no parts to judge alone"
        self.watcher.advance(self.name, self.settings.level.rows, alone)

    def _report(
        self,
        info: EngineInfo,
        findings: Sequence[Finding],
        started: datetime,
        clock: float,
        ledgers: Mapping[str, Ledger],
    ) -> EngineReport:
        settings, ledger, made = self.settings, ledgers.get("speculation"), self.gathered
        reports: dict[str, ModeReport] = {state.case.name: state.report() for state in made.states if state.tokens}
        return EngineReport(
            info.name,
            info.version,
            settings.level.name,
            settings.alpha,
            settings.seed,
            started.isoformat(timespec="seconds"),
            round(time.monotonic() - clock, 1),
            self.subject.target_name,
            self.subject.draft_name,
            tuple(findings),
            tuple(reports[name] for name in made.names() if name in reports),
            environment(),
            {**made.planned(), "sealed plan": ledger.plan.digest if ledger else "none"},
            ledger.look().log10_e if ledger else None,
            (*(f"Not asked, because of a fault of {info.name}: {one}." for one in info.not_asked), *made.notes()),
        )
