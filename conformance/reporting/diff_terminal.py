"""A comparison of two audits on the terminal: verdict changes first. Nothing an engine says is read as markup."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from conformance.findings import Finding
from conformance.reporting import diff_wording as said
from conformance.reporting import wording
from conformance.reporting.compare import MEANINGS, Comparison, Kind, Row
from conformance.reporting.terminal import STYLES
from conformance.reporting.text import count, one_line

SHOWN = 12
"""Rows of a kind of change on the terminal; all violations are shown."""


def print_comparison(comparisons: Sequence[Comparison], console: Console, *, everything: bool = False) -> None:
    """Print every engine: what changed, cautions, the changed rows (or all), the settings that differ."""
    for one in comparisons:
        style = STYLES[said.worst(one)]
        console.print()
        console.print(Text.assemble((f"{said.title(one)}: ", "bold"), (said.verdict(one), style)))
        for caution in said.cautions(one):
            console.print(Padding(Text(f"Caution: {one_line(caution, 600)}", style="yellow"), (0, 0, 0, 2)))
        if one.before is None or one.after is None:
            continue
        for kind, rows in said.by_kind(one):
            most = len(rows) if everything or kind in (Kind.NEW, Kind.STILL, Kind.GONE) else SHOWN
            console.print(Text.assemble((f"\n  {kind}", "bold"), f" ({count(len(rows))}). {MEANINGS[kind]}"))
            console.print(_table(rows[:most]))
            if len(rows) > most:
                console.print(Text(f"  and {count(len(rows) - most)} more; --all shows them", style="dim"))
        if everything and (same := one.of(Kind.SAME)):
            console.print(Text.assemble(("\n  unchanged", "bold"), f" ({count(len(same))}). {MEANINGS[Kind.SAME]}"))
            console.print(_table(same))
        if one.differences:
            console.print(Text("\n  Settings that differ", style="bold"))
        for each in one.differences[: None if everything else SHOWN]:
            weight = "" if each.matters else "  (changes nothing that is judged)"
            console.print(Padding(Text(f"{each.name}: {each.before} → {each.after}{weight}"), (0, 0, 0, 4)))


def _table(rows: Sequence[Row]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=False)
    table.add_column("requirement", no_wrap=True)
    table.add_column("mode", overflow="fold")
    table.add_column("before", no_wrap=True)
    table.add_column("after", no_wrap=True)
    table.add_column("judged", overflow="fold")
    table.add_column("smallest fault caught, or what was found", overflow="fold")
    for row in rows:
        before, after = said.amounts(row)
        judged = after if before == after else f"{before} → {after}"
        cells = [Text(one_line(row.requirement, 40), "bold"), Text(wording.mode_name(row.mode))]
        cells += [_verdict(row.before), _verdict(row.after), Text(judged), Text(_told(row))]
        table.add_row(*cells)
    return table


def _verdict(finding: Finding | None) -> Text:
    return Text(said.verdict_of(finding), style=STYLES[finding.verdict] if finding else "dim")


def _told(row: Row) -> str:
    if row.kind in (Kind.NEW, Kind.STILL) and row.after:
        told = one_line(row.after.summary, 200)
    elif row.kind in (Kind.LOST, Kind.UNSEEN, Kind.OTHER):
        told = one_line(row.after.summary, 200) if row.after else "the second report does not hold it"
    else:
        before, after = said.bounds(row)
        told = after if before == after or before == "–" else f"{before} → {after}"
    return f"{told} ({row.remark})" if row.remark else told
