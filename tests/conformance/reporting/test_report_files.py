"""The other three files, and writing all four whole or not at all."""

from __future__ import annotations

import dataclasses
import json
import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
from example_run import conforming, failing, known, run, violating
from hostile_run import hostile
from markdown_it import MarkdownIt
from test_report_exhibits import all_of_them

from conformance.findings import EngineReport, Finding, Verdict, exit_code, from_json, to_json
from conformance.problems import UsageProblem
from conformance.reporting import ReportFiles, html, junit, markdown, schema, write
from conformance.reporting.write import refuse_unwritable


def plain() -> list[EngineReport]:
    """The run without what its pictures are drawn from."""
    return [dataclasses.replace(report, modes=()) for report in run()]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ReportFiles:
    return write(plain(), tmp_path_factory.mktemp("run") / "not" / "there yet")


def test_four_files_and_what_can_be_sent_upstream(files: ReportFiles) -> None:
    upstream = files.html.parent / "upstream-vllm-draft-model-k-3.md"
    written = {files.html, files.markdown, files.json, files.junit, upstream}
    assert set(files.html.parent.iterdir()) == written
    assert {path.name for path in written - {upstream}} == {"report.html", "report.md", "report.json", "junit.xml"}
    assert from_json(files.json.read_text("utf-8")) == plain()


def test_a_failure_leaves_the_old_file_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write([], tmp_path)
    before = (tmp_path / "report.html").read_text("utf-8")
    monkeypatch.setattr(html, "page", lambda reports: "half\ud800")
    with pytest.raises(UnicodeEncodeError):
        write(run(), tmp_path)
    assert (tmp_path / "report.html").read_text("utf-8") == before
    assert len(list(tmp_path.iterdir())) == 4


def test_a_folder_is_tried_without_making_it(tmp_path: Path) -> None:
    refuse_unwritable(tmp_path / "not" / "there yet")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    with pytest.raises(UsageProblem, match=r"cannot write reports to .*there yet: Not a directory; give another folder"):
        refuse_unwritable(tmp_path / "file" / "there yet")


def test_no_file_tells_where_it_was_made(files: ReportFiles) -> None:
    for path in (files.html, files.markdown, files.json, files.junit):
        assert str(files.html.parent) not in path.read_text("utf-8")


def test_hostile_texts_can_be_written_and_read_back(tmp_path: Path) -> None:
    files = write([hostile()], tmp_path)
    assert from_json(files.json.read_text("utf-8")) == [hostile()]
    ElementTree.parse(files.junit)


def test_json_is_json_even_where_evidence_is_infinite() -> None:
    ruined = dataclasses.replace(conforming(), log10_evidence=float("-inf"), modes=())
    text = to_json([ruined])
    json.loads(text, parse_constant=pytest.fail)
    assert from_json(text) == [ruined]


def cases(reports: list[EngineReport]) -> dict[tuple[str, str], list[ElementTree.Element]]:
    root = ElementTree.fromstring(junit.document(reports))
    return {(s.get("name", ""), c.get("name", "")): list(c) for s in root for c in s.findall("testcase")}


def test_junit_has_one_case_per_requirement_and_mode() -> None:
    found = cases(run())
    assert len(found) == sum(len(report.findings) for report in run())
    assert {suite for suite, _ in found} == {"transformers 5.24.0", "vllm 0.11.0", "llama.cpp b6402", "sglang 0.5.4"}
    assert [e.tag for e in found["vllm 0.11.0", "LAW-1 [draft model, k = 3]"]] == ["failure"]
    assert [e.tag for e in found["vllm 0.11.0", "LAW-1 [prompt lookup, k = 5]"]] == ["system-out"]
    assert [e.tag for e in found["vllm 0.11.0", "GREEDY-1 [prompt lookup, k = 5]"]] == ["error"]
    assert [e.tag for e in found["llama.cpp b6402", "LAW-1 [eagle, k = 4]"]] == ["error"]
    (skipped,) = found["sglang 0.5.4", "LAW-1 [medusa]"]
    assert skipped.tag == "skipped"
    assert skipped.get("message") == "not run: No CUDA device on this machine."


def not_seen() -> EngineReport:
    """An engine of which a known violation was not seen, though samples sufficed."""
    first, *rest = conforming().findings
    found = dataclasses.replace(first, unseen=True, summary="a known violation was not seen in 400,000 samples")
    return dataclasses.replace(conforming(), findings=(found, *rest))


@pytest.mark.parametrize("reports", [run(), list(map(known, run())), [not_seen()]], ids=["as it is", "known", "not seen"])
def test_junit_counts_every_verdict_where_ci_looks_for_it(reports: list[EngineReport]) -> None:
    root = ElementTree.fromstring(junit.document(reports))
    for suite, report in zip(root, reports, strict=True):
        verdicts = [finding.verdict for finding in report.findings if not finding.expected]
        assert float(suite.get("time", "")) == report.seconds
        assert {"seed", "alpha", "target", "torch"} <= {entry.get("name") for entry in suite.iterfind("properties/property")}
        unseen = sum(finding.unseen for finding in report.findings)
        failures, errors = int(suite.get("failures", "")), int(suite.get("errors", ""))
        assert int(suite.get("tests", "")) == len(report.findings)
        assert failures == verdicts.count(Verdict.VIOLATES) + unseen
        assert errors == verdicts.count(Verdict.ERROR) + verdicts.count(Verdict.INCONCLUSIVE)
        assert (failures > 0) is (exit_code([report]) == 1)
        assert not errors or exit_code([report]) in (1, 3)


def test_junit_skips_what_is_known_and_fails_where_it_was_not_seen() -> None:
    found = cases([known(violating())])
    for name, verdict in (("LAW-1", "violates"), ("STOP-1", "error")):
        (skipped,) = found["vllm 0.11.0", f"{name} [draft model, k = 3]"]
        (finding,) = [f for f in violating().findings if f.requirement == name and f.verdict == verdict]
        assert skipped.tag == "skipped"
        assert skipped.get("message") == f"known: issue 7 of the engine. {finding.summary}"
    assert "reproduce: specref audit vllm" in (found["vllm 0.11.0", "LAW-1 [draft model, k = 3]"][0].text or "")
    (failure,) = cases([not_seen()])["transformers 5.24.0", "LAW-1 [speculation off]"]
    assert (failure.tag, failure.get("message")) == ("failure", "a known violation was not seen in 400,000 samples")


def test_junit_of_a_violation_says_where_and_how_to_see_it() -> None:
    (failure,) = cases([violating()])["vllm 0.11.0", "GREEDY-1 [draft model, k = 3]"]
    assert "at: prompt 17, token 33" in (failure.text or "")
    assert "reproduce: specref replay vllm" in (failure.text or "")


def tokens(text: str) -> list[tuple[str, str]]:
    """Types and contents of everything that CommonMark with tables sees in the text."""
    found: list[tuple[str, str]] = []
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        found += [(t.type, t.content) for t in (token, *(token.children or []))]
    return found


def test_markdown_says_the_verdict_first() -> None:
    lines = markdown.document(run()).splitlines()
    assert lines[2].startswith("- ≈ **transformers 5.24.0** is lossy as declared")
    assert lines[3].startswith("- ✗ **vllm 0.11.0** violates 3 requirements")


def test_markdown_tables_keep_their_columns() -> None:
    for text in (markdown.document(run()), markdown.document([hostile()])):
        rows = [line for line in text.splitlines() if line.startswith("|")]
        assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {10}


def test_hostile_texts_are_inert_in_markdown() -> None:
    text = markdown.document([hostile()])
    found = tokens(text)
    types = {kind for kind, _ in found}
    assert not types & {"link_open", "image", "code_inline", "fence", "code_block", "hr", "em_open"}
    assert {content for kind, content in found if kind == "html_inline"} <= {
        "<code>",
        "</code>",
        "<summary>",
        "</summary>",
        "<details>",
    }
    blocks = "".join(content for kind, content in found if kind == "html_block")
    assert set(re.findall(r"</?\w+", blocks)) <= {"<details", "</details", "<summary", "</summary"}
    shown = "".join(content for kind, content in found if kind == "text")
    assert "<script>alert(1)</script>" in shown
    for linked in ("@someone", "#123", "http://", "www.evil", "GH-1"):
        assert linked not in shown
    headings = [content for (kind, _), (_, content) in pairwise(found) if kind == "heading_open"]
    assert len(headings) == 2


def test_markdown_fits_a_comment_however_much_there_is_to_say() -> None:
    many = [conforming()] * 30
    assert len(markdown.document(many)) <= markdown.LIMIT
    assert len(markdown.document([conforming()] * 800)) <= markdown.LIMIT
    assert "report.json" in markdown.document([conforming()] * 800)


def test_markdown_of_an_empty_run() -> None:
    assert "Nothing was audited." in markdown.document([])


def test_a_finding_for_the_whole_engine_has_a_name() -> None:
    report = EngineReport("e", "1", "quick", 1e-6, 0, "", 0.0, "t", "d", (Finding("LOUD-1", "", Verdict.CONFORMS, "ok"),))
    assert list(cases([report])) == [("e 1", "LOUD-1 [whole engine]")]


def test_a_known_violation_is_told_with_its_reason() -> None:
    known = [dataclasses.replace(one, expected="a <known> cause") for one in violating().findings]
    report = dataclasses.replace(violating(), findings=tuple(known))
    assert "Known: a &#60;known&#62; cause" in markdown.document([report])
    assert "Known: a &lt;known&gt; cause" in html.page([report])


def test_the_published_schema_is_that_of_what_is_written() -> None:
    assert schema.PUBLISHED.read_text("utf-8") == schema.text(), "write it again: python -m conformance.reporting.schema"


def test_every_report_follows_the_schema() -> None:
    validator = jsonschema.Draft202012Validator(schema.report_schema())
    infinite = dataclasses.replace(conforming(), log10_evidence=float("-inf"), modes=())
    for reports in ([], run(), [hostile(), infinite], [all_of_them()]):
        validator.validate(json.loads(to_json(reports)))
    wrong = json.loads(to_json([infinite]))
    wrong["engines"][0]["findings"][0]["verdict"] = "perfect"
    assert not validator.is_valid(wrong)
    assert not validator.is_valid({"schema": 99, "engines": []})


def test_junit_tells_the_time_of_engines_that_share_a_name() -> None:
    one, other = (dataclasses.replace(conforming(), seconds=seconds) for seconds in (1.0, 2.5))
    tree = ElementTree.fromstring(junit.document([one, other, dataclasses.replace(failing(), seconds=4.0)]))
    assert [float(suite.attrib["time"]) for suite in tree] == [3.5, 4.0]
