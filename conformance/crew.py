"""The engines that work on one case at once: that of its own job, and every lane that nobody else needs.

Each call of an engine is a chunk of requests with seeds of their own, and answers are handed on in the order of submission,
never of completion. So what is judged, and in which order, does not depend on how many engines there are.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue

from conformance.harness import Runner
from conformance.lanes import Lanes
from conformance.protocols import Mode, Output, Request

AHEAD = 2
"""Chunks that are asked for, per engine, before the first of them is judged: none waits while one is scored."""
STARTING = 5.0
"""Seconds that starting another engine costs at least."""

Chunk = tuple[Sequence[Request], Sequence[Output]]


class Crew:
    """first: the runner that the case has anyway. lanes: where others come from as they fall idle."""

    def __init__(self, first: Runner, lanes: Lanes, pair: int = 0) -> None:
        self.first, self._lanes, self._pair = first, lanes, pair
        self._longest = 0.0  # seconds of a chunk: the first one has the engine start
        self._left = 0

    def answers(self, mode: Mode, chunks: Iterator[Sequence[Request]], number: int) -> Generator[Chunk, None, None]:
        """Each of about `number` chunks with its outputs, in order. Alone, an engine is asked for nothing before it is wanted.

        Raises what `Runner.generate` raises, in its turn: the chunks before were given.
        """
        self._left = number
        with ExitStack() as lent:
            while True:
                requests = next(chunks, None)
                if requests is None:
                    return
                yield requests, self._ask(self.first, mode, requests)
                others = self._others(lent)
                if others:
                    yield from self._together(mode, chunks, others, lent)
                    return

    def _ask(self, runner: Runner, mode: Mode, requests: Sequence[Request]) -> list[Output]:
        started = time.monotonic()
        outputs = list(runner.generate(mode, requests))
        self._longest = max(self._longest, time.monotonic() - started)
        self._left -= 1
        return outputs

    def _others(self, lent: ExitStack) -> list[Runner]:
        """Idle lanes, where so much is left to do that starting their engines pays."""
        pays = self._left * self._longest > STARTING + 4 * self._longest
        return self._lanes.spare(lent, self._pair) if pays else []

    def _together(
        self, mode: Mode, chunks: Iterator[Sequence[Request]], others: Sequence[Runner], lent: ExitStack
    ) -> Generator[Chunk, None, None]:
        idle: SimpleQueue[Runner] = SimpleQueue()
        engines = 0

        def ask(requests: Sequence[Request]) -> list[Output]:
            runner = idle.get()
            try:
                return self._ask(runner, mode, requests)
            finally:
                idle.put(runner)

        pending: deque[tuple[Sequence[Request], Future[list[Output]]]] = deque()
        pool = ThreadPoolExecutor(self._lanes.number)
        more: Sequence[Runner] = (self.first, *others)
        try:
            while True:
                for runner in more:
                    idle.put(runner)
                engines += len(more)
                while len(pending) < AHEAD * engines and (requests := next(chunks, None)) is not None:
                    pending.append((requests, pool.submit(ask, requests)))
                if not pending:
                    return
                requests, answered = pending.popleft()
                yield requests, answered.result()
                more = self._others(lent)
        finally:  # before the lanes go back, nobody may still be asking them
            pool.shutdown(wait=True, cancel_futures=True)
