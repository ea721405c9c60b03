"""The report of the kill matrix: what was killed, by what, and why every check stays."""

from __future__ import annotations

import re
import secrets
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.controls import Control, run
from conformance.controls.faults import FAULTS
from conformance.statistics.plan import GROUPS
from conformance.studies import faults as study
from conformance.studies.faults_reasons import why
from conformance.studies.faults_report import parts
from conformance.studies.faults_results import Journal, result

SEED = secrets.randbelow(2**31)


def test_the_reports_parts_say_what_was_killed() -> None:
    one = study.Study(Journal(None, SEED), 1, 1, "Jacobi")
    for control in one.controls.values():
        one.journal.add(result(control, 0, run(control, SEED)))
    text = "\n".join(parts(one.summary(), one.controls, one.results, one.runs))
    assert "| GREEDY-1 places | 2 | 2 | Jacobi: logits read at len + i; Jacobi: unverified tokens kept when it stops |" in text
    assert "| Jacobi: logits read at len + i | published snippets | GREEDY-1 | GREEDY-1: a single place |" in text
    assert "typical acceptance" in text
    assert "| chi-square | 0 | 0 | stays: everybody knows it" in text


def test_of_every_check_that_kills_nothing_alone_it_is_said_why_it_stays() -> None:
    assert all(why(check) for _, checks in GROUPS.values() for check in checks)
    published = (Path(__file__).parents[2] / study.REPORT).read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| ([^|]+) \| \d+ \| (\d+) \| ([^|]*) \|$", published.partition("## What only one check kills")[2], re.M
    )
    useless = {check: told for check, alone, told in rows if alone == "0"}
    assert len(rows) > 60
    assert len(useless) > 30
    assert useless == {check: f"stays: {why(check)}" for check in useless if why(check)}


def test_a_missing_reason_is_seen() -> None:
    assert why("STOP-9 places") == ""
    one = study.Study(Journal(None, SEED), 1, 1, "Jacobi: logits")
    (control,) = one.controls.values()
    found = replace(result(control, 0, run(control, SEED)), checks=("GREEDY-1 places", "STOP-9 places"))
    one.journal.add(found)
    assert "| STOP-9 places | 1 | 0 | stays: NO REASON GIVEN |" in "\n".join(parts("", one.controls, one.results, 1))


@pytest.mark.parametrize("fault", [one for one in FAULTS if one.instead], ids=lambda fault: fault.id)
def test_a_fault_that_may_be_killed_by_another_requirement_says_why(fault: Control) -> None:
    assert all(name in fault.because for name in (*fault.requirements, *fault.instead))
