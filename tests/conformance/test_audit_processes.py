"""Processes that fail, environments of their own, logs, and progress: what surrounds an audit."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from conformance import engines
from conformance.engines import Registered
from conformance.harness import EngineProcess, Runner
from conformance.lanes import Lanes
from conformance.memory import memory_of_session
from conformance.problems import EngineFailed
from conformance.protocols import Mode, Models, Request
from conformance.run import memory_of_a_lane
from specref.processors import SamplingSettings

REQUESTS = [Request((1, 2), SamplingSettings(max_tokens=4), seed) for seed in range(3)]
SPECULATING = Mode("draft model, ratio", {"drafter": "model", "k": 2}, "ratio", "draft model", exposes_rounds=True)


def failing(name: str, *, patience: float = 120.0, memory: int | None = None) -> EngineFailed:
    factory = f"tests.conformance.failing_processes:{name}"
    engine = EngineProcess(factory, Models(Path(), Path()), patience=patience, memory=memory)
    with engine, pytest.raises(EngineFailed) as failed:
        list(engine.generate(SPECULATING, REQUESTS))
    return failed.value


def test_a_child_that_holds_the_pipe_open_is_a_crash_and_no_hang() -> None:
    failed = failing("leaves_a_child")
    assert failed.kind == "crash"  # what waits for the pipe to close ends as a hang
    assert "exit code 9" in str(failed)


def test_an_engine_is_closed_though_its_judge_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "closed"
    monkeypatch.setenv("CLOSED", str(closed))
    engine = EngineProcess("tests.conformance.failing_processes:closes", Models(Path(), Path()), patience=120.0)
    engine.describe(2)
    worker = engine._worker
    assert worker is not None
    assert worker._pipe is not None
    worker._pipe.close()  # all that it sees of the judge's end
    worker._process.wait(timeout=300)
    assert closed.read_text() == "closed"
    engine.close()


@pytest.mark.skipif(memory_of_session(os.getpid()) is None, reason="memory is measured where there is a /proc")
def test_an_engine_above_its_memory_is_ended() -> None:
    failed = failing("grows", memory=1 << 30)
    assert failed.kind == "memory"
    assert "above the limit of 1.00 GiB" in str(failed)


def test_an_engine_runs_in_the_environment_that_was_made_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Registered("some-engine", "x:y", "numpy", 'nox -s "audit(some-engine)"', "an engine")
    monkeypatch.setattr(engines, "ENVIRONMENTS", tmp_path)
    assert entry.python == sys.executable
    program = tmp_path / "audit-some-engine" / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    program.parent.mkdir(parents=True)
    program.write_text("")
    assert entry.python == str(program)
    monkeypatch.setenv("SPECREF_PYTHON_SOME_ENGINE", "/usr/bin/other")
    assert entry.python == "/usr/bin/other"


class Counted:
    """A runner that tells which one it is."""

    made = 0

    def __init__(self) -> None:
        Counted.made += 1
        self.number, self.closed = Counted.made, False

    def close(self) -> None:
        self.closed = True

    def renew(self) -> bool:
        return False


def make() -> Runner:
    return Counted()  # type: ignore[return-value]


def test_a_spent_runner_is_ended_and_another_pair_has_another() -> None:
    lanes = Lanes([make, make])
    lanes.open(1)
    with lanes.runner() as first, lanes.fresh() as fresh:
        assert fresh is not first
    with lanes.runner() as again:
        assert again is first
        lanes.spend(again)
    assert first.closed  # type: ignore[attr-defined]
    with lanes.runner() as second:
        assert second is not first
    with lanes.runner(1) as other:
        assert second.closed  # type: ignore[attr-defined]
    lanes.close()
    assert other.closed  # type: ignore[attr-defined]


def test_a_lane_has_its_part_of_the_memory() -> None:
    assert (memory_of_a_lane(2) or 1 << 30) >= 1 << 26
