"""Ctrl-C and SIGTERM end a run at once: evidence is whole at every moment, so that no engine has to be waited for."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console

from conformance.process import end_all

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def ending_at_once(console: Console, evidence: Path | None) -> Iterator[None]:
    """Until the end of the block either signal ends this process and its engines, with a word on how to go on, and exit code
    128 + the signal's number, as a shell has it. evidence: the folder where samples are kept, if they are.
    """

    def end(number: int, _: FrameType | None) -> None:
        console.show_cursor()
        kept = f"What was asked is kept in {evidence}; the same command with --evidence {evidence} goes on from there"
        lost = "Nothing was kept; without --no-evidence a run can go on where it was ended"
        said = lost if evidence is None else kept if evidence.exists() else "Nothing was asked yet"
        console.print(f"Interrupted. {said}.", markup=False, soft_wrap=True)  # what is to be copied stays in one piece
        end_all()
        os._exit(128 + number)

    before = {number: signal.signal(number, end) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
