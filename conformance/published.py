"""The published audits: the README's table is generated from the reports that lie in reports/.

`python -m conformance.published` rewrites the table between its marks in README.md; a test checks that it is current.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from conformance.findings import EngineReport, Verdict, from_json
from conformance.reporting.markdown import prose
from conformance.reporting.text import about
from conformance.reporting.wording import SYMBOLS, name, tokens_judged
from conformance.systems import README, between

REPORTS = README.parent / "reports"
BEGIN, END = "<!-- published: begin -->", "<!-- published: end -->"


def table(folder: Path = REPORTS) -> str:
    """One row for each engine of each folder/*/report.json, as a Markdown table; a sentence if there is none."""
    rows = [_row(path, report) for path, report in _reports(folder)]
    if not rows:
        return "None yet."
    heads = ["| engine | verdict | violated | tokens judged | level | date |", "|---|---|---|--:|---|---|"]
    return "\n".join(heads + rows)


def _reports(folder: Path) -> Iterator[tuple[Path, EngineReport]]:
    for path in sorted(folder.glob("*/report.json")):
        for report in from_json(path.read_text(encoding="utf-8")):
            yield path, report


def _row(path: Path, report: EngineReport) -> str:
    link = path.with_name("report.md").relative_to(path.parents[2]).as_posix()
    broken = dict.fromkeys(one.requirement for one in report.findings if one.verdict is Verdict.VIOLATES)
    cells = (
        f"[{prose(name(report))}]({link})",
        f"{SYMBOLS[report.verdict]} {report.verdict}",
        prose(", ".join(broken)) or "–",
        about(tokens_judged(report)),
        prose(report.level),
        prose(report.started[:10]),
    )
    return "| " + " | ".join(cells) + " |"


def with_table(text: str) -> str:
    """README text with the current table between its marks."""
    return between(BEGIN, END, table(), text)


if __name__ == "__main__":
    README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")
