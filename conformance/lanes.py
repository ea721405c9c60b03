"""Lanes: a few processes of an engine, each lent to one job at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue

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
        self._number = 0
        self._spent: set[int] = set()

    def open(self, number: int) -> None:
        """Let so many engines run at once."""
        for _ in range(number):
            self._idle.put(_Lane())
        self._number += number

    @contextmanager
    def runner(self, pair: int = 0) -> Iterator[Runner]:
        """A runner of this pair, for the time of one job."""
        lane = self._idle.get()
        try:
            if lane.runner is not None and lane.pair != pair:
                self._end(lane)
            if lane.runner is None:
                lane.runner, lane.pair = self._makers[pair](), pair
            yield lane.runner
            if id(lane.runner) in self._spent:
                self._end(lane)
        finally:
            self._idle.put(lane)

    def spend(self, runner: Runner) -> None:
        """A runner that is lent out is not lent again: the next job has a new one."""
        self._spent.add(id(runner))

    @contextmanager
    def fresh(self, pair: int = 0) -> Iterator[Runner]:
        """A runner that nobody asked anything before, ended afterwards."""
        runner = self._makers[pair]()
        try:
            yield runner
        finally:
            runner.close()

    def close(self) -> None:
        """End every engine."""
        for _ in range(self._number):
            self._end(self._idle.get())
        self._number = 0

    def _end(self, lane: _Lane) -> None:
        if lane.runner is not None:
            self._spent.discard(id(lane.runner))
            lane.runner.close()
        lane.runner = None
