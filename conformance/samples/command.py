"""One run of `specref judge`: what the file holds, the sealed plan, the judgement, the table and the reports."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from conformance.engines import BY_NAME
from conformance.evidence.plan import FILE, pairs_of, read_plan
from conformance.expected import mark_expected, read_expected
from conformance.findings import EngineReport, exit_code
from conformance.levels import AuditSettings, Level
from conformance.problems import UsageProblem
from conformance.progress import watching
from conformance.protocols import Models, Scorer
from conformance.reporting import write
from conformance.reporting.terminal import print_table
from conformance.reporting.write import refuse_unwritable
from conformance.reproduction import judge_command, judging_options, with_command
from conformance.run import further_pairs, models_named
from conformance.samples.judging import Judging, judge_samples
from conformance.samples.survey import Survey, survey
from conformance.scoring import TransformersScorer
from conformance.subject import Subject, read_subject
from specref.models import BadModel


def run_judge(
    path: Path, judging: Judging, target: Path | None, draft: Path | None, expected: Path | None, out: Path, console: Console
) -> int:
    """Judge a file of samples or an evidence folder, write the reports, and return the exit code. Raises UsageProblem."""
    refuse_unwritable(out)
    known = read_expected(expected) if expected else []
    AuditSettings(Level("samples", 1, 1, ""), judging.alpha, judging.seed, 1, judging.defaults.temperature)  # out of range?
    if path.is_dir():
        report = _evidence(path, judging, models_named(target, draft))
    else:
        report = _samples(path, judging, target, draft, console)
    command = judge_command(path, judging, target, draft)
    reports: Sequence[EngineReport] = mark_expected([with_command(report, command)], known)
    files = write(reports, out)
    print_table(reports, console)
    console.print(f"Reports: {files.html}, and report.md, report.json, junit.xml beside it", markup=False)
    return exit_code(reports)


def _samples(path: Path, judging: Judging, target: Path | None, draft: Path | None, console: Console) -> EngineReport:
    models = models_named(target, draft or target)
    found = survey(path, judging.defaults)  # whatever is wrong with the file is found before the models are read
    subject = read_subject(models if draft else Models(models.target, models.target))
    if not draft:
        subject = replace(subject, draft=subject.target, draft_name="none given")
    found.refuse_outside(subject.target.vocabulary, _context(subject.target))
    try:
        _print_plan(path, found, subject, judging, console)
        with watching(console) as watcher:
            report = judge_samples(path, found, subject, judging, watcher)
    except BadModel as problem:  # it gave numbers when it was tried, but not everywhere
        raise UsageProblem(f"these models cannot be used: {problem}; give others with --target and --draft") from problem
    return report


def _refuse_what_is_sealed(folder: Path, judging: Judging) -> None:
    """Raise UsageProblem for an option that evidence leaves nothing to say about."""
    usual = Judging(engine_of_file(folder))
    given = judging_options(judging)
    given += ["--engine"] if judging.engine != usual.engine else []
    given += ["--engine-version"] if judging.version != usual.version else []
    if given:
        raise UsageProblem(f"{given[0]} is sealed in the evidence's plan; give the folder alone, without it")


def engine_of_file(path: Path) -> str:
    """What the origin of samples is called where nothing else is said.

    >>> engine_of_file(Path("kept/vllm.jsonl.gz"))
    'vllm'
    """
    return path.name.split(".")[0] or "samples"


def _evidence(folder: Path, judging: Judging, models: Models) -> EngineReport:
    from conformance.evidence.rejudge import judge_evidence

    if not (folder / FILE).exists():
        inside = sorted(path.parent.name for path in folder.glob(f"*/{FILE}"))
        say = f"it has some of {', '.join(inside)}: name one of these" if inside else f"give the folder that holds {FILE}"
        raise UsageProblem(f"{folder.name!r} is neither a file of samples nor the evidence of one engine; {say}")
    _refuse_what_is_sealed(folder, judging)
    plan, _ = read_plan(folder)
    subjects = [read_subject(models)]
    with tempfile.TemporaryDirectory() as made:
        if len(pairs_of(plan)) > 1 and plan["audited as"] in BY_NAME:
            subjects += [of for _, of in further_pairs(BY_NAME[plan["audited as"]], Path(made)).values()]
        return judge_evidence(folder, subjects)


def _context(target: Scorer) -> int | None:
    """How many tokens the target can read, where it says so."""
    if not isinstance(target, TransformersScorer):
        return None
    found = getattr(target.model.config.get_text_config(), "max_position_embeddings", None)
    return found if isinstance(found, int) and found > 0 else None


def _print_plan(path: Path, found: Survey, subject: Subject, judging: Judging, console: Console) -> None:
    console.print(f"Samples: {path.name}, SHA-256 {found.digest[:16]}….", markup=False)
    for name, one in found.modes.items():
        parts = [f"{one.sampled:,} sampled requests with {one.tokens:,} tokens"] if one.sampled else []
        parts += [f"{one.greedy:,} greedy ones"] if one.greedy else []
        console.print(f"  {name}: {' and '.join(parts) or 'nothing that can be judged'}", markup=False)
    console.print(
        f"{subject.in_words}; false-alarm rate {judging.alpha:g}; judge's seed {judging.seed}.",
        markup=False,
    )
