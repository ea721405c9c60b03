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

    def __init__(self, makers: Sequence[Callable[[], Runner]], number: int) -> None:
        self._makers = makers
        self._idle: SimpleQueue[_Lane] = SimpleQueue()
        self.number = number
        for _ in range(number):
            self._idle.put(_Lane())

    @contextmanager
    def runner(self, pair: int = 0) -> Iterator[Runner]:
        """A runner of this pair, for the time of one job."""
        lane = self._idle.get()
        try:
            if lane.runner is not None and lane.pair != pair:
                lane.runner.close()
                lane.runner = None
            if lane.runner is None:
                lane.runner, lane.pair = self._makers[pair](), pair
            yield lane.runner
        finally:
            self._idle.put(lane)

    def close(self) -> None:
        """End every engine."""
        for _ in range(self.number):
            lane = self._idle.get()
            if lane.runner is not None:
                lane.runner.close()
