"""Published reproductions: which there are, and when one has shown what its report says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from conformance.engines import REGISTRY
from conformance.expected import read_expected
from conformance.findings import EngineReport, Finding, Verdict
from conformance.published import EXPECTED
from conformance.reproduction import script_of_known, with_command
from conformance.reproductions import NotShown, main, reproductions_of, show_again
from conformance.systems import REPORTS

ALL = sorted(REPORTS.glob("*/reproductions/*.py"))


@pytest.mark.parametrize("script", ALL, ids=[f"{script.parents[1].name}-{script.stem}" for script in ALL])
def test_a_reproduction_is_short_says_how_it_ends_and_is_told_in_its_report(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 40
    assert "raise SystemExit(" in text or "sys.exit(" in text
    assert script.name in script.parents[1].joinpath("findings.md").read_text(encoding="utf-8")


def test_every_reproduction_is_about_one_engine_of_the_registry() -> None:
    assert sorted(script for entry in REGISTRY for script in reproductions_of(entry.name)) == ALL


def test_every_known_violation_names_a_script_that_shows_it() -> None:
    """A server's are those of the engine that it serves."""
    known = [(one.engine.removesuffix("-server"), one.version, one.reason) for one in read_expected(EXPECTED)]
    assert not [reason for engine, version, reason in known if not script_of_known(engine, version, reason)]


def test_of_a_known_violation_the_report_names_the_script_that_its_reason_names() -> None:
    reasons = ("rewound twice (rewind_twice.py, logits_refused.py)", "gone (no_such.py)", "upstream issue 1", "")
    found = tuple(Finding("LAW-1", "m", Verdict.VIOLATES, "s", expected=reason) for reason in reasons)
    report = EngineReport("onnxruntime-genai", "0.18.0", "smoke", 1e-6, 0, "", 0.0, "t", "d", found)
    said = [one.reproduction.splitlines()[0] for one in with_command(report, "specref audit").findings]
    script = "python reports/onnxruntime-genai-0.18.0/reproductions/rewind_twice.py"
    assert said == [script, "specref audit", "specref audit", "specref audit"]


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("print('seen'); raise SystemExit(1)", ""),
        ("print('all is well')", "exit code 0, where the fault has 1; it says: all is well"),
        ("import no_such_engine", "No module named 'no_such_engine'"),
    ],
)
def test_only_a_script_that_ends_with_1_by_itself_has_shown_its_fault(tmp_path: Path, code: str, problem: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(code, encoding="utf-8")
    if not problem:
        assert show_again(sys.executable, script) == "seen\n"
        return
    with pytest.raises(NotShown, match=problem):
        show_again(sys.executable, script)


def test_an_engine_that_is_not_installed_is_not_taken_for_mended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPECREF_PYTHON_SPECDEC", sys.executable)
    monkeypatch.setenv("SPECREF_PYTHON_SEQUENTIAL_SPECULATIVE_DECODING", sys.executable)
    monkeypatch.setattr("conformance.engines.find_spec", lambda package: None)
    assert main(["--engine", "sequential-speculative-decoding"]) == 1
    said = capsys.readouterr().out
    assert "NOT SHOWN: sequential-speculative-decoding is not installed" in said
    assert "0 of 2 reproductions" in said
