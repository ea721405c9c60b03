from __future__ import annotations

from pathlib import Path

from conformance.findings import EngineReport, Finding, Verdict, to_json
from conformance.published import table, with_table
from conformance.systems import README


def test_the_readme_table_is_current() -> None:
    text = README.read_text(encoding="utf-8")
    assert with_table(text) == text, "run python -m conformance.published"


def test_a_row_says_what_an_engine_violates(tmp_path: Path) -> None:
    assert table(tmp_path) == "None yet."
    findings = (Finding("LAW-1", "fast", Verdict.VIOLATES, "it leaks"), Finding("LAW-1", "off", Verdict.CONFORMS, "no leak"))
    report = EngineReport("fast|engine", "1.2", "deep", 1e-6, 0, "2026-11-30T01:00:00", 9.0, "target", "draft", findings)
    folder = tmp_path / "fast-1.2"
    folder.mkdir()
    (folder / "report.json").write_text(to_json([report]))
    row = table(tmp_path).splitlines()[2]
    assert row.startswith(f"| [fast&#124;engine 1.2]({tmp_path.name}/fast-1.2/report.md) | ✗ violates | LAW-1 |")
    assert row.count("|") == 7
