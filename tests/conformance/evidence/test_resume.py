from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.audit import Pair, audit_engine
from conformance.controls import instance
from conformance.evidence import files
from conformance.evidence.files import EvidenceProblem
from conformance.evidence.recording import Kept
from conformance.evidence.rejudge import judge_evidence, read_ledgers
from conformance.findings import EngineReport, Verdict
from conformance.harness import InProcess
from conformance.problems import EngineFailed
from conformance.protocols import Mode
from tests.conformance.evidence.audits import SETTINGS, Small, chunks, comparable, kept, left_alone, subject, up_to


class Killed(BaseException):
    """What happens in this process in place of SIGKILL."""


class Trap:
    """Ends everything at a given step: an answer, a file brought to the disk, a file moved to its place."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.left = -1
        for name in ("fsync", "replace", "unlink"):
            patch.setattr(files.os, name, self.around(getattr(os, name)))

    def around(self, function: object) -> object:
        def counted(*arguments: object) -> object:
            self.step()
            return function(*arguments)  # type: ignore[operator]

        return counted

    def step(self) -> None:
        if self.left == 0:  # whatever still runs is ended at its next step too
            raise Killed
        self.left -= 1


class Trapped(Small):
    trap: Trap

    def before(self, mode: Mode) -> None:
        self.trap.step()


@pytest.mark.parametrize(("lanes", "families"), [(1, 0), (1, 1), (2, 0), (2, 1)])
def test_an_audit_killed_at_random_points_ends_as_if_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lanes: int, families: int
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    rng = random.Random(seed)
    engine, settings = Trapped(*instance()), replace(SETTINGS, level=replace(SETTINGS.level, requests=families))
    killed, folder = 0, tmp_path / "first"
    with monkeypatch.context() as patch:
        engine.trap = Trap(patch)
        while killed < 5:
            engine.trap.left = rng.randrange(60)
            try:
                kept(folder, engine, settings, lanes)
            except Killed:
                killed += 1
            else:
                folder = tmp_path / str(killed)  # it had come so far that it ended first: begin again
    report = kept(folder, settings=settings, lanes=lanes)
    assert comparable(report) == comparable(left_alone(settings)), f"killed at the points of seed {seed}"
    assert not list(tmp_path.rglob("*.tmp"))
    again = judge_evidence(folder, [subject()])
    assert comparable(again) == comparable(report)


def test_real_sigkills_lose_nothing(tmp_path: Path, undisturbed: EngineReport) -> None:
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["tests.conformance.evidence.audits"])
    for _ in range(3):
        before = len(chunks(tmp_path))
        wanted = before + random.SystemRandom().randrange(1, 3)
        victim = processes.Process(target=up_to, args=(tmp_path, wanted))  # of 8: it has not ended, however late the kill comes
        victim.start()
        deadline = time.monotonic() + 600
        while len(chunks(tmp_path)) < wanted and victim.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        stored = {path: path.read_bytes() for path in chunks(tmp_path)}
        victim.kill()
        victim.join()
        assert victim.exitcode == -signal.SIGKILL
        assert len(stored) > before
        assert {path: path.read_bytes() for path in stored} == stored
    assert comparable(kept(tmp_path)) == comparable(undisturbed)
    assert any("it was started 4 times" in note for note in judge_evidence(tmp_path, [subject()]).notes)


def test_a_finished_audit_asks_the_engine_nothing_and_keeps_its_ledgers(tmp_path: Path) -> None:
    first = kept(tmp_path)
    stored = {path: path.read_bytes() for path in chunks(tmp_path)}

    class Unasked(Small):
        def before(self, mode: Mode) -> None:
            raise AssertionError("it was asked")

    assert comparable(kept(tmp_path, Unasked(*instance()))) == comparable(first)
    assert {path: path.read_bytes() for path in chunks(tmp_path)} == stored
    ledgers = read_ledgers(tmp_path)
    assert ledgers["speculation"].look().log10_e == pytest.approx(first.log10_evidence, rel=1e-12)
    assert set(ledgers) == {"speculation", "control"}


def test_an_interrupted_audit_can_be_judged_so_far(tmp_path: Path) -> None:
    class Stops(Small):
        answers = 0

        def before(self, mode: Mode) -> None:
            self.answers += 1
            if self.answers > 30:
                raise Killed

    with pytest.raises(Killed):
        kept(tmp_path, Stops(*instance()))
    report = judge_evidence(tmp_path, [subject()])
    verdicts = {(one.requirement, one.mode): one.verdict for one in report.findings}
    assert verdicts["LAW-1", "off"] is Verdict.CONFORMS
    assert verdicts["LAW-1", "draft model, ratio"] is Verdict.INCONCLUSIVE
    assert Verdict.ERROR not in verdicts.values()


def test_what_an_engine_failed_at_is_told_again_and_tried_again(tmp_path: Path, undisturbed: EngineReport) -> None:
    class Fails(InProcess):
        def generate(self, mode, requests):  # type: ignore[no-untyped-def]
            if mode.speculates and requests[0].settings.temperature == 0:
                raise EngineFailed("crash", "OSError: /home/me/models/tiny/config.json")
            return super().generate(mode, requests)

    with Kept(tmp_path, "small", SETTINGS, {"first pair": subject()}) as evidence:
        failed = audit_engine("small", lambda: Fails(Small(*instance())), subject(), SETTINGS, evidence=evidence)
    assert Verdict.ERROR in [one.verdict for one in failed.findings]
    again = judge_evidence(tmp_path, [subject()])
    assert comparable(again) == comparable(failed)
    assert "/home" not in (tmp_path / "said.json").read_text()
    assert comparable(kept(tmp_path)) == comparable(undisturbed)


def test_evidence_of_several_pairs_of_models_is_judged_with_all_of_them(tmp_path: Path) -> None:
    engines, both = [Small(*instance(number)) for number in (0, 1)], [subject(0), subject(1)]
    other = Pair("another pair", lambda: InProcess(engines[1]), both[1])
    with Kept(tmp_path, "small", SETTINGS, {"first pair": both[0], other.name: other.subject}) as evidence:
        report = audit_engine("small", lambda: InProcess(engines[0]), both[0], SETTINGS, evidence=evidence, others=[other])
    assert any("another pair" in one.mode for one in report.findings)
    assert comparable(judge_evidence(tmp_path, both)) == comparable(report)
    with pytest.raises(EvidenceProblem, match=r"of 2 pairs of models \(first pair, another pair\): give all of them"):
        judge_evidence(tmp_path, both[:1])
