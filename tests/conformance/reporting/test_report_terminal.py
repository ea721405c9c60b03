"""The terminal's table."""

from __future__ import annotations

import dataclasses
import doctest
import io

import pytest
from example_run import conforming, known, run, violating
from hostile_run import CONTROL, hostile
from rich.console import Console

from conformance.reporting import markdown, print_table, text, wording


def printed(*reports, width: int = 160) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    print_table(reports, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_every_engine_and_every_finding_is_there() -> None:
    said = printed(*run())
    for report in run():
        assert f"{report.engine} {report.version}" in said
        for finding in report.findings:
            assert finding.requirement in said
            assert str(finding.verdict) in said


def test_statistics_are_shown_as_textbooks_do() -> None:
    (row,) = [line for line in printed(violating(), width=200).splitlines() if "1.84e+03 (61)" in line]
    assert "LAW-1" in row
    assert "96,000" in row
    assert "in powers of ten; an alarm at 6" in printed(violating())


def test_a_narrow_terminal_shows_the_evidence_and_leaves_the_textbook_to_the_report() -> None:
    said = printed(violating(), width=100)
    assert "log10 E" in said
    assert "1.84e+03" not in said
    assert len([line for line in said.splitlines() if "96,000" in line]) >= 1


def test_only_a_check_that_reached_its_n_is_said_to_catch_anything() -> None:
    said = printed(dataclasses.replace(violating(), findings=violating().findings[:1]))
    assert "0.012" not in said
    assert "Power" not in said
    (row,) = {line.split("conforms")[1].strip() for line in printed(conforming()).splitlines() if "GREEDY-1" in line}
    assert row.startswith("40,000")
    assert "any emitted token more than 0.00021" in row


def test_what_was_not_tested_comes_last_with_its_reason() -> None:
    said = printed(conforming())
    assert said.index("Not tested") > said.index("LAW-1")
    assert "The documentation does not promise equal output for equal seeds." in said


def test_hostile_texts_are_printed_as_they_are() -> None:
    said = printed(hostile())
    assert "[red]r[/red]" in said
    assert not set(CONTROL) & set(said) - set("[]3m12J8;:/htpevilxample.<!-> ")


@pytest.mark.parametrize("width", [40, 80, 200])
def test_nothing_is_wider_than_the_terminal(width: int) -> None:
    assert max(len(line) for line in printed(*run(), width=width).splitlines()) <= width


def test_a_known_violation_is_told_with_its_reason() -> None:
    assert "Known: issue 7 of the engine" in printed(known(violating()))
    assert "Known:" not in printed(violating())


@pytest.mark.parametrize("module", [text, wording, markdown])
def test_worked_examples(module) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
