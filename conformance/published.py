"""The published audits: all that is said of them elsewhere is generated from the reports that lie in reports/.

`python -m conformance.published` rewrites the README's table and the matrix of reports/README.md between their marks, and
writes beside each report.json: page and summary, verdicts.md (every verdict with its n and what it excludes), and expected.toml
(what is known of this engine at this version); of a findings.md with marks, the table of modes between them. A test checks that
all are current.
Engines that run on a GPU alone stand in both as not run, until a report of them is published.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from conformance.coverage import MET, MISSED
from conformance.engines import REGISTRY, Registered
from conformance.findings import JUDGED, UNSETTLED, EngineReport, Finding, Verdict, from_json, worst
from conformance.levels import AuditSettings
from conformance.not_here import would_be_judged
from conformance.reporting import html, markdown
from conformance.reporting.markdown import code, prose
from conformance.reporting.text import about
from conformance.reporting.wording import SYMBOLS, amount, detected, mode_name, name, sentence, tokens_judged
from conformance.requirements import BY_ID
from conformance.run import models_named
from conformance.systems import README, REPORTS, between
from conformance.worker import load_factory

EXPECTED = Path(__file__).with_name("expected.toml")
HOW_RUN = "docs/gpu_ci.md#engines-that-need-a-gpu"
BEGIN, END = "<!-- published: begin -->", "<!-- published: end -->"
OF_MODES = ("GREEDY-1", "LAW-1", "LAW-2")
"""The requirements in a table of modes."""


def reports_in(folder: Path = REPORTS) -> list[tuple[Path, EngineReport]]:
    """Every engine of each folder/*/report.json, with that file."""
    return [
        (path, report)
        for path in sorted(folder.glob("*/report.json"))
        for report in from_json(path.read_text(encoding="utf-8"))
    ]


def left_out(folder: Path = REPORTS) -> list[Registered]:
    """The engines that run on a GPU alone and of which no report is published."""
    published = {report.engine for _, report in reports_in(folder)}
    return [entry for entry in REGISTRY if entry.gpu and entry.name not in published]


def table(folder: Path = REPORTS) -> str:
    """One row for each published engine, then for each that was not run for want of a GPU, as a Markdown table."""
    rows = [_row(path, report) for path, report in reports_in(folder)]
    no_gpu = f"{SYMBOLS[Verdict.NOT_RUN]} {Verdict.NOT_RUN}: no GPU"
    rows += [_cells((f"[{entry.name}]({HOW_RUN})", no_gpu, *"––––")) for entry in left_out(folder)]
    heads = ["| engine | verdict | violated | tokens judged | level | date |", "|---|---|---|--:|---|---|"]
    return "\n".join(heads + rows)


def _row(path: Path, report: EngineReport) -> str:
    link = path.with_name("report.md").relative_to(path.parents[2]).as_posix()
    broken = dict.fromkeys(one.requirement for one in report.findings if one.verdict is Verdict.VIOLATES)
    cells = (
        f"[{prose(name(report))}]({link})",
        f"{SYMBOLS[report.verdict]} {report.verdict}",
        prose(", ".join(broken)) or "–",
        about(judged) if (judged := tokens_judged(report)) else "greedy alone",
        prose(report.level),
        prose(report.started[:10]),
    )
    return _cells(cells)


def matrix(folder: Path = REPORTS) -> str:
    """Requirements by engines, as a Markdown table: in how many modes and parts each verdict was found.

    An engine that was not run is marked at the requirements that its adapter would be judged by.
    """
    found, others = reports_in(folder), left_out(folder)
    links = [f"[{prose(name(report))}]({path.parent.name}/verdicts.md)" for path, report in found]
    links += [f"[{entry.name}](../{HOW_RUN}): no GPU" for entry in others]
    asked = [_asked_of(entry) for entry in others]
    rows = [_cells(("requirement", "what must hold", *links)), "|" + "---|" * (2 + len(links))]
    for requirement in BY_ID:
        mine = [[one for one in report.findings if one.requirement == requirement] for _, report in found]
        marks = [SYMBOLS[Verdict.NOT_RUN] if requirement in some else "" for some in asked]
        if any(mine) or any(marks):
            rows.append(_cells((requirement, prose(sentence(requirement)), *map(_counts, mine), *marks)))
    meanings = " · ".join(f"{SYMBOLS[one]} {one}" for one in Verdict if one is not Verdict.NOT_PROMISED)
    return "\n".join([*rows, "", f"{meanings} (– also: not promised)"])


def _asked_of(entry: Registered) -> set[str]:
    engine = load_factory(entry.factory)(models_named(None, None))
    return {requirement for requirement, _ in would_be_judged(engine, AuditSettings.k)}


def _counts(findings: Sequence[Finding]) -> str:
    """The worst verdict first; what was not looked at only where nothing else is there.

    >>> found = [Verdict.CONFORMS, Verdict.VIOLATES, Verdict.CONFORMS, Verdict.NOT_EXPOSED]
    >>> _counts([Finding("LAW-1", "m", verdict, "") for verdict in found])
    '✗ 1 ✓ 2'
    """
    verdicts = Counter(one.verdict for one in findings)
    judged = {one: n for one, n in verdicts.items() if one in (*JUDGED, *UNSETTLED)}
    shown = []
    while judged:
        first = worst(judged)
        shown.append(f"{SYMBOLS[first]} {judged.pop(first)}")
    return " ".join(shown) or (SYMBOLS[worst(verdicts)] if verdicts else "")


def verdicts(reports: Sequence[EngineReport]) -> str:
    """Every verdict of some reports with its n and what it excludes, and the pairs of values that met, as a Markdown page."""
    return "\n".join(line for report in reports for line in _page(report)) + "\n"


def _page(report: EngineReport) -> Iterator[str]:
    yield f"# {prose(name(report))}: every verdict\n"
    yield f"Level {prose(report.level)}, seed {report.seed}, {prose(report.started[:10])}. `report.md` has the rest."
    requirements = [*BY_ID, *sorted({one.requirement for one in report.findings} - set(BY_ID))]
    for requirement in requirements:
        looked_at = (*JUDGED, *UNSETTLED)
        mine = [one for one in report.findings if one.requirement == requirement and one.verdict in looked_at]
        if not mine:
            continue
        yield f"\n## {requirement}\n\n{prose(sentence(requirement))}\n"
        yield "| mode | verdict | judged | smallest fault that would have been caught, or what was found |"
        yield "|---|---|--:|---|"
        for one in mine:
            verdict = f"{SYMBOLS[one.verdict]} {one.verdict}"
            yield _cells((code(mode_name(one.mode)), verdict, prose(amount(one)), _said(one)))
    for heading, where in (("Pairs of values that met in a case", MET), ("Pairs of values that no judged case shows", MISSED)):
        listed = report.plan.get(where, {})
        if listed:
            yield f"\n## {heading}\n"
            yield from (f"* {prose(what)}: {'; '.join(prose(pair) for pair in pairs)}" for what, pairs in listed.items())


def _said(finding: Finding) -> str:
    if finding.verdict is Verdict.CONFORMS:
        return prose(detected(finding, finding))
    known = f"Known: {prose(finding.expected)}. " if finding.expected else ""
    plain = "The same is seen with speculation off. " if finding.not_speculation else ""
    return known + plain + prose(finding.summary)


def modes(report: EngineReport) -> str:
    """The verdicts of each mode that was run at its plain setting, as a Markdown table, and how much each judged."""
    found = {(one.requirement, one.mode): one for one in report.findings}
    rows = [_cells(("mode", *OF_MODES)), "|" + "---|" * (1 + len(OF_MODES))]
    for mode in dict.fromkeys(one.mode for one in report.findings if one.requirement == "GREEDY-1"):
        mine = [found.get((requirement, mode)) for requirement in OF_MODES]
        if any(one is not None and one.verdict in (*JUDGED, *UNSETTLED) for one in mine):
            told = ["" if one is None else f"{SYMBOLS[one.verdict]} {one.verdict} ({prose(amount(one))})" for one in mine]
            rows.append(_cells((code(mode_name(mode)), *told)))
    said = f"Level {prose(report.level)}, seed {report.seed}, {prose(report.started[:10])}; in brackets what was judged."
    return "\n".join([said, "", *rows])


def _cells(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def known(report: EngineReport) -> str:
    """The known violations of an engine at its version: that part of conformance/expected.toml."""
    tables = [
        f"[[violation]]{part}".partition("\n\n")[0].strip() for part in EXPECTED.read_text("utf-8").split("[[violation]]")[1:]
    ]
    about = {"engine": report.engine, "version": report.version}
    mine = [one for one in tables if about.items() <= tomllib.loads(one)["violation"][0].items()]
    head = f"# What is known of {name(report)}: that part of conformance/expected.toml, which says what each field means."
    return "\n\n".join([head, *mine]) + "\n"


def current(folder: Path = REPORTS) -> dict[Path, str]:
    """What each generated file must hold."""
    files = {
        README: between(BEGIN, END, table(folder), README.read_text(encoding="utf-8")),
        folder / "README.md": between(BEGIN, END, matrix(folder), (folder / "README.md").read_text(encoding="utf-8")),
    }
    for path in sorted(folder.glob("*/report.json")):
        reports = from_json(path.read_text(encoding="utf-8"))
        files[path.with_name("report.html")] = html.page(reports)
        files[path.with_name("report.md")] = markdown.document(reports)
        files[path.with_name("verdicts.md")] = verdicts(reports)
        files[path.with_name("expected.toml")] = "\n".join(map(known, reports))
        told = path.with_name("findings.md")
        if told.exists():
            files[told] = between(BEGIN, END, "\n".join(map(modes, reports)), told.read_text(encoding="utf-8"))
    return files


if __name__ == "__main__":
    for path, text in current().items():
        path.write_text(text, encoding="utf-8")
