"""How to see a violation again: a script that shows the smallest case, else the command that was given."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from conformance.diagnosis import cause_of, first_of_each_cause, new_greedy, new_laws
from conformance.findings import EngineReport, Finding, Verdict
from conformance.harness import Runner
from conformance.levels import AuditSettings, level_named
from conformance.problems import EngineFailed
from conformance.reporting.text import plural
from conformance.reporting.violation import script_name
from conformance.samples.judging import Judging
from conformance.samples.modes import Defaults
from conformance.sampling import NonsenseOutput
from conformance.scripts import script, sentence
from conformance.second_turn import is_second_turn
from conformance.smallest import SECONDS, OutOfTime, Smallest, smallest
from conformance.smallest_greedy import SmallestGreedy, smallest_greedy
from conformance.statistics.evidence import WrongUse
from conformance.subject import Subject
from conformance.systems import REPORTS
from conformance.watcher import Watcher
from specref.models import BadModel


def audit_command(name: str, settings: AuditSettings, target: Path | None, draft: Path | None) -> str:
    """The audit of one engine as a command. Folders are named without where they lie, servers not at all: it is shared.

    >>> audit_command("http://me:key@host/v1", AuditSettings(level_named("smoke"), seed=7), Path("/home/me/tiny"), None)
    'specref audit URL --level smoke --seed 7 --target tiny'
    """
    words = ["specref", "audit", "URL" if "//" in name else name, "--level", settings.level.name, "--seed", str(settings.seed)]
    usual = AuditSettings(settings.level)
    if settings.level.tokens != level_named(settings.level.name).tokens:
        words += ["--tokens", str(settings.level.tokens)]
    for option, field in (("-k", "k"), ("--temperature", "temperature"), ("--alpha", "alpha")):
        value = getattr(settings, field)
        words += [] if value == getattr(usual, field) else [option, f"{value:g}"]
    return shlex.join([*words, *models(target, draft)])


def judge_command(path: Path, judging: Judging, target: Path | None, draft: Path | None) -> str:
    """The judging of samples as a command, with everything that decides the verdict. Folders are named without where they lie.

    >>> judge_command(Path("/home/me/day 1.jsonl"), Judging("vllm", seed=7), Path("/home/me/tiny"), None)
    "specref judge 'day 1.jsonl' --seed 7 --target tiny"
    """
    return shlex.join(["specref", "judge", path.name, *judging_options(judging), *models(target, draft)])


def judging_options(judging: Judging) -> list[str]:
    """The options of `specref judge` that decide how samples are judged, where they are not the usual ones.

    >>> judging_options(Judging("vllm", alpha=1e-4, defaults=Defaults(0.7, at_random=True)))
    ['--temperature', '0.7', '--alpha', '0.0001', '--omitted-at-random']
    """
    given = judging.defaults
    options = (
        ("--temperature", given.temperature, Defaults.temperature),
        ("--max-tokens", given.max_tokens, Defaults.max_tokens),
        ("--logprobs", judging.logprobs, Judging.logprobs),
        ("--alpha", judging.alpha, Judging.alpha),
        ("--seed", judging.seed, Judging.seed),
    )
    words = [word for option, value, usual in options if value != usual for word in (option, str(value))]
    return [*words, *(["--omitted-at-random"] if given.at_random else [])]


def models(target: Path | None, draft: Path | None) -> Sequence[str]:
    """The options that name the models, where any are named."""
    some = (("--target", target), ("--draft", draft))
    return [word for option, folder in some if folder is not None for word in (option, folder.name)]


def with_command(report: EngineReport, command: str) -> EngineReport:
    """The report with the command as the reproduction of every violation that has none, and after how many tokens it shows;
    of a known one the published script that its reason names."""
    named = ", models without the folders they lie in" if re.search(r" --(target|draft) ", command) else ""
    alarms = {mode.name: _alarm(mode.evidence_growth, report.alarm(mode)) for mode in report.modes}

    def told(finding: Finding) -> Finding:
        if finding.verdict is not Verdict.VIOLATES or finding.reproduction:
            return finding
        if published := script_of_known(report.engine, report.version, finding.expected):
            return replace(finding, reproduction=f"python {published}")
        tokens = alarms.get(finding.mode) if finding.requirement.startswith("LAW") else None
        where = f"# mode '{finding.mode}'{named}" + (f": the evidence is an alarm after {tokens:,} tokens" if tokens else "")
        return replace(finding, reproduction=f"{command}\n{where}")

    return replace(report, findings=tuple(map(told, report.findings)))


def script_of_known(engine: str, version: str, reason: str) -> str:
    """The published script that the reason of a known violation names, from the repository's root; "" where none is there.

    >>> script_of_known("mlx-lm", "0.32.2", "the penalty sees the last token only (penalty_forgets_the_prompt.py)")
    'reports/mlx-lm-0.32.2/reproductions/penalty_forgets_the_prompt.py'
    """
    named = re.search(r"\b\w+\.py\b", reason)
    script = REPORTS / f"{engine}-{version}" / "reproductions" / (named[0] if named else "")
    return script.relative_to(REPORTS.parent).as_posix() if script.is_file() else ""


TOO_LATE = 20_000
"""A fault that took more tokens to show is not looked for: a small case would have to be sampled for as long."""
NOT_ALONE = ("state", "seed")
"""Causes that requests of a fresh process, each looked at alone, do not show."""
NONE_SHOWS = {
    "LAW": "those that were tried need more tokens than probes sample",
    "GREEDY": "those that were tried, each alone in a fresh process, are answered right",
}
"""Why no small case was found, by family."""


def with_smallest(
    report: EngineReport,
    start: Callable[[], Runner],
    factory: str,
    subject: Subject,
    settings: AuditSettings,
    watcher: Watcher,
    own_models: bool,
) -> EngineReport:
    """The report with a script for each cause of a wrong law that is not known yet, and for a wrong greedy output.

    start: gives a fresh process of the engine. factory: what the script calls for it. own_models: whether the audit was given
    models, which the script then asks for too.
    """
    first = worth_a_search(report)
    if not first:
        return report
    told = list(report.findings)
    work, causes = f"{report.engine}, smallest cases", plural(len(first), "cause")
    watcher.plan(work, lambda: f"the verdicts stand; a small case of {causes} is looked for, {SECONDS:.0f} s each at most")
    watcher.begin(work, len(first))
    for finding in first:
        found, why = None, NONE_SHOWS[finding.requirement.partition("-")[0]]
        with closing(start()) as runner:
            try:
                found = _searched(finding, runner, subject, settings)
            except OutOfTime:
                why = f"none was found in {SECONDS:.0f} s"
            except (EngineFailed, NonsenseOutput, WrongUse, BadModel) as problem:
                why = f"the search ended early ({problem})"
        if found is None:  # the verdict stands, and the command that was given shows it
            shown = replace(finding, violations=(f"no small case shows it: {why}", *finding.violations))
        else:
            said = sentence(found, subject.texts)
            text = script(factory, found, said, own_models, script_name(report.engine, finding))
            violations = (f"the smallest case that was found: {said}", *finding.violations)
            shown = replace(finding, violations=violations, reproduction=text)
        told[told.index(finding)] = shown
        watcher.advance(work, 1, finding.mode)
    watcher.end(work)
    return replace(report, findings=tuple(told))


def _searched(finding: Finding, runner: Runner, subject: Subject, settings: AuditSettings) -> Smallest | SmallestGreedy | None:
    if finding.requirement == "GREEDY-1":
        return smallest_greedy(runner, finding.mode, subject, settings)
    return smallest(runner, finding.mode, subject, settings, finding.n)


def worth_a_search(report: EngineReport) -> list[Finding]:
    """The wrong laws, one of each cause, and the first wrong greedy output, of which a small case is looked for."""
    greedy = [one for one in new_greedy(report) if not (one.reproduction or is_second_turn(one.mode))]
    return [*first_of_each_cause(filter(_may_be_small, new_laws(report))), *greedy[:1]]


def _may_be_small(finding: Finding) -> bool:
    """Whether requests of a fresh process may show it in a small case."""
    return not finding.reproduction and finding.n <= TOO_LATE and cause_of(finding)[0] not in NOT_ALONE


def _alarm(growth: Sequence[tuple[int, float]], alarm: float) -> int | None:
    return next((tokens for tokens, evidence in growth if evidence >= alarm), None)
