"""`specref diff`: what changed, what is no longer known, and what makes two runs an unlike comparison."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
from example_run import absent, conforming, failing, mode, report, run, violating
from hostile_run import CONTROL, hostile
from markdown_it import MarkdownIt
from rich.console import Console
from test_report_page import Reader

from conformance import cli
from conformance.findings import EngineReport, Finding, Verdict, to_json
from conformance.problems import UsageProblem
from conformance.reporting import diff_markdown, html
from conformance.reporting.compare import Comparison, Kind, Row, compare, exit_code
from conformance.reporting.diff_terminal import print_comparison
from conformance.reporting.diff_wording import cautions

CONFORMS, VIOLATES, NOT_RUN, ERROR = Verdict.CONFORMS, Verdict.VIOLATES, Verdict.NOT_RUN, Verdict.ERROR


def engine(*verdicts: Verdict | None, n: int = 10, **changes: object) -> EngineReport:
    """A report with requirement X-i at verdict i; None leaves it out."""
    findings = [Finding(f"X-{i}", "m", verdict, f"said {i}", n, n) for i, verdict in enumerate(verdicts) if verdict]
    return dataclasses.replace(report("e", "1", findings, ()), **changes)  # type: ignore[arg-type]


def kinds(before: EngineReport, after: EngineReport) -> list[Kind]:
    (one,) = compare([before], [after])
    return [row.kind for row in one.rows]


@pytest.mark.parametrize(
    ("before", "after", "kind", "code"),
    [
        (CONFORMS, VIOLATES, Kind.NEW, 1),
        (None, VIOLATES, Kind.NEW, 1),
        (ERROR, VIOLATES, Kind.NEW, 1),
        (VIOLATES, CONFORMS, Kind.GONE, 0),
        (VIOLATES, VIOLATES, Kind.STILL, 0),
        (VIOLATES, NOT_RUN, Kind.UNSEEN, 3),
        (VIOLATES, Verdict.INCONCLUSIVE, Kind.UNSEEN, 3),
        (CONFORMS, ERROR, Kind.LOST, 3),
        (CONFORMS, None, Kind.LOST, 3),
        (Verdict.LOSSY_AS_DECLARED, Verdict.NOT_EXPOSED, Kind.LOST, 3),
        (NOT_RUN, CONFORMS, Kind.GAINED, 0),
        (CONFORMS, Verdict.LOSSY_AS_DECLARED, Kind.OTHER, 0),
        (NOT_RUN, ERROR, Kind.OTHER, 0),
        (NOT_RUN, None, Kind.SAME, 0),
        (CONFORMS, CONFORMS, Kind.SAME, 0),
    ],
)
def test_every_change_has_its_kind_and_exit_code(before: Verdict | None, after: Verdict | None, kind: Kind, code: int) -> None:
    pair = engine(CONFORMS, before), engine(CONFORMS, after)
    assert kinds(*pair) == [Kind.SAME, kind]
    assert exit_code(compare([pair[0]], [pair[1]])) == code


def test_a_new_violation_outweighs_what_is_lost_unless_it_is_known() -> None:
    before, after = engine(CONFORMS, CONFORMS), engine(VIOLATES, None)
    assert exit_code(compare([before], [after])) == 1
    known = dataclasses.replace(after, findings=(dataclasses.replace(after.findings[0], expected="issue 5, mended in 2.0"),))
    assert exit_code(compare([before], [known])) == 3
    assert "issue 5" in Row("X-0", "m", before.findings[0], known.findings[0]).remark


def test_nothing_judged_after_is_no_success() -> None:
    assert exit_code(compare([engine(NOT_RUN)], [engine(NOT_RUN)])) == 3


def test_requirements_that_come_twice_in_a_mode_are_paired_in_order() -> None:
    twice = [Finding("X-1", "m", verdict, "") for verdict in (CONFORMS, VIOLATES)]
    (one,) = compare([report("e", "1", twice, ())], [report("e", "2", twice, ())])
    assert [row.kind for row in one.rows] == [Kind.SAME, Kind.STILL]


def test_engines_are_paired_by_name_and_single_ones_whatever_their_name() -> None:
    pairs = compare(run(), [violating(), conforming()])
    assert [(bool(one.before), bool(one.after)) for one in pairs] == [(True, True), (True, True), (True, False), (True, False)]
    ((one),) = compare([conforming()], [violating()])
    assert any("two different engines" in caution for caution in cautions(one))
    with pytest.raises(UsageProblem, match=r"no engine is in both.*transformers, vllm.*llama.cpp, sglang.*: compare"):
        compare([conforming(), violating()], [failing(), absent()])


def said_of(before: EngineReport, after: EngineReport) -> str:
    return " ".join(cautions(compare([before], [after])[0]))


def test_an_unlike_comparison_is_said() -> None:
    base = engine(CONFORMS, n=100, plan={"temperature": 1.0, "tokens of each case": {"a": 4, "b": 4, "c": 5}})
    assert said_of(base, dataclasses.replace(base, version="2", environment={"torch": "3"})) == ""
    changed = {"temperature": 0.7, "tokens of each case": {"a": 2, "b": 2, "d": 5}}
    assert "not alike (temperature, tokens of each case (2 of them))" in said_of(base, dataclasses.replace(base, plan=changed))
    for name, value in {"level": "deep", "alpha": 1e-3, "target": "other", "draft": "other"}.items():
        assert "not alike" in said_of(base, dataclasses.replace(base, **{name: value}))  # type: ignore[arg-type]
    assert "hardly more than one" in said_of(base, base)
    assert "1 result of the second run rest on fewer samples" in said_of(base, engine(CONFORMS, n=9))


def test_another_declaration_of_a_mode_is_said() -> None:
    """The same samples, judged as another rule's, may get another verdict."""
    base = report("e", "1", [Finding("LAW-1", "fast", CONFORMS, "", 9, 9)], (mode("fast", "ratio", "draft model", 9, k=2),))
    other = dataclasses.replace(base, modes=(dataclasses.replace(base.modes[0], rule="block"),))
    assert "not alike (declared rule: fast)" in said_of(base, other)


def printed(comparisons: list[Comparison], width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_comparison(comparisons, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_changes_of_verdict_come_first_on_all_three() -> None:
    comparisons = compare([engine(CONFORMS, VIOLATES, CONFORMS)], [engine(CONFORMS, CONFORMS, VIOLATES, version="2")])
    for said in (printed(comparisons), diff_markdown.document(comparisons), html.diff_page(comparisons)):
        assert "1 new violation; 1 violation is gone." in said
        assert said.index("1 new violation") < said.index("X-2") < said.index("X-1")
    assert html.diff_page(comparisons).index("X-1") < html.diff_page(comparisons).index("X-0")


def test_the_page_nests_and_can_be_heard() -> None:
    reader = Reader(html.diff_page(compare(run(), [conforming(), failing()])))
    ids = [a["id"] for _, a in reader.tags if "id" in a]
    assert len(ids) == len(set(ids))
    assert {(a.get("href") or "#").removeprefix("#") for _, a in reader.tags if a.get("href")} <= {*ids, ""}
    assert not {tag for tag, _ in reader.tags} & {"script", "img", "link", "iframe"}
    tags = [tag for tag, _ in reader.tags]
    assert tags.count("table") == tags.count("caption") > 0


def test_hostile_texts_stay_texts() -> None:
    page = html.diff_page(compare([hostile()], [hostile()]))
    benign = Reader(html.diff_page(compare([hostile("")], [hostile("")])))
    reader = Reader(page)
    assert {tag for tag, _ in reader.tags} == {tag for tag, _ in benign.tags} | {"em"}  # of a known violation's reason
    assert not set(CONTROL) & set(page) - set("[]3m12J8;:/htpevilxample.<!-> ")
    rendered = (
        MarkdownIt("commonmark", {"html": False})
        .enable("table")
        .render(diff_markdown.document(compare([hostile()], [hostile()])))
    )
    assert not {tag for tag, _ in Reader(rendered).tags} & {"a", "img", "script"}
    assert "\x1b" not in printed(compare([hostile()], [hostile()])).replace("\x1b[0m", "")


def test_a_large_comparison_fits_its_limits() -> None:
    many = engine(*[CONFORMS] * 20_000)
    comparisons = compare([many], [engine(*[VIOLATES] * 20_000)])
    assert len(html.diff_page(comparisons)) < html.PAGE_LIMIT
    assert len(diff_markdown.document(comparisons)) <= diff_markdown.LIMIT


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["specref", "diff", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name, one in (("before", engine(CONFORMS)), ("after", engine(VIOLATES, version="2"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.json").write_text(to_json([one]))
    out = tmp_path / "out"
    assert command(monkeypatch, str(tmp_path / "before"), str(tmp_path / "after" / "report.json"), "--out", str(out)) == 1
    assert "e 1 → e 2: 1 new violation." in capsys.readouterr().out
    assert {file.name for file in out.iterdir()} == {"diff.html", "diff.md"}
    assert command(monkeypatch, str(tmp_path / "after"), str(tmp_path / "before")) == 0


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read (No such file or directory); give the report.json"),
        (b"\xff\xfe", "it is no text in UTF-8"),
        (b"", "it is no JSON"),
        (b"[" * 100_000, "it is no JSON"),
        (b"[]", "it is no report of an audit; give the report.json"),
        (b'{"findings": []}', "it is no report of an audit"),
        (b'{"schema": 99, "engines": []}', "it has schema 99, and this version of specref reads schema 1: write it again"),
        (b'{"schema": "<b>\\u001b[31m", "engines": []}', r"it has schema '<b>\x1b[31m'"),
        (b'{"schema": 1, "engines": []}', "of a run of no engine"),
        (b'{"schema": 1, "engines": 7}', "input should be a valid list; write the report again"),
        (b'{"schema": 1, "engines": [{}]}', "engines.0.engine: field required"),
        (b'{"schema": 1, "engines": [{"seed": {"float": "x"}}]}', "it is no JSON"),
        (
            to_json([engine(CONFORMS)]).replace('"conforms"', '"perfect"').encode(),
            "engines.0.findings.0.verdict: input",
        ),
    ],
)
def test_what_is_no_report_is_one_line_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes | None, says: str
) -> None:
    path = tmp_path / "report.json"
    if content is not None:
        path.write_bytes(content)
    assert command(monkeypatch, str(path), str(path)) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
    assert said.strip().isprintable()
    assert len(said) < 600


def test_a_folder_without_a_report_and_one_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert command(monkeypatch, str(tmp_path), str(tmp_path)) == 2
    assert "holds no report.json" in capsys.readouterr().err
    (tmp_path / "report.json").write_text(to_json([engine(CONFORMS)]))
    assert command(monkeypatch, str(tmp_path), str(tmp_path), "--out", "/proc/none") == 2
    assert "give another folder with --out" in capsys.readouterr().err
