"""One run of the command: which engines, the plan, the audits with a progress bar, the table and the reports."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path

import torch
from rich.console import Console

from conformance.audit import Pair, audit_engine
from conformance.case_plan import FIRST_PAIR
from conformance.checks.law import numerics_show
from conformance.engines import REGISTRY, Registered
from conformance.engines.named import engine_named
from conformance.environment import environment
from conformance.evidence.recording import Kept
from conformance.expected import mark_expected, read_expected
from conformance.findings import EngineReport, Verdict, exit_code
from conformance.harness import EngineProcess, Runner
from conformance.levels import AuditSettings
from conformance.memory import memory_of_machine
from conformance.not_here import not_run
from conformance.problems import UsageProblem
from conformance.progress import watching
from conformance.protocols import Models
from conformance.reporting import write
from conformance.reporting.terminal import print_table
from conformance.reporting.write import refuse_unwritable
from conformance.reproduction import audit_command, with_command, with_smallest, worth_a_search
from conformance.statistics import WrongUse
from conformance.subject import Subject, read_subject
from conformance.watcher import Watcher
from conformance.worker import load_factory
from conformance.workers import Cluster, Workers
from specref.models import BadModel

PATIENCE = 300.0
"""Seconds to wait for an engine's next answer before it counts as hung."""
HERE = Workers()
CASES = {
    "plain": "none at this level",
    "share": "as many as it takes for every two values of rule, setting, option and models to meet",
    "all": "every one in every mode, on one architecture after the other where an engine is audited on several",
}


def run_audits(
    names: Sequence[str],
    settings: AuditSettings,
    target: Path | None,
    draft: Path | None,
    expected: Path | None,
    folder: Path,
    console: Console,
    evidence: Path | None = None,
    workers: Workers = HERE,
) -> int:
    """Audit the named engines (none named: all of the registry) and return the exit code. evidence: where the samples of each
    engine are kept, and where an audit that was interrupted goes on; None keeps none. Raises UsageProblem."""
    refuse_unwritable(folder)
    known = read_expected(expected) if expected else []
    given = list(dict.fromkeys(names)) or [entry.name for entry in REGISTRY]
    chosen = [engine_named(name) for name in given]
    missing = {entry.name: missing_of(entry, workers) for entry in chosen}
    models = models_named(target, draft)
    subject = read_subject(models)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        _print_plan(chosen, missing, subject, settings, console)
    except BadModel as problem:  # it gave numbers when it was tried, but not everywhere
        raise UsageProblem(f"these models cannot be used: {problem}; give others with --target and --draft") from problem
    torch.set_num_threads(threads_of_a_lane(workers.number))
    reports: list[EngineReport] = []
    with workers.connected() as cluster, watching(console) as watcher:
        for name, entry in zip(given, chosen):
            if not missing[entry.name]:
                further = settings.level.cases == "all" and target is None and draft is None
                pairs = {FIRST_PAIR: (models, subject), **(further_pairs(entry, folder / "models") if further else {})}
                starter = Starter(entry, folder, workers.number, cluster, watcher)
                (report,) = mark_expected([_audit(starter, pairs, settings, watcher, evidence)], known)
                given_models = target is not None or draft is not None
                command = audit_command(name, settings, target, draft)
                if worth_a_search(report):  # which may take minutes, and changes no verdict
                    write([*reports, with_command(report, command)], folder)
                report = with_smallest(report, starter.of(models), entry.factory, subject, settings, watcher, given_models)
                reports.append(with_command(report, command))
            else:
                reports += mark_expected([not_run(entry, missing[entry.name], models, subject, settings)], known)
    files = write(reports, folder)
    print_table(reports, console)
    console.print(f"Reports: {files.html}, and report.md, report.json, junit.xml beside it", markup=False)
    if evidence is not None and evidence.exists():
        samples = f"Samples: {evidence} ({sum(file.stat().st_size for file in evidence.rglob('*')) / 1e6:,.1f} MB)"
        one = chosen[0].name if len(chosen) == 1 else "ENGINE"
        console.print(f"{samples}; judged again without the engine by: specref judge {evidence / one}", markup=False)
    for entry, report in zip(chosen, reports):
        if report.verdict is Verdict.ERROR and workers.ray is None:
            console.print(f"What {entry.name} printed, tracebacks among it: {folder}/{entry.name}*.log", markup=False)
    return exit_code(reports)


def models_named(target: Path | None, draft: Path | None) -> Models:
    """The folders that the command names, our small trained models where it names none. Raises UsageProblem."""
    from specref import pretrained

    models = Models(target or pretrained.path("target"), draft or pretrained.path("draft"))
    for role, folder in (("target", models.target), ("draft", models.draft)):
        if not (folder / "config.json").exists():
            raise UsageProblem(f"no {role} model lies in {folder}: there is no config.json; give --{role} a model's folder")
    return models


def further_pairs(entry: Registered, folder: Path) -> dict[str, tuple[Models, Subject]]:
    """The pairs of models of other architectures that an engine is audited with, by their names; they are put into `folder`."""
    made = load_factory(entry.pairs)(folder) if entry.pairs else []
    return {name: (models, read_subject(models)) for name, models in made}


@dataclass
class Starter:
    """Starts processes of an engine: here, each with a log in `folder`, or on a cluster. lanes: how many may run at once."""

    entry: Registered
    folder: Path
    lanes: int
    cluster: Cluster | None
    watcher: Watcher
    logs: Iterator[int] = field(default_factory=partial(count, 1))

    def of(self, models: Models) -> Callable[[], Runner]:
        """What starts a process with these models."""
        process = partial(EngineProcess, self.entry.factory, models, patience=PATIENCE, python=self.entry.python)
        if self.cluster is not None:
            return partial(self.cluster.runner, process)
        told = partial(self.watcher.silent, self.entry.name)
        memory, threads = memory_of_a_lane(self.lanes), threads_of_a_lane(self.lanes)
        return lambda: process(log=self._log(), memory=memory, threads=threads, silent=told)

    def _log(self) -> Path:
        """Processes do not share a log, in which one would read the other's last words as its own."""
        number = next(self.logs)
        return self.folder / (f"{self.entry.name}.log" if number == 1 else f"{self.entry.name}-{number}.log")


def _audit(
    starter: Starter,
    pairs: Mapping[str, tuple[Models, Subject]],
    settings: AuditSettings,
    watcher: Watcher,
    evidence: Path | None,
) -> EngineReport:
    entry, (models, subject) = starter.entry, pairs[FIRST_PAIR]
    others = [Pair(name, starter.of(some), of) for name, (some, of) in pairs.items() if name != FIRST_PAIR]
    level = settings.level.scaled(entry.share)
    settings = replace(settings, level=replace(level, all_modes=level.cases != "plain" or not entry.dear_modes))
    subjects = {name: of for name, (_, of) in pairs.items()}
    keeping: AbstractContextManager[Kept | None] = nullcontext()
    if evidence is not None:
        keeping = Kept(evidence / entry.name, entry.name, settings, subjects, self_draft=True, environment=environment())
    with keeping as kept:
        return audit_engine(
            entry.name,
            starter.of(models),
            subject,
            settings,
            lanes=starter.lanes,
            watcher=watcher,
            others=others,
            self_draft=starter.of(Models(models.target, models.target)),
            evidence=kept,
        )


def threads_of_a_lane(lanes: int) -> int:
    """How many threads each of `lanes` engines may compute with, and the judge beside them: its part of the cores."""
    return max(1, (os.cpu_count() or 1) // lanes)


def memory_of_a_lane(lanes: int) -> int | None:
    """Bytes that one of `lanes` engines may hold: its part of nine tenths of the memory here; None if that is not known."""
    whole = memory_of_machine()
    return None if whole is None else int(0.9 * whole / lanes)


def missing_of(entry: Registered, workers: Workers) -> str:
    """What an engine lacks, or "". The GPUs of a cluster are where its processes run, and need not be here."""
    return "" if workers.gpus and entry.importable else entry.missing


def _print_plan(
    chosen: Sequence[Registered], missing: Mapping[str, str], subject: Subject, settings: AuditSettings, console: Console
) -> None:
    level = settings.level
    here = ", ".join(name for name, lacks in missing.items() if not lacks) or "none"
    console.print(f"Engines: {here}. Level {level.name}: {level.about}.")
    shared = f", {level.budget:,} tokens over all cases at most" if level.budget else ""
    console.print(
        f"Plan: up to {level.tokens:,} tokens in each sampled mode at temperature {settings.temperature:g}{shared}, up to "
        f"{level.prompts} prompts in each greedy mode, k = {settings.k}, false-alarm rate {settings.alpha:g} for each engine, "
        f"seed {settings.seed}."
    )
    limit = f", {level.seconds:,.0f} s for all parts at most (slow ones do less)" if level.seconds else ""
    console.print(f"Other settings: {CASES[level.cases]}. Parts alone: {level.rows:,} rows through each verifier{limit}.")
    console.print(f"{subject.in_words}.", markup=False)
    console.print("Measuring the target's numerics ...")
    _print_measured(subject, settings, console)
    for entry in chosen:
        if missing[entry.name]:
            console.print(f"Not run here: {entry.name} ({missing[entry.name]}).", markup=False)
        elif entry.share < 1:
            console.print(f"{entry.name} is given {entry.share:.0%} of these samples.")


def _print_measured(subject: Subject, settings: AuditSettings, console: Console) -> None:
    if settings.temperature > 0:
        _print_numerics(subject, settings, console)
    try:
        margin = subject.margin
        console.print(
            f"Numerical margin of greedy decoding, measured: {margin.value:.2g} logits over {margin.positions:,} positions."
        )
    except WrongUse as refused:
        console.print(f"Greedy decoding cannot be judged token by token: {refused}", markup=False)


def _print_numerics(subject: Subject, settings: AuditSettings, console: Console) -> None:
    repeated, fresh = numerics_show(subject, settings)
    if math.isfinite(repeated):
        console.print(
            f"Lawful numerics, as measured, show beyond {repeated:.1g} tokens of one repeated context at the earliest, and "
            f"beyond {fresh:.1g} of ever new ones; they are allowed for, and no fault."
        )
