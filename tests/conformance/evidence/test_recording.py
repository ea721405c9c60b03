"""What an engine says beside its outputs: its own counts, which begin again when it is started again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from conformance.controls import instance
from conformance.evidence.recording import Kept
from conformance.harness import InProcess, Runner
from conformance.protocols import Mode, Request
from specref.processors import SamplingSettings
from tests.conformance.evidence.audits import SETTINGS, Small, subject


class Counting(Small):
    """Counts what it answered since it was started."""

    def __init__(self) -> None:
        super().__init__(*instance())
        self.answered = 0

    def before(self, mode: Mode) -> None:
        self.answered += 1

    def metrics(self, mode: Mode) -> Mapping[str, float] | None:
        return {"emitted": float(self.answered)}


def ask(runner: Runner, mode: Mode, number: int) -> None:
    requests = [Request((1, 2), SamplingSettings(max_tokens=4), seed) for seed in range(number)]
    assert len(list(runner.generate(mode, requests))) == number


def started(folder: Path) -> tuple[Kept, Runner, Mode]:
    evidence = Kept(folder, "counting", SETTINGS, {"first pair": subject()})
    runner = evidence.recording(InProcess(Counting()))
    mode = runner.describe(2).modes[1]
    evidence.seal({})
    return evidence, runner, mode


def test_counts_are_told_again_as_they_were(tmp_path: Path) -> None:
    for _ in range(2):
        evidence, runner, mode = started(tmp_path)
        ask(runner, mode, 2)
        assert runner.metrics(mode) == {"emitted": 2.0}
        ask(runner, mode, 3)
        assert runner.metrics(mode) == {"emitted": 5.0}
        evidence.close()


def test_counts_of_an_engine_that_was_started_again_are_no_difference_to_counts_before(tmp_path: Path) -> None:
    evidence, runner, mode = started(tmp_path)
    assert runner.metrics(mode) == {"emitted": 0.0}
    ask(runner, mode, 2)
    evidence.close()  # killed here
    evidence, runner, mode = started(tmp_path)
    assert runner.metrics(mode) == {"emitted": 0.0}
    ask(runner, mode, 2)
    ask(runner, mode, 3)
    assert runner.metrics(mode) is None
    evidence.close()


def test_counts_that_begin_after_what_was_stored_are_the_engines_own(tmp_path: Path) -> None:
    evidence, runner, mode = started(tmp_path)
    ask(runner, mode, 2)
    evidence.close()
    evidence, runner, mode = started(tmp_path)
    ask(runner, mode, 2)
    before = runner.metrics(mode)
    ask(runner, mode, 3)
    after = runner.metrics(mode)
    assert before is not None
    assert after is not None
    assert after["emitted"] - before["emitted"] == 3
    evidence.close()


def test_the_same_requests_asked_twice_and_of_another_pair_of_models_are_kept_apart(tmp_path: Path) -> None:
    evidence, runner, mode = started(tmp_path)
    other = evidence.recording(InProcess(Counting()), pair=1)
    requests = [Request((1, 2), SamplingSettings(max_tokens=4), 0)]
    first, again, of_other = (next(iter(one.generate(mode, requests))) for one in (runner, runner, other))
    assert first == again == of_other
    assert len(list(tmp_path.glob("samples/*/[!.]*.gz"))) == 3
    evidence.close()
