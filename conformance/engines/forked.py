"""An object in a process of its own, started when it is first asked: what crashes there is an answer here.

Forked, where an engine takes long to import, and was imported before; no thread runs yet and no device was touched. The child
stays in its parent's process group: whoever ends the group ends it too.
"""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from conformance.protocols import Unsupported
from conformance.worker import describe

ENDING = 10.0
"""Seconds that a process may take to end by itself: one that has imported torch needs three on a crowded machine."""


class Forked:
    """The object that `make` gives, in another process. After a crash the next question starts a new one.

    afresh: a new interpreter, which has imported nothing yet, rather than a fork. It may have processes of its own; so it does
    not end by itself, and is to be closed.
    """

    def __init__(self, make: Callable[[], Any], *, afresh: bool = False) -> None:
        self._make, self._afresh = make, afresh
        self._process: Any = None
        self._pipe: Any = None

    @property
    def running(self) -> bool:
        """Whether there is a process to ask."""
        return self._process is not None

    def ask(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Call a method of the object. Raises what it refuses with, or RuntimeError saying what went wrong."""
        if self._process is None:
            self._start()
        try:
            self._pipe.send((method, arguments, named))
            kind, value = self._pipe.recv()
        except (EOFError, OSError):
            raise RuntimeError(f"the engine's process {self._ended()}") from None
        if kind == "refused":
            raise value
        if kind == "raised":
            raise RuntimeError(value)
        return value

    def close(self) -> None:
        """End the process: by asking it to, and by force after `ENDING`."""
        if self._process is not None:
            with suppress(OSError):  # it has ended
                self._pipe.send(None)
            self._pipe.close()
            self._process.join(ENDING)
            if self._process.exitcode is None:
                self._process.kill()
                self._process.join()
            self._process = self._pipe = None

    def _start(self) -> None:
        context: Any = multiprocessing.get_context("spawn" if self._afresh else "fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._make), daemon=not self._afresh)
        self._process.start()
        theirs.close()

    def _ended(self) -> str:
        self._process.join()
        code = int(self._process.exitcode)
        self.close()
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _serve(pipe: Connection, make: Callable[[], Any]) -> None:
    """Answer until None is asked. The first question makes the object, so that what this raises is an answer.

    The parent's end of the pipe was forked too, so that the pipe does not close here when the parent closes it.
    """
    for crash in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE):
        signal.signal(crash, signal.SIG_DFL)  # torch would first spend seconds on printing the stack
    served: Any = None
    while True:
        try:
            asked = pipe.recv()
        except EOFError:
            return
        if asked is None:
            return
        method, arguments, named = asked
        try:
            served = make() if served is None else served
            pipe.send(("value", getattr(served, method)(*arguments, **named)))
        except Unsupported as refusal:
            pipe.send(("refused", type(refusal)(str(refusal))))
        except Exception as error:
            traceback.print_exc()
            pipe.send(("raised", describe(error)))
