from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from conformance.checks.law import NOTHING
from conformance.coverage import MET, MISSED
from conformance.engines import REGISTRY
from conformance.expected import read_expected
from conformance.findings import EngineReport, Finding, Verdict, from_json, to_json
from conformance.law_audit import POOLED
from conformance.published import BEGIN, END, EXPECTED, current, known, matrix, modes, reports_in, table, verdicts
from conformance.systems import REPORTS

LEAK = Finding("LAW-1", "fast", Verdict.VIOLATES, "it leaks", expected="known upstream")
FINE = Finding("LAW-1", "off", Verdict.CONFORMS, "no leak", n=900, planned=900, detects="a leak of 0.01")
CLOSED = Finding("KV-1", "off", Verdict.NOT_EXPOSED, "no cache")


def published(folder: Path) -> EngineReport:
    findings, plan = (
        (LEAK, FINE, CLOSED),
        {MET: {"mode x setting": ["fast: plain", "off: plain"]}, MISSED: {"refused": ["off: static"]}},
    )
    report = EngineReport(
        "fast|engine", "1.2", "deep", 1e-6, 0, "2026-11-30T01:00:00", 9.0, "target", "draft", findings, plan=plan
    )
    (folder / "fast-1.2").mkdir()
    (folder / "fast-1.2" / "report.json").write_text(to_json([report]))
    return report


def test_all_that_is_generated_is_current() -> None:
    for path, text in current().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python -m conformance.published"


def test_published_reports_name_no_machine_and_no_secret() -> None:
    for path, report in reports_in():
        for text in (path.read_text(), path.with_name("report.md").read_text(), path.with_name("report.html").read_text()):
            for never in ("/home/", "/root/", "/tmp/", "/opt/", "/work", "/usr/", "api_key", "API_KEY", "Bearer "):
                assert never not in text, f"{path.parent.name}: {never}"
        assert report.level in ("standard", "deep")


def test_every_published_page_is_small_enough_to_be_read() -> None:
    pages = list(REPORTS.glob("*/report.html"))
    assert len(pages) == len(list(REPORTS.glob("*/report.json")))
    for page in pages:
        assert page.stat().st_size < 2_000_000, page.parent.name


def test_every_published_folder_has_its_own_known_violations_and_each_is_one_of_them(tmp_path: Path) -> None:
    listed = read_expected(EXPECTED)
    for path, report in reports_in():
        mine = [one for one in listed if (one.engine, one.version) == (report.engine, report.version)]
        assert read_expected(path.with_name("expected.toml")) == mine
    (tmp_path / "none.toml").write_text(known(published(tmp_path)))
    assert read_expected(tmp_path / "none.toml") == []


def test_every_published_conforms_states_n_and_what_it_excludes() -> None:
    for path, report in reports_in():
        conforming = [one for one in report.findings if one.verdict is Verdict.CONFORMS]
        silent = [(one.requirement, one.mode) for one in conforming if one.n < max(one.planned, 1) or not one.detects]
        assert not silent, path.parent.name
        pooled = [one for one in conforming if one.requirement == "LAW-1" and one.mode.startswith(POOLED)]
        small = [one.mode for one in conforming if one.requirement == "LAW-1" and one.detects == NOTHING]
        assert not small or pooled, f"{path.parent.name}: nothing is excluded in {small}, nor in all cases together"
        assert not [one.mode for one in pooled if NOTHING in one.detects], path.parent.name


def test_a_row_says_what_an_engine_violates(tmp_path: Path) -> None:
    published(tmp_path)
    row = table(tmp_path).splitlines()[2]
    assert row.startswith(f"| [fast&#124;engine 1.2]({tmp_path.name}/fast-1.2/report.md) | ✗ violates | LAW-1 |")
    assert row.count("|") == 7


def test_the_matrix_counts_verdicts(tmp_path: Path) -> None:
    published(tmp_path)
    head, _, *rows = matrix(tmp_path).splitlines()
    assert head.split(" | ")[2] == "[fast&#124;engine 1.2](fast-1.2/verdicts.md)"
    (law,) = (row for row in rows if row.startswith("| LAW-1 |"))
    assert law.split(" | ")[2] == "✗ 1 ✓ 1"
    (cache,) = (row for row in rows if row.startswith("| KV-1 |"))
    assert cache.split(" | ")[2] == "–"


def test_an_engine_that_needs_a_gpu_is_shown_as_not_run_until_it_is_published(tmp_path: Path) -> None:
    names = [entry.name for entry in REGISTRY if entry.gpu]
    rows, (head, *requirements) = table(tmp_path).splitlines()[2:], matrix(tmp_path).splitlines()
    assert [row.split("](")[0] for row in rows] == [f"| [{name}" for name in names]
    assert all("| ○ not run: no GPU | – | – | – | – |" in row for row in rows)
    marks = {row.split(" | ")[0][2:]: row.strip("| ").split(" | ")[2:] for row in requirements if row.startswith("| ")}
    assert [one.split("](")[0] for one in head.strip("| ").split(" | ")[2:]] == [f"[{name}" for name in names]
    shown = {requirement: [mark.strip() for mark in some] for requirement, some in marks.items()}
    assert shown["LAW-3"][names.index("flashinfer")] == shown["LAW-1"][names.index("sglang")] == "○"
    assert shown["TREE-1"][names.index("sgl-kernel")] == "○" != shown["TREE-1"][names.index("flashinfer")]
    (tmp_path / "sglang-1").mkdir()
    (tmp_path / "sglang-1" / "report.json").write_text(
        to_json([EngineReport("sglang", "1", "deep", 1e-6, 0, "2026-11-30T01:00:00", 9.0, "target", "draft", (FINE,))])
    )
    assert "sglang](" not in table(tmp_path)
    assert "sglang](" not in matrix(tmp_path)


def test_the_page_of_verdicts_says_n_what_is_excluded_and_what_is_known(tmp_path: Path) -> None:
    page = verdicts(from_json(to_json([published(tmp_path)])))
    assert "| ✓ conforms | 900 tokens | a leak of 0.01 |" in page
    assert "| ✗ violates | – | Known: known upstream. it leaks |" in page
    assert "KV-1" not in page
    assert "* mode x setting: fast: plain; off: plain" in page
    assert "* refused: off: static" in page


def test_the_table_of_modes_holds_those_that_were_run_at_their_plain_setting(tmp_path: Path) -> None:
    report = published(tmp_path)
    greedy = Finding("GREEDY-1", "off", Verdict.CONFORMS, "fine", n=15, planned=15, unit="prompts")
    never = Finding("GREEDY-1", "on a GPU", Verdict.NOT_RUN, "no GPU")
    warm = Finding("LAW-1", "off [temperature 0.6]", Verdict.CONFORMS, "fine", n=700, planned=700)
    head, _, columns, _, *rows = modes(replace(report, findings=(*report.findings, greedy, never, warm))).splitlines()
    assert head == "Level deep, seed 0, 2026-11-30; in brackets what was judged."
    assert columns == "| mode | GREEDY-1 | LAW-1 | LAW-2 |"
    assert rows == ["| <code>off</code> | ✓ conforms (15 prompts) | ✓ conforms (900 tokens) |  |"]


def test_a_page_of_findings_with_marks_holds_the_table_of_its_report() -> None:
    path, report = next((path, report) for path, report in reports_in() if path.parent.name == "vllm-0.32.0")
    page = path.with_name("findings.md").read_text(encoding="utf-8")
    assert page.partition(BEGIN)[2].partition(END)[0].strip() == modes(report)
