"""The smallest case of a wrong law: found by itself, told in words, and shown again by the script that comes with it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from conformance.audit import audit_engine
from conformance.controls import instance
from conformance.findings import EngineReport, Finding, Verdict
from conformance.harness import InProcess
from conformance.levels import Level
from conformance.reporting import write
from conformance.reproduction import with_command, with_smallest
from conformance.scripts import script, sentence
from conformance.smallest import Smallest, smallest
from conformance.watcher import Silent
from tests.conformance.promising_engine import TwoModes, settings, subject
from tests.conformance.test_audit_triage import FromTheTarget, WearsOut

ROOT = Path(__file__).parents[2]
LEVEL = Level("smallest", 4_000, 4, "a test", "plain", 0, 1)
MODE = "draft model, ratio"
FACTORY = "faulty_adapter:make"


def printed_by(text: str, engine: type[TwoModes], folder: Path) -> list[str]:
    """What a script prints that is run in a folder with an adapter of the engine, `FACTORY`."""
    lines = (
        "from conformance.controls import instance",
        f"from tests.conformance.{engine.__module__.rpartition('.')[2]} import {engine.__name__}",
        f"make = lambda models: {engine.__name__}(*instance())",
    )
    (folder / "faulty_adapter.py").write_text("\n".join(lines))
    (folder / "smallest.py").write_text(text)
    where = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    ran = subprocess.run([sys.executable, "smallest.py"], cwd=folder, env=where, text=True, capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def found(engine: type[TwoModes], seed: int) -> Smallest | None:
    return smallest(InProcess(engine(*instance())), MODE, subject(), settings(LEVEL, seed=seed), 1_000)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_fault_is_shown_by_a_case_of_few_tokens_that_the_control_does_not_show(seed: int) -> None:
    one = found(FromTheTarget, seed)
    assert one is not None
    assert one.settings.max_tokens == one.k + 2
    assert abs(one.seen - one.expected) > abs(one.control[1] - one.expected) if one.control else False
    assert abs(one.deviations) >= 4


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_engine_without_a_fault_has_none(seed: int) -> None:
    assert found(TwoModes, seed) is None


def test_the_script_shows_what_the_sentence_says(tmp_path: Path) -> None:
    one = found(FromTheTarget, 1)
    assert one is not None
    assert one.control is not None
    said = sentence(one, subject().texts)
    text = script(FACTORY, one, said, own_models=False, file="smallest.py")
    assert len(text.splitlines()) < 40
    off, on = printed_by(text, FromTheTarget, tmp_path)
    assert off.endswith(f"at position {one.place} of {one.control[1]} of {one.requests} outputs")
    assert on.endswith(f"at position {one.place} of {one.seen} of {one.requests} outputs")
    assert f"in {one.seen} of {one.requests} requests" in said


def test_what_an_engine_says_cannot_get_into_the_script() -> None:
    one = found(FromTheTarget, 1)
    assert one is not None
    hostile = replace(one, mode='""" + print(1)\nprint(2)\r#\u2028print(3)')
    text = script(FACTORY, hostile, sentence(hostile, ['"""\nprint(4)'] * 99), own_models=True, file="smallest.py")
    calls = [
        node.func.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    assert calls.count("print") == 1


@cache
def report(engine: type[TwoModes]) -> EngineReport:
    return audit_engine("faulty", lambda: InProcess(engine(*instance())), subject(), settings(LEVEL, max_tokens=24))


def told_of(given: EngineReport, engine: type[TwoModes]) -> EngineReport:
    start = lambda: InProcess(engine(*instance()))  # noqa: E731
    told = with_smallest(given, start, FACTORY, subject(), settings(LEVEL, max_tokens=24), Silent(), own_models=True)
    return with_command(told, "specref audit e")


def law(given: EngineReport, engine: type[TwoModes]) -> Finding:
    return next(one for one in told_of(given, engine).findings if (one.requirement, one.mode) == ("LAW-1", MODE))


def test_a_report_has_the_script_and_asks_it_for_the_models_that_the_audit_was_given() -> None:
    one = law(report(FromTheTarget), FromTheTarget)
    assert one.verdict is Verdict.VIOLATES
    assert "sys.argv[1:3]" in one.reproduction
    assert one.violations[0].startswith("the smallest case that was found: with a prompt of ")


def test_the_script_lies_beside_the_report_which_names_it(tmp_path: Path) -> None:
    told = told_of(report(FromTheTarget), FromTheTarget)
    files = write([told], tmp_path)
    names = [path.name for path in tmp_path.glob("smallest-*.py")]
    assert names == [f"smallest-{told.engine.replace(' ', '-')}-draft-model-ratio.py"]
    assert f"# Run: python {names[0]}" in (tmp_path / names[0]).read_text()
    assert f"python {names[0]}, which lies beside the report" in files.markdown.read_text()


@pytest.mark.parametrize("how", ["known", "worn out"])
def test_what_is_known_or_shows_in_no_fresh_process_keeps_the_command(how: str) -> None:
    engine: type[TwoModes] = FromTheTarget if how == "known" else WearsOut
    given = report(engine)
    if how == "known":
        given = replace(given, findings=tuple(replace(one, expected="known since") for one in given.findings))
    assert law(given, engine).reproduction.startswith("specref audit e\n")


def test_a_search_ends_when_its_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.smallest.SECONDS", -1.0)
    monkeypatch.setattr("conformance.reproduction.SECONDS", -1.0)
    one = law(report(FromTheTarget), FromTheTarget)
    assert one.violations[0] == "no small case shows it: none was found in -1 s"
    assert one.reproduction.startswith("specref audit e")
