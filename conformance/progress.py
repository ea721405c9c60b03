"""How far long work is: a bar on a terminal, a line at every tenth of the way in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from conformance.watcher import Watcher


@contextmanager
def watching(console: Console) -> Iterator[Watcher]:
    """A watcher that suits the console."""
    if not console.is_terminal:
        yield _Lines(console)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bars:
        yield _Bars(bars)


class _Bars:
    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def plan(self, engine: str, said: Callable[[], str]) -> None:
        self._bars.console.print(f"{engine}: {said()}", markup=False)

    def begin(self, engine: str, total: int) -> None:
        self._tasks[engine] = self._bars.add_task(engine, total=total)

    def advance(self, engine: str, amount: int, doing: str) -> None:
        self._bars.update(self._tasks[engine], advance=amount, description=f"{engine}: {doing}")

    def silent(self, engine: str, waited: float, patience: float) -> None:
        self._bars.console.print(_silence(engine, waited, patience), markup=False)

    def end(self, engine: str) -> None:
        self._bars.update(self._tasks[engine], description=engine)


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._total = self._done = self._said = 0
        self._started = 0.0

    def plan(self, engine: str, said: Callable[[], str]) -> None:
        self._console.print(f"{engine}: {said()}", markup=False)

    def begin(self, engine: str, total: int) -> None:
        self._total, self._done, self._said, self._started = total, 0, 0, time.monotonic()

    def advance(self, engine: str, amount: int, doing: str) -> None:
        self._done += amount
        tenths = min(10 * self._done // max(self._total, 1), 10)
        if tenths > self._said:
            self._said = tenths
            passed = time.monotonic() - self._started
            left = passed * max(self._total - self._done, 0) / self._done
            self._console.print(f"{engine}: {10 * tenths}% after {passed:.0f} s, {left:.0f} s left ({doing})", markup=False)

    def silent(self, engine: str, waited: float, patience: float) -> None:
        self._console.print(_silence(engine, waited, patience), markup=False)

    def end(self, engine: str) -> None:
        self._console.print(f"{engine}: done after {time.monotonic() - self._started:.0f} s", markup=False)


def _silence(engine: str, waited: float, patience: float) -> str:
    return f"{engine}: no answer for {waited:.0f} s; one that takes more than {patience:.0f} s is ended, and the rest goes on"
