"""The command keeps evidence beside its reports or where it is told to, goes on there, and judges it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance import audit, cli, engines, run
from conformance.controls import instance
from conformance.engines import Registered
from conformance.findings import EngineReport, from_json
from conformance.harness import InProcess
from conformance.levels import LEVELS, Level
from conformance.protocols import Mode
from conformance.samples import command
from tests.conformance.evidence.audits import Small, comparable, subject


class Breaks(Small):
    """Is interrupted, as by a user, at a given answer."""

    left = 10**9

    def before(self, mode: Mode) -> None:
        Breaks.left -= 1
        if Breaks.left < 0:
            raise KeyboardInterrupt


@pytest.fixture
def specref(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in (run, command):
        monkeypatch.setattr(module, "read_subject", lambda models: subject())
    monkeypatch.setattr(audit, "can_catch", lambda *_: "")
    monkeypatch.setattr(run, "EngineProcess", lambda *_, **__: InProcess(Breaks(*instance())))
    monkeypatch.setitem(engines.BY_NAME, "small", Registered("small", "", "specref", "", "two modes of our reference"))
    monkeypatch.setitem(LEVELS, "tiny", Level("tiny", 160, 3, "for tests"))
    monkeypatch.chdir(tmp_path)


def ended(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["specref", *words])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return int(end.value.code or 0)


def report(folder: str) -> EngineReport:
    (found,) = from_json((Path(folder) / "report.json").read_text())
    return comparable(found)


@pytest.mark.usefixtures("specref")
def test_an_interrupted_command_goes_on_and_its_evidence_gives_the_same_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("audit", "small", "--level", "tiny")
    assert ended(monkeypatch, *words, "--out", "alone") == 0
    monkeypatch.setattr(Breaks, "left", 11)
    assert ended(monkeypatch, *words, "--evidence", "kept", "--out", "broken") != 0
    assert not Path("broken/report.json").exists()
    monkeypatch.setattr(Breaks, "left", 10**9)
    assert ended(monkeypatch, *words, "--evidence", "kept", "--out", "resumed") == 0
    assert report("resumed") == report("alone")
    assert ended(monkeypatch, "judge", "kept/small", "--out", "again") == 0
    assert report("again") == report("alone")
    capsys.readouterr()
    assert ended(monkeypatch, *words, "--seed", "3", "--evidence", "kept") == 2
    assert "settings seed was 0 and is 3" in capsys.readouterr().err


@pytest.mark.usefixtures("specref")
def test_evidence_lies_beside_the_reports_and_a_command_given_again_asks_the_engine_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("audit", "small", "--level", "tiny", "--out", "out")
    assert ended(monkeypatch, *words) == 0
    assert "specref judge out/evidence/small" in " ".join(capsys.readouterr().out.split())
    first = {path: path.read_bytes() for path in Path("out/evidence").rglob("*.gz")}
    monkeypatch.setattr(Breaks, "left", 0)  # what the engine was asked before is not read from the folder
    assert ended(monkeypatch, *words) != 0
    monkeypatch.setattr(Breaks, "left", 10**9)
    assert ended(monkeypatch, *words, "--seed", "3") == 0  # and another plan is no problem
    assert {path: path.read_bytes() for path in Path("out/evidence").rglob("*.gz")} == first
    assert ended(monkeypatch, "judge", "out/evidence/small", "--out", "again") == 0
    assert ended(monkeypatch, "judge", "out/evidence-3/small", "--out", "other") == 0
    assert report("other") == report("out")
    assert report("again").seed == 0


@pytest.mark.usefixtures("specref")
def test_no_evidence_keeps_none(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("audit", "small", "--level", "tiny", "--out", "out", "--no-evidence")
    assert ended(monkeypatch, *words) == 0
    assert "Samples:" not in capsys.readouterr().out
    assert not list(Path("out").glob("evidence*"))
    assert ended(monkeypatch, *words, "--evidence", "kept") == 2
    assert "contradict each other; give one of them" in capsys.readouterr().err
