"""The text to send upstream: what it says, where it lies, and that nothing which an engine said gets out of its place."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from example_run import law, mode, report
from hostile_run import EVERYTHING
from markdown_it import MarkdownIt

from conformance.diagnosis import Diagnosis
from conformance.findings import EngineReport, Finding, Verdict
from conformance.reporting import html, markdown, write
from conformance.reporting.guarantee import guarantee
from conformance.reporting.upstream import fenced, issue_text
from conformance.reporting.violation import SCRIPT, to_send, upstream_name

CAUSE = Diagnosis("rule", "verification lets the draft's law through", ("one by one: log10 evidence 40.0",))
SHOWN = f"# {SCRIPT} of mode 'fast'\nprint('counted')"


def wrong(mode_of_it: str, cause: Diagnosis, **changed: object) -> Finding:
    found = cause.added_to(law("LAW-1", mode_of_it, 9_000, 12.0))
    return dataclasses.replace(found, verdict=Verdict.VIOLATES, reproduction=SHOWN, **changed)  # type: ignore[arg-type]


def audited(*findings: Finding) -> EngineReport:
    modes = (mode("off", "target", "off", 9_000, k=0), *(mode(f.mode, "ratio", "draft model", 9_000, k=2) for f in findings))
    return report("engine", "1.2", [law("LAW-1", "off", 9_000, -0.3), *findings], modes)


def test_a_text_says_what_is_expected_and_seen_with_speculation_and_without_and_how_to_see_it_again() -> None:
    found = wrong("fast", CAUSE)
    text = issue_text(audited(found), found)
    for part in (
        "# engine 1.2: in mode <code>fast</code> sampled tokens do not follow",
        "Every emitted token follows the target's law",
        "9,000 tokens",
        "+12.0 powers of ten",
        "at most 1 in 1,000,000",
        "<code>off</code>: conforms",
        "probably rule: verification lets the draft's law through",
        "- one by one: log10 evidence 40.0",
        f"```\n{SHOWN}\n```",
    ):
        assert part in text, part
    assert len(text.splitlines()) < 60
    assert "Cause (" not in text
    assert "40.0\n\n" in text  # what follows is no part of the list


def test_one_text_of_each_cause_that_is_not_known_lies_beside_the_report(tmp_path: Path) -> None:
    other = Diagnosis("unknown", "not ruled out: anything")
    known = wrong("known", Diagnosis("seed", "numbers are shared"), expected="issue 1")
    plain = wrong("plain", Diagnosis("control", "without too"), not_speculation=True)
    made = audited(wrong("fast", CAUSE), wrong("faster", CAUSE), wrong("odd", other), known, plain)
    assert [one.mode for one in to_send(made)] == ["fast", "odd"]
    write([made], tmp_path)
    assert {path.name for path in tmp_path.glob("upstream*")} == {"upstream-engine-fast.md", "upstream-engine-odd.md"}
    assert (tmp_path / "upstream-engine-odd.md").read_text("utf-8") == issue_text(made, made.findings[3])
    for page in (markdown.document([made]), html.page([made])):
        assert upstream_name("engine", "fast") in page
        assert upstream_name("engine", "faster") not in page


def test_where_only_the_joint_law_is_proven_wrong_that_is_told() -> None:
    bonus = dataclasses.replace(wrong("fast", CAUSE), requirement="LAW-2")
    cut_short = dataclasses.replace(law("LAW-1", "fast", 500, 4.0), verdict=Verdict.NOT_RUN)
    assert to_send(audited(cut_short, bonus)) == [bonus]
    assert to_send(audited(wrong("fast", CAUSE), bonus))[0].requirement == "LAW-1"
    assert "sampled tokens do not follow" in issue_text(audited(bonus), bonus)


def greedy(mode_of_it: str) -> Finding:
    shown = ("the shortest: prompt [1, 2] at temperature 0", "prompt 3, output position 4")
    said = "2 of 90 tokens, in 1 of 9 prompts, are not the target's argmax"
    return Finding("GREEDY-1", mode_of_it, Verdict.VIOLATES, said, 9, 9, "prompts", violations=shown)


def test_a_wrong_greedy_token_is_told_with_its_request_beside_a_wrong_law_and_alone() -> None:
    found = wrong("fast", CAUSE)
    made = audited(found, greedy("fast"), greedy("best"))
    assert [(one.requirement, one.mode) for one in to_send(made)] == [("LAW-1", "fast"), ("GREEDY-1", "best")]
    for text in (issue_text(made, one) for one in to_send(made)):
        assert "**At temperature 0**, where no chance is involved: 2 of 90 tokens" in text
        assert "the shortest: prompt &#91;1, 2&#93; at temperature 0" in text
    assert "# engine 1.2: in mode <code>best</code> greedy output is not the target model's" in text
    assert "evidence" not in text  # of what is certain there is none to weigh


def test_what_an_engine_says_stays_where_it_is_put() -> None:
    bad = Diagnosis("rule", EVERYTHING, (EVERYTHING,))
    found = dataclasses.replace(wrong("fast", bad), mode=EVERYTHING, reproduction=f"{SHOWN}\n```\n{EVERYTHING}\n````\n# end")
    made = dataclasses.replace(
        audited(found), engine=EVERYTHING, version=EVERYTHING, target=EVERYTHING, environment={EVERYTHING: EVERYTHING}
    )
    text = issue_text(made, found)
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    assert [one.tag for one in tokens if one.type == "heading_open"] == ["h1"]
    assert [one.type for one in tokens].count("fence") == 1
    inline = [child for one in tokens if one.type == "inline" for child in one.children or ()]
    assert {one.type for one in inline} <= {"text", "softbreak", "strong_open", "strong_close", "html_inline"}
    assert {one.content for one in inline if one.type == "html_inline"} <= {"<code>", "</code>"}
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "@someone" not in text.partition("```")[0]


def test_nothing_ends_a_block_of_code_early() -> None:
    for inside in ("```", "````python", "  `````", "~~~", EVERYTHING):
        tokens = MarkdownIt("commonmark").parse(fenced(f"a\n{inside}\nb"))
        assert [one.type for one in tokens] == ["fence"]


def test_the_verdict_says_what_is_wrong_first() -> None:
    known = wrong("old", Diagnosis("unknown", "not ruled out: anything"), expected="issue 5 (script.py)")
    parts = guarantee(audited(wrong("fast", CAUSE), wrong("faster", CAUSE), known))
    assert parts[:2] == [
        ("What is wrong", "“fast”: verification lets the draft's law through (rule)."),
        ("What is wrong", "“old”: issue 5 (script.py)."),
    ]
    assert ("Next", "Mend it, then audit with another --seed: not with the very samples that convicted it.") in parts
    assert guarantee(audited(greedy("best")))[0][1].startswith("“best”: At temperature 0")
