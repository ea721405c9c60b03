"""Lanes: a few processes of an engine, each lent to one job at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from conformance.harness import Runner


@dataclass
class _Lane:
    runner: Runner | None = None
    pair: int = 0


class Lanes:
    """makers[i] starts an engine on pair i of models; a lane holds one engine, and another one once another pair is asked
    for.
    """

    def __init__(self, makers: Sequence[Callable[[], Runner]]) -> None:
        self._makers = makers
        self._idle: SimpleQueue[_Lane] = SimpleQueue()
        self.number = 0
        self._spent: set[int] = set()

    def open(self, number: int) -> None:
        """Let so many engines run at once."""
        for _ in range(number):
            self._idle.put(_Lane())
        self.number += number

    @contextmanager
    def runner(self, pair: int = 0) -> Iterator[Runner]:
        """A runner of this pair, for the time of one job."""
        with self._lent(self._idle.get(), pair) as runner:
            yield runner

    def spare(self, lent: ExitStack, pair: int = 0) -> list[Runner]:
        """Runners of this pair on every lane that no job has now, held until `lent` is closed."""
        found: list[Runner] = []
        while True:
            try:
                lane = self._idle.get_nowait()
            except Empty:
                return found
            found.append(lent.enter_context(self._lent(lane, pair)))

    @contextmanager
    def _lent(self, lane: _Lane, pair: int) -> Iterator[Runner]:
        try:
            if lane.runner is not None and lane.pair != pair:
                self._end(lane)
            if lane.runner is None:
                lane.runner, lane.pair = self._makers[pair](), pair
            yield lane.runner
            if id(lane.runner) in self._spent:
                self._spent.discard(id(lane.runner))
                if not lane.runner.renew():
                    self._end(lane)
        finally:
            self._idle.put(lane)

    def spend(self, runner: Runner) -> None:
        """A runner that is lent out is not lent again: the next job has a new one."""
        self._spent.add(id(runner))

    @contextmanager
    def fresh(self, pair: int = 0) -> Iterator[Runner]:
        """A runner that nobody asked anything before: a renewed one where that is to be had, else another, ended afterwards."""
        lane: _Lane | None = None
        with suppress(Empty):
            lane = self._idle.get_nowait()
        if lane is not None:
            if lane.runner is not None and lane.pair == pair and lane.runner.renew():
                with self._lent(lane, pair) as renewed:
                    yield renewed
                return
            self._idle.put(lane)
        runner = self._makers[pair]()
        try:
            yield runner
        finally:
            runner.close()

    def close(self) -> None:
        """End every engine."""
        for _ in range(self.number):
            self._end(self._idle.get())
        self.number = 0

    def _end(self, lane: _Lane) -> None:
        if lane.runner is not None:
            self._spent.discard(id(lane.runner))
            lane.runner.close()
        lane.runner = None
