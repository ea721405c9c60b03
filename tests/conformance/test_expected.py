from __future__ import annotations

from pathlib import Path

import pytest

from conformance.expected import mark_expected, read_expected
from conformance.findings import EngineReport, Finding, Verdict, exit_code
from conformance.problems import UsageProblem

ENTRY = """
[[violation]]
engine = "e"
version = "1"
requirement = "LAW-1"
mode = "draft"
reason = "known upstream"
n = 2000
"""


def report(verdict: Verdict, n: int = 5_000, version: str = "1") -> EngineReport:
    finding = Finding("LAW-1", "draft", verdict, "what was seen", n=n, planned=n)
    control = Finding("LAW-1", "off", Verdict.CONFORMS, "fine", n=n, planned=n)
    return EngineReport("e", version, "quick", 1e-6, 0, "", 1.0, "t", "d", (finding, control))


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (report(Verdict.VIOLATES), 0),
        (report(Verdict.VIOLATES, version="2"), 1),
        (report(Verdict.CONFORMS), 1),
        (report(Verdict.CONFORMS, n=100), 0),
        (report(Verdict.ERROR), 3),
    ],
)
def test_only_what_the_file_does_not_say_fails(tmp_path: Path, made: EngineReport, code: int) -> None:
    file = tmp_path / "expected.toml"
    file.write_text(ENTRY)
    marked = mark_expected([made], read_expected(file))
    if made.findings[0].verdict is Verdict.ERROR:
        assert exit_code(marked) in (1, 3)
    else:
        assert exit_code(marked) == code


def test_an_entry_about_nothing_is_said(tmp_path: Path) -> None:
    file = tmp_path / "expected.toml"
    file.write_text(ENTRY.replace('mode = "draft"', 'mode = "drafft"'))
    (marked,) = mark_expected([report(Verdict.CONFORMS)], read_expected(file))
    assert "'drafft'" in marked.notes[0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("violation = 3", "may hold"),
        ("[[violation]\n", "cannot read"),
        (ENTRY.replace("n = 2000", "n = 'many'"), "violation 1 .* n must be a whole number"),
        (ENTRY.replace("mode", "mood"), "mode must be a text"),
        (ENTRY + "size = 3\n", "nothing is called 'size'"),
        ("[other]\n", "may hold"),
        ("violation = [3]", "violation 1 .* write it as a"),
        (ENTRY.replace("n = 2000", "n = 0"), "n must be 1 or more"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "expected.toml"
    file.write_text(text)
    with pytest.raises(UsageProblem, match=says):
        read_expected(file)
    with pytest.raises(UsageProblem, match="cannot read"):
        read_expected(tmp_path / "absent.toml")
