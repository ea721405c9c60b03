"""What a run says on the terminal: one table per engine, then what was not tested and why.

Nothing an engine says is read as markup: everything goes through `rich.text.Text`.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from conformance.findings import JUDGED, UNSETTLED, EngineReport, Finding, Statistic, Verdict
from conformance.reporting import violation as told
from conformance.reporting import wording
from conformance.reporting.alike import alike
from conformance.reporting.exhibits import partings, side_by_side
from conformance.reporting.guarantee import guarantee
from conformance.reporting.text import count, evidence, one_line

STYLES = {
    Verdict.CONFORMS: "green",
    Verdict.VIOLATES: "bold red",
    Verdict.LOSSY_AS_DECLARED: "cyan",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.ERROR: "bold yellow",
    Verdict.NOT_PROMISED: "dim",
    Verdict.NOT_EXPOSED: "dim",
    Verdict.NOT_RUN: "dim",
}

MOST_REASONS = 6
"""Of not being exposed, or promised, that are told on the terminal: what is wrong is not to scroll away."""


WIDE = 140
"""Columns of a terminal below which the figures of chi-square and KS are left to the report: every row would be folded."""


def print_table(reports: Sequence[EngineReport], console: Console) -> None:
    """Prints every engine: the verdict, the table of what was judged, then what was not tested and why."""
    for report in reports:
        console.print()
        console.print(_headline(report))
        for about_what, sentence in guarantee(report):
            style = {"What is wrong": "red", "Look again": "yellow", "Next": ""}.get(about_what, "dim")
            console.print(Padding(Text(f"{about_what}: {sentence}", style=style), (0, 0, 0, 2)))
        if any(finding.verdict in (*JUDGED, Verdict.INCONCLUSIVE) for finding in report.findings):
            console.print(_table(report, textbook=console.width >= WIDE))
        _print_violations(report, console)
        _print_not_tested(report, console)
        for note in report.notes:
            console.print(Padding(Text(f"Note: {one_line(note)}", style="yellow"), (0, 0, 0, 2)))
    if not reports:
        console.print("Nothing was audited.")


def _headline(report: EngineReport) -> Text:
    style = STYLES[report.verdict]
    return Text.assemble(
        (f"{wording.SYMBOLS[report.verdict]} ", style),
        (f"{wording.name(report)} ", "bold"),
        (wording.verdict_sentence(report), style),
    )


def _table(report: EngineReport, *, textbook: bool) -> Table:
    """One row per finding; the figures of every single check are in the report. textbook: with those of chi-square and KS."""
    alarms = [report.alarm(), *(report.alarm(mode) for mode in report.modes)]
    most = f" to {max(alarms):.3g}, by a mode's share" if max(alarms) > min(alarms) else ""
    legend = f"log10 E: evidence against the engine, in powers of ten; an alarm at {min(alarms):.3g}{most}"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=False, caption=legend, caption_justify="left")
    table.add_column("mode", overflow="fold")
    for heading in ("requirement", "verdict"):
        table.add_column(heading, no_wrap=True)
    for heading in ("n", *(("chi-square (df)", "p", "KS", "p") if textbook else ()), "log10 E"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("smallest fault caught", overflow="fold")
    shown = ""
    for finding in report.findings:
        if finding.verdict in (*JUDGED, *UNSETTLED):
            mode = wording.mode_name(finding.mode)
            table.add_row(Text(mode if mode != shown else ""), *_finding_cells(finding, textbook=textbook))
            shown = mode
    return table


def _finding_cells(finding: Finding, *, textbook: bool) -> list[Text]:
    verdict = Text(f"{wording.SYMBOLS[finding.verdict]} {finding.verdict}", style=STYLES[finding.verdict])
    n = f"{count(finding.n)}/{count(finding.planned)}" if finding.planned > finding.n else count(finding.n)
    chi_square, ks = _check(finding, "chi-square"), _check(finding, "ks")
    degrees = f" ({chi_square.degrees_of_freedom})" if chi_square and chi_square.degrees_of_freedom else ""
    figures = (
        _figure(chi_square, "statistic") + degrees,
        _figure(chi_square, "p"),
        _figure(ks, "statistic"),
        _figure(ks, "p"),
    )
    cells = (
        n,
        *(figures if textbook else ()),
        evidence(finding.log10_evidence) if finding.log10_evidence is not None else "",
        wording.detected(finding, finding),
    )
    return [Text(one_line(finding.requirement, 40), "bold"), verdict, *map(Text, cells)]


def _check(finding: Finding, name: str) -> Statistic | None:
    """The first check whose name begins with `name`."""
    return next((row for row in finding.statistics if row.name.lower().startswith(name)), None)


def _figure(row: Statistic | None, name: str) -> str:
    """One figure of a check, or nothing where there is none (a fixed-n check before its n)."""
    value = None if row is None else getattr(row, name)
    return "" if value is None else f"{value:.3g}"


def _print_violations(report: EngineReport, console: Console) -> None:
    for same in alike(report):
        finding = same.first
        console.print(Text(f"  ✗ {one_line(finding.requirement, 40)} {wording.mode_name(finding.mode)}", style="bold red"))
        lines = [told.explanation(finding), one_line(finding.summary)]
        lines += [told.accused(finding), told.holder(finding), told.adds(finding)]
        for one in partings(finding)[:1]:
            lines += [f"{one_line(one.where)}: engine {side_by_side(one.emitted)}", f"target {side_by_side(one.best)}"]
        shown = told.shown_places(finding)
        lines += [f"{told.places(finding)}:", *(f"  {one_line(place)}" for place in shown)] if shown else []
        if finding.not_speculation:
            lines.append("The same is seen with speculation off: speculation is not the cause.")
        if finding.expected:
            lines.append(f"Known: {one_line(finding.expected, 400)}")
        if finding.reproduction:
            lines.append(f"reproduce: {told.reproduction(report.engine, finding)}")
        lines += [told.kinds(finding), same.elsewhere]
        for line in filter(None, lines):
            console.print(Padding(Text(line), (0, 0, 0, 4)))


def _print_not_tested(report: EngineReport, console: Console) -> None:
    groups = wording.not_tested(report)
    if groups:
        console.print(Text("  Not tested or not finished, and why", style="bold"))
    for quiet in (Verdict.NOT_EXPOSED, Verdict.NOT_PROMISED):
        some = [group for group in groups if group[0] is quiet]
        if len(some) > MOST_REASONS:
            groups = [group for group in groups if group[0] is not quiet]
            ids = ", ".join(dict.fromkeys(requirement for _, _, where in some for requirement, _ in where))
            said = f": {ids}. The report has the {len(some)} reasons."
            text = Text.assemble((f"{wording.SYMBOLS[quiet]} {quiet}", STYLES[quiet]), said)
            console.print(Padding(text, (0, 0, 0, 4)))
    for verdict, reason, where in groups:
        if verdict is Verdict.NOT_RUN and len(where) > MOST_REASONS:  # an engine, or a mode, as a whole
            everywhere = list(dict.fromkeys(mode for _, modes in where for mode in modes))
            where = [(", ".join(requirement for requirement, _ in where), everywhere)]
        places = "; ".join(f"{requirement} ({wording.some_modes(modes)})" for requirement, modes in where)
        text = Text.assemble((f"{wording.SYMBOLS[verdict]} {verdict}", STYLES[verdict]), f": {places}. {reason}")
        console.print(Padding(text, (0, 0, 0, 4)))
