"""Violations alike: told whole once, the rest by their modes, and none of them lost."""

from __future__ import annotations

import dataclasses
import doctest
import io

from example_run import conforming, known, violating
from rich.console import Console

from conformance.diagnosis import Diagnosis
from conformance.findings import EngineReport, Finding, Verdict
from conformance.reporting import alike as module
from conformance.reporting import html, markdown, print_table
from conformance.reporting.alike import alike

MODES = [f"mode {i}" for i in range(30)]


def test_worked_examples() -> None:
    assert doctest.testmod(module).attempted > 0


def wrong(requirement: str, mode: str, **rest: object) -> Finding:
    return Finding(requirement, mode, Verdict.VIOLATES, f"wrong in {mode}", 9, 9, **rest)  # type: ignore[arg-type]


def engine(*findings: Finding) -> EngineReport:
    return dataclasses.replace(conforming(), findings=findings)


def one_fault(*, expected: str = "") -> EngineReport:
    """One fault that breaks two requirements in thirty modes, and another that breaks a third in one."""
    some = [wrong(requirement, mode, expected=expected) for mode in MODES for requirement in ("LAW-1", "BATCH-1")]
    return engine(*some, wrong("SEED-1", "mode 7", expected=expected))


def test_every_violation_is_in_exactly_one_group() -> None:
    for report in (one_fault(), one_fault(expected="issue 7"), violating(), known(violating())):
        told = [one for same in alike(report) for one in (same.first, *same.others)]
        assert sorted(map(id, told)) == sorted(id(one) for one in report.findings if one.verdict is Verdict.VIOLATES)


def test_one_fault_in_many_modes_is_told_once_for_each_requirement_in_every_form() -> None:
    assert [(same.first.requirement, len(same.others)) for same in alike(one_fault())] == [
        ("LAW-1", 29),
        ("SEED-1", 0),
        ("BATCH-1", 29),
    ]
    console = Console(file=io.StringIO(), width=500, color_system=None)
    print_table([one_fault()], console)
    for said in (markdown.document([one_fault()]), html.page([one_fault()]), console.file.getvalue()):  # type: ignore[attr-defined]
        assert said.count("The same in 29 more modes: mode 1 · mode 2 · mode 3 · mode 4 · mode 5 · mode 6 and 23 more") == 2
        assert "wrong in mode 7" in said
    assert "wrong in mode 29" not in markdown.document([one_fault()])
    assert html.page([one_fault()]).count("LAW-1 in <bdi>mode 29</bdi>") == 1


def test_what_differs_is_told_apart() -> None:
    cause = Diagnosis("rows", "a request alone conforms").added_to(wrong("LAW-1", "b"))
    both = wrong("LAW-1", "c", not_speculation=True)
    named = wrong("LAW-1", "d", expected="issue 7"), wrong("LAW-1", "e", expected="issue 8")
    assert len(alike(engine(wrong("LAW-1", "a"), cause, both, *named))) == 5


def test_what_is_new_comes_before_what_is_known() -> None:
    report = engine(wrong("LAW-1", "a", expected="issue 7"), wrong("BATCH-1", "a"), wrong("BATCH-1", "b", expected="issue 7"))
    assert [(same.first.requirement, same.first.expected) for same in alike(report)] == [
        ("BATCH-1", ""),
        ("LAW-1", "issue 7"),
        ("BATCH-1", "issue 7"),
    ]


def test_the_one_that_a_text_is_sent_about_is_told_whole() -> None:
    """A part's wrong law comes first among the findings; the text is about a mode's."""
    law = wrong("LAW-1", conforming().modes[1].name)
    (same,) = alike(engine(wrong("LAW-1", "component: verify"), law))
    assert same.first is law
