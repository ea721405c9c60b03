"""The process of an engine as the operating system has it: started, connected, waited for, and ended whatever it does."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import IO, Any

from conformance.memory import GIB, memory_of_session
from conformance.problems import EngineFailed
from conformance.wire import receive, send
from conformance.worker import KEY

LOOK = 0.5
"""Seconds between two looks at an engine that is waited for."""
STARTING = 300.0
"""Seconds that any engine's process has to report, and to give its first answer: a busy machine needs many to import what an
adapter needs, and to load the models."""
SILENCE = 60.0
"""Seconds without an answer after which its silence is told, and told again."""
_RUNNING: set[WorkerProcess] = set()


def unheard(waited: float, patience: float) -> None:
    """Tell nobody of an engine's silence."""


def end_all() -> None:
    """End every worker of this judge by force, with all that it started; whoever waits for it hears of a crash."""
    for one in tuple(_RUNNING):
        one.kill()


def _threads(number: int | None) -> dict[str, str]:
    """What OpenMP reads when a library that uses it is loaded, which may be before the adapter is."""
    return {} if number is None else {"OMP_NUM_THREADS": str(number)}


class WorkerProcess:
    """A worker that runs and is connected; what it says is a message for others to read.

    command: starts it; the address of the judge's pipe is its last word. patience, log, memory, threads and silent: see
    `EngineProcess`. Whatever raises EngineFailed has ended the process.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        patience: float,
        log: Path | None,
        memory: int | None,
        threads: int | None,
        silent: Callable[[float, float], None],
    ) -> None:
        self._patience, self._memory, self._silent = max(patience, STARTING), memory, silent
        self._patience_once_heard = patience
        self._log: IO[bytes] = open(log, "a+b") if log else tempfile.TemporaryFile()  # noqa: SIM115
        self._log_start = os.fstat(self._log.fileno()).st_size  # what another run said there is not this engine's word
        self._pipe: Connection | None = None
        folder = tempfile.mkdtemp(prefix="specref-")
        key = secrets.token_bytes(16)
        try:
            with Listener(os.path.join(folder, "pipe"), "AF_UNIX", authkey=key) as listener:
                self._process = subprocess.Popen(
                    [*command, str(listener.address)],
                    env={**_threads(threads), **os.environ, KEY: key.hex(), "PYTHONUNBUFFERED": "1"},
                    stdin=subprocess.DEVNULL,
                    stdout=self._log,
                    stderr=self._log,
                    start_new_session=True,
                )
                _RUNNING.add(self)
                self._pipe = self._accept(listener)
        finally:
            os.rmdir(folder)

    @property
    def running(self) -> bool:
        """Whether it is connected and was not ended."""
        return self._pipe is not None

    def tell(self, message: dict[str, Any]) -> None:
        """Send a message. Raises EngineFailed if it has ended."""
        assert self._pipe is not None
        try:
            send(self._pipe, message)
        except OSError as error:
            raise self.failed("crash", self._how_it_ended()) from error

    def hear(self) -> dict[str, Any]:
        """Its next message. Raises EngineFailed if it ends, hangs, outgrows its memory, or sends something else."""
        assert self._pipe is not None
        try:
            self._wait(self._pipe)
            watchdog = threading.Timer(self._patience, self.kill)  # for an engine that stops within a message
            watchdog.start()
            try:
                said = receive(self._pipe.recv_bytes)
            finally:
                watchdog.cancel()
            self._patience = self._patience_once_heard
        except (EOFError, OSError) as error:
            raise self.failed("crash", self._how_it_ended()) from error
        except (KeyError, TypeError, ValueError) as error:
            raise self.failed("nonsense", f"the engine sent something that is no message: {error}") from error
        if not isinstance(said, dict):
            raise self.failed("nonsense", f"the engine sent {str(said)[:60]!r} where a message was due")
        return said

    def failed(self, kind: str, message: str) -> EngineFailed:
        """End it; what is to be raised of it."""
        self._end()
        return EngineFailed(kind, message)

    def close(self) -> None:
        """End it: politely at first, then by force."""
        try:
            if self._pipe is not None:
                send(self._pipe, {"do": "close"})
                self._process.wait(timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            pass
        self._end()

    def _wait(self, pipe: Connection) -> None:
        """Until the engine says something. Raises EngineFailed once its process has ended (though a child of it may still hold
        the pipe open), patience is at an end, or the memory of all that it started is above the limit."""
        began, told = time.monotonic(), 0
        while not pipe.poll(LOOK):
            if self._process.poll() is not None and not pipe.poll(0):
                raise self.failed("crash", self._how_it_ended())
            waited = time.monotonic() - began
            if waited // SILENCE > told:
                told += 1
                self._silent(waited, self._patience)
            if waited > self._patience:
                raise self.failed("hang", f"no answer for {self._patience:g} seconds; the engine was ended")
            used = memory_of_session(self._process.pid) if self._memory else None
            if used is not None and self._memory is not None and used > self._memory:
                said = f"the engine's processes held {used / GIB:.2f} GiB, above the limit of {self._memory / GIB:.2f} GiB"
                raise self.failed("memory", f"{said}; it was ended")

    def _accept(self, listener: Listener) -> Connection:
        """Wait for the worker to connect, or for it to end without having done so."""
        socket = listener._listener._socket  # type: ignore[attr-defined]  # Listener.accept alone would wait forever
        socket.settimeout(0.2)
        waited = 0.0
        while waited < self._patience:
            try:
                pipe = listener.accept()
            except TimeoutError:
                waited += 0.2
                if self._process.poll() is not None:
                    raise self.failed("crash", self._how_it_ended()) from None
                continue
            except (EOFError, OSError, AuthenticationError):  # it ended, or was ended, while it was greeted
                raise self.failed("crash", self._how_it_ended()) from None
            return pipe
        raise self.failed("hang", f"the engine's process did not report within {self._patience:g} seconds")

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "the engine's process closed its pipe"
        last = self._last_words()
        return f"the engine's process ended with exit code {code}" + (f"; its last words: {last}" if last else "")

    def _last_words(self) -> str:
        self._log.flush()
        size = os.fstat(self._log.fileno()).st_size
        printed = os.pread(self._log.fileno(), 4000, max(self._log_start, size - 4000))
        lines = printed.decode(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else ""

    def kill(self) -> None:
        """End it by force, with everything that the engine started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)
        self._process.wait()

    def _end(self) -> None:
        self.kill()
        _RUNNING.discard(self)
        if self._pipe is not None:
            self._pipe.close()
        self._log.close()
        self._pipe = None
