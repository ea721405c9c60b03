"""Several engines at once, here and on Ray: the same samples and evidence, whoever answered first, whoever was lost."""

from __future__ import annotations

import importlib.util
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from conformance import crew
from conformance.audit import audit_engine
from conformance.controls import instance
from conformance.crew import Crew
from conformance.harness import EngineProcess, InProcess, Runner
from conformance.lanes import Lanes
from conformance.problems import EngineFailed, UsageProblem
from conformance.protocols import Mode, Models, Output, Request
from conformance.ray_workers import RayRunner, RayWorkers
from conformance.workers import Workers
from specref.processors import SamplingSettings
from tests.conformance.evidence.audits import SETTINGS, Small, comparable, left_alone, subject

MODE = Mode("off")
MANY = replace(SETTINGS, level=replace(SETTINGS.level, tokens=1_600))


class Echo:
    """Answers each request with its seed, in its own time, and keeps the seeds."""

    fails = -1

    def __init__(self) -> None:
        self.asked: list[int] = []

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        time.sleep(random.random() * 0.01)
        self.asked += [request.seed for request in requests]
        if self.fails in self.asked:
            raise EngineFailed("crash", f"at {self.fails}")
        return iter([Output((request.seed,)) for request in requests])

    def renew(self) -> bool:
        """It cannot."""
        return False

    def close(self) -> None:
        """Nothing is held."""


def chunks(number: int) -> Iterator[list[Request]]:
    return ([Request((1,), SamplingSettings(max_tokens=1), seed)] for seed in range(number))


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another engine is taken as soon as one is idle."""
    monkeypatch.setattr(crew, "STARTING", -1e9)


def made(lanes: int) -> tuple[Lanes, list[Echo]]:
    runners: list[Echo] = []

    def make() -> Runner:
        runners.append(Echo())
        return runners[-1]  # type: ignore[return-value]

    lanes_of = Lanes([make])
    lanes_of.open(lanes)
    return lanes_of, runners


@pytest.mark.usefixtures("eager")
def test_answers_come_in_the_order_of_submission_from_all_idle_lanes() -> None:
    lanes, runners = made(3)
    with lanes.runner() as first:
        given = [requests[0].seed for requests, outputs in Crew(first, lanes).answers(MODE, chunks(60), 60)]
        assert lanes.spare(ExitStack()) != []  # they were given back
    assert given == list(range(60))
    assert len(runners) == 3
    assert all(len(runner.asked) > 5 for runner in runners)
    assert sorted(seed for runner in runners for seed in runner.asked) == given


def test_an_engine_alone_is_asked_for_nothing_before_it_is_wanted() -> None:
    lanes, runners = made(1)
    with lanes.runner() as first:
        answers = Crew(first, lanes).answers(MODE, chunks(10), 10)
        next(answers)
        assert runners[0].asked == [0]
        answers.close()


@pytest.mark.parametrize(("seconds", "engines"), [(0.01, 1), (10.0, 2)])
def test_another_engine_is_started_only_where_much_is_left(
    monkeypatch: pytest.MonkeyPatch, seconds: float, engines: int
) -> None:
    """By a clock of our own, on which each chunk takes so many seconds: a machine may stand still in the middle of one."""
    monkeypatch.setattr(crew, "time", SimpleNamespace(monotonic=count(step=seconds).__next__))
    lanes, runners = made(2)
    with lanes.runner() as first:
        assert len(list(Crew(first, lanes).answers(MODE, chunks(10), 10))) == 10
    assert len(runners) == engines


@pytest.mark.usefixtures("eager")
def test_a_failure_comes_in_its_turn_and_nobody_is_asked_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Echo, "fails", 7)
    lanes, runners = made(2)
    with lanes.runner() as first:
        answers = Crew(first, lanes).answers(MODE, chunks(100), 100)
        assert [next(answers)[0][0].seed for _ in range(7)] == list(range(7))
        with pytest.raises(EngineFailed, match="at 7"):
            next(answers)
    assert sum(len(runner.asked) for runner in runners) < 20


@pytest.mark.usefixtures("eager")
def test_three_lanes_judge_what_one_judges() -> None:
    one, three = (
        audit_engine("small", lambda: InProcess(Small(*instance())), subject(), MANY, lanes=lanes) for lanes in (1, 3)
    )
    assert comparable(three) == comparable(one)


def test_a_fresh_engine_stands_beside_the_used_ones() -> None:
    lanes, runners = made(1)
    with lanes.runner():
        pass
    with lanes.fresh() as fresh:
        assert id(fresh) == id(runners[1])
    with lanes.runner() as again:
        assert id(again) == id(runners[0])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"number": 0}, "workers is 0; give 1 or more"),
        ({"gpus": 1.0}, "it is for workers on Ray: give --ray too"),
        ({"ray": "local", "gpus": -1.0}, "gpus-per-worker is -1"),
    ],
)
def test_settings_that_cannot_be_are_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(UsageProblem, match=says):
        Workers(**given)  # type: ignore[arg-type]


def start_of(name: str) -> Callable[[], EngineProcess]:
    return partial(EngineProcess, f"tests.conformance.evidence.audits:{name}", Models(Path(), Path()), patience=120.0)


def started(number: int) -> RayWorkers:
    """A local cluster. Ray gives its own parts 15 seconds to start, and no option to change that: where a busy machine takes
    longer, there is no cluster to test with."""
    try:
        return RayWorkers("local", number)
    except UsageProblem as problem:
        if "timed out during startup" not in str(problem):
            raise
        pytest.skip(f"not run: {problem}")


def test_a_cluster_that_does_not_start_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed: not run")

    def late(*_: object, **__: object) -> None:
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr(ray, "init", late)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for address, said in (
        ("local", "starts no cluster here (.*); .* leave out --ray"),
        ("auto", "at 'auto' (.*); .* --ray local"),
    ):
        with pytest.raises(UsageProblem, match=said.replace("(.*)", r"\(.* timed out during startup.\)")):
            RayWorkers(address, 1)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: not run")
@pytest.mark.usefixtures("eager")
def test_ray_workers_judge_what_one_process_judges_though_a_worker_is_lost() -> None:
    import ray

    runners: list[RayRunner] = []
    with started(3) as cluster:

        def make() -> Runner:
            runners.append(cluster.runner(start_of("small")))
            return runners[-1]

        lost = threading.Event()

        class Watcher:
            """Kills a worker in the middle."""

            def plan(self, name: str, said: Callable[[], str]) -> None: ...

            def begin(self, name: str, total: int) -> None: ...

            def advance(self, name: str, amount: int, what: str) -> None:
                if not lost.is_set() and amount:
                    lost.set()
                    ray.kill(runners[0]._host)

            def silent(self, name: str, waited: float, patience: float) -> None: ...

            def end(self, name: str) -> None: ...

        report = audit_engine("small", make, subject(), MANY, lanes=2, watcher=Watcher())
        wrong = cluster.runner(start_of("none"))
        with pytest.raises(EngineFailed, match="cannot load") as failed:
            wrong.describe(2)
        assert failed.value.kind == "crash"
        wrong.close()
    with pytest.raises(UsageProblem, match="a worker needs 1 and 1, and one more than --workers 1"):
        RayWorkers("local", 1, gpus=1.0)
    assert lost.is_set()
    assert len(runners) >= 2
    assert comparable(report) == comparable(left_alone(MANY))
