"""The judge's side of an engine's process: it is started, asked, timed, and ended whatever it does.

A crash, a hang or nonsense on the pipe ends that engine's audit with `EngineFailed`; the judge itself goes on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol

from conformance.components import Component
from conformance.folders import without_folders
from conformance.memory import GIB, memory_of_session
from conformance.protocols import Engine, Mode, Models, Output, Request
from conformance.remote import RemoteError, remote_components
from conformance.wire import receive, send
from conformance.worker import KEY

LOOK = 0.5
"""Seconds between two looks at an engine that is waited for."""


class EngineFailed(Exception):
    """The engine crashed, hung, answered nonsense, refused, or cannot be had here.

    kind: "crash", "hang", "memory", "nonsense", "unsupported" or "not run".

    The message goes into reports that are shared, so folders of this machine are left out of it; the engine's log has them.

    >>> str(EngineFailed("crash", "OSError: no file '/home/me/models/tiny/config.json' (see https://example.org/help/me)"))
    "OSError: no file '…/config.json' (see https://example.org/help/me)"
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(without_folders(message))
        self.kind = kind


@dataclasses.dataclass(frozen=True)
class EngineInfo:
    """What an engine says it is."""

    name: str
    version: str
    modes: tuple[Mode, ...]


STARTING = 60.0
"""Seconds that any engine's process has to report: a busy machine needs many to import what an adapter needs."""

MODE_TYPES = {
    "speculation": dict,
    "exposes_rounds": bool,
    "exact_draft": bool,
    "options": dict,
    "ensemble": float,
    "order": tuple,
    "promises": dict,
}
"""Types of a mode's fields that are not strings."""


def check_modes(modes: Sequence[Mode]) -> None:
    """Raise ValueError unless an engine can be audited in these modes: one or more, each with a name of its own.

    >>> check_modes([Mode("off"), Mode("off")])
    Traceback (most recent call last):
    ValueError: two modes are called 'off'
    """
    if not modes:
        raise ValueError("it names no mode")
    for number, mode in enumerate(modes):
        for field in dataclasses.fields(Mode):
            kind, value = MODE_TYPES.get(field.name, str), getattr(mode, field.name)
            if type(value) is not kind:
                raise ValueError(f"{field.name} of mode {number} is {str(value)[:60]!r}, not a {kind.__name__}")
        if mode.name in [other.name for other in modes[:number]]:
            raise ValueError(f"two modes are called {mode.name[:60]!r}")


class Runner(Protocol):
    """Something that runs an engine for the judge: in a process of its own, or, for planted faults, in this one."""

    def describe(self, k: int) -> EngineInfo:
        """The engine's name, version and modes with `k` drafts per round."""

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """One output per request, in their order. Raises EngineFailed."""

    def metrics(self, mode: Mode) -> Mapping[str, float] | None:
        """See `Engine.metrics`. Raises EngineFailed."""

    def components(self) -> Sequence[Component]:
        """See `Engine.components`; each call of a method may raise EngineFailed, or RemoteError for what the engine raised."""

    def renew(self) -> bool:
        """See `Engine.renew`. False: close it, and start another."""

    def close(self) -> None:
        """End the engine."""


class InProcess:
    """Runs an engine in the judge's own process: for our own engines and the planted faults, which are trusted to return."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def describe(self, k: int) -> EngineInfo:
        """See `Runner.describe`."""
        return EngineInfo(self._engine.name, self._engine.version, tuple(self._engine.modes(k)))

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Runner.generate`."""
        return self._engine.generate(mode, requests)

    def metrics(self, mode: Mode) -> Mapping[str, float] | None:
        """See `Runner.metrics`."""
        return self._engine.metrics(mode)

    def components(self) -> Sequence[Component]:
        """See `Runner.components`."""
        return self._engine.components()

    def renew(self) -> bool:
        """See `Runner.renew`."""
        return self._engine.renew()

    def close(self) -> None:
        """See `Runner.close`."""
        self._engine.close()


class EngineProcess:
    """Runs an engine in a process of its own, started on first use.

    factory: "package.module:callable" that takes `Models` and gives an `Engine`. patience: seconds to wait for its next answer
    before it counts as hung. python: the interpreter of the engine's environment. What the engine prints goes to `log`. memory:
    bytes that it and all that it starts may hold together while it is waited for; None for no limit.
    """

    def __init__(
        self,
        factory: str,
        models: Models,
        *,
        patience: float,
        log: Path | None = None,
        python: str = sys.executable,
        memory: int | None = None,
    ) -> None:
        self._factory, self._models, self._patience, self._python = factory, models, patience, python
        self._memory = memory
        self._log_path = log
        self._log: IO[bytes] | None = None
        self._log_start = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def describe(self, k: int) -> EngineInfo:
        """See `Runner.describe`."""
        said = self._ask({"do": "describe", "k": k})
        try:
            engine = said["engine"]
            modes = tuple(Mode(**entry) for entry in engine["modes"])
            check_modes(modes)
            return EngineInfo(str(engine["name"]), str(engine["version"]), modes)
        except (KeyError, TypeError, ValueError) as error:
            raise self._failed("nonsense", f"the engine described itself in a way that cannot be read: {error}") from error

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Runner.generate`."""
        plain = [request.to_json() for request in requests]
        said = self._ask({"do": "generate", "mode": dataclasses.asdict(mode), "requests": plain})
        for number in range(len(requests)):
            if "done" in said:
                raise self._failed("nonsense", f"the engine gave {number} answers to {len(requests)} requests")
            try:
                output = Output.from_json(said["output"])
            except (KeyError, TypeError, ValueError) as error:
                raise self._failed("nonsense", f"the engine's answer cannot be read: {error}") from error
            yield output
            said = self._hear()
        if "done" not in said:
            raise self._failed("nonsense", "the engine answered more often than it was asked")

    def metrics(self, mode: Mode) -> Mapping[str, float] | None:
        """See `Runner.metrics`."""
        counts = self._ask({"do": "metrics", "mode": dataclasses.asdict(mode)}).get("value")
        if counts is None:
            return None
        try:
            return {str(name): float(value) for name, value in counts.items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise self._failed("nonsense", f"the engine's metrics cannot be read: {error}") from error

    def components(self) -> Sequence[Component]:
        """See `Runner.components`."""
        try:
            return remote_components(self.told(), self.call)
        except (KeyError, TypeError, ValueError) as error:
            raise self._failed("nonsense", f"the engine's components cannot be read: {error}") from error

    def told(self) -> Any:
        """What the engine tells of its components, for `remote_components`."""
        return self._ask({"do": "components"}).get("value")

    def call(self, number: int, method: str, arguments: Sequence[Any], named: Mapping[str, Any], dropped: list[int]) -> Any:
        """Call a method of a component by its number. Raises RemoteError with what it raised."""
        question = {"do": "call", "number": number, "method": method, "arguments": arguments, "named": named}
        said = self._ask({**question, "dropped": dropped})
        if "raised" in said:
            raise RemoteError(str(said["raised"]))
        return said.get("value")

    def renew(self) -> bool:
        """See `Runner.renew`. A process that is not there was asked nothing."""
        try:
            return self._pipe is None or self._ask({"do": "renew"}).get("value") is True
        except EngineFailed:
            return self._pipe is None

    def close(self) -> None:
        """End the engine's process: politely at first, then by force."""
        if self._process is not None:
            try:
                if self._pipe is not None:
                    send(self._pipe, {"do": "close"})
                    self._process.wait(timeout=10)
            except (OSError, subprocess.TimeoutExpired):
                pass
            self._kill()

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        if self._pipe is None:
            self._start()
        assert self._pipe is not None
        try:
            send(self._pipe, message)
        except OSError as error:
            raise self._failed("crash", self._how_it_ended()) from error
        return self._hear()

    def _hear(self) -> dict[str, Any]:
        assert self._pipe is not None
        try:
            self._wait()
            watchdog = threading.Timer(self._patience, self._end_processes)  # for an engine that stops within a message
            watchdog.start()
            try:
                said = receive(self._pipe.recv_bytes)
            finally:
                watchdog.cancel()
        except (EOFError, OSError) as error:
            raise self._failed("crash", self._how_it_ended()) from error
        except (KeyError, TypeError, ValueError) as error:
            raise self._failed("nonsense", f"the engine sent something that is no message: {error}") from error
        if not isinstance(said, dict):
            raise self._failed("nonsense", f"the engine sent {str(said)[:60]!r} where a message was due")
        if "error" in said:
            kind, message = str(said["error"]), str(said.get("message", "no message"))
            if kind in ("unsupported", "not run"):  # the engine is well; only this mode or setting is refused
                raise EngineFailed(kind, message)
            if kind == "ended":  # and so is its adapter
                raise EngineFailed("crash", message)
            raise self._failed(kind, message)
        return said

    def _wait(self) -> None:
        """Until the engine says something. Raises EngineFailed once its process has ended (though a child of it may still hold
        the pipe open), patience is at an end, or the memory of all that it started is above the limit."""
        assert self._pipe is not None
        assert self._process is not None
        until = time.monotonic() + self._patience
        while not self._pipe.poll(LOOK):
            if self._process.poll() is not None and not self._pipe.poll(0):
                raise self._failed("crash", self._how_it_ended())
            if time.monotonic() > until:
                raise self._failed("hang", f"no answer for {self._patience:g} seconds; the engine was ended")
            used = memory_of_session(self._process.pid) if self._memory else None
            if used is not None and self._memory is not None and used > self._memory:
                said = f"the engine's processes held {used / GIB:.2f} GiB, above the limit of {self._memory / GIB:.2f} GiB"
                raise self._failed("memory", f"{said}; it was ended")

    def _start(self) -> None:
        folder = tempfile.mkdtemp(prefix="specref-")
        key = secrets.token_bytes(16)
        models = {field.name: str(getattr(self._models, field.name)) for field in dataclasses.fields(self._models)}
        self._log = open(self._log_path, "a+b") if self._log_path else tempfile.TemporaryFile()  # noqa: SIM115
        self._log_start = os.fstat(self._log.fileno()).st_size  # what another run said there is not this engine's word
        try:
            with Listener(os.path.join(folder, "pipe"), "AF_UNIX", authkey=key) as listener:
                self._process = subprocess.Popen(
                    [self._python, "-m", "conformance.worker", str(listener.address), self._factory, json.dumps(models)],
                    env={**os.environ, KEY: key.hex(), "PYTHONUNBUFFERED": "1"},
                    stdin=subprocess.DEVNULL,
                    stdout=self._log,
                    stderr=self._log,
                    start_new_session=True,
                )
                self._pipe = self._accept(listener)
        finally:
            os.rmdir(folder)

    def _accept(self, listener: Listener) -> Connection:
        """Wait for the worker to connect, or for it to end without having done so."""
        assert self._process is not None
        socket = listener._listener._socket  # type: ignore[attr-defined]  # Listener.accept alone would wait forever
        socket.settimeout(0.2)
        waited = 0.0
        patience = max(self._patience, STARTING)
        while waited < patience:
            try:
                pipe = listener.accept()
            except TimeoutError:
                waited += 0.2
                if self._process.poll() is not None:
                    raise self._failed("crash", self._how_it_ended()) from None
                continue
            except (EOFError, OSError, AuthenticationError):  # it ended, or was ended, while it was greeted
                raise self._failed("crash", self._how_it_ended()) from None
            return pipe
        raise self._failed("hang", f"the engine's process did not report within {patience:g} seconds")

    def _how_it_ended(self) -> str:
        assert self._process is not None
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "the engine's process closed its pipe"
        last = self._last_words()
        return f"the engine's process ended with exit code {code}" + (f"; its last words: {last}" if last else "")

    def _last_words(self) -> str:
        if self._log is None:
            return ""
        self._log.flush()
        size = os.fstat(self._log.fileno()).st_size
        printed = os.pread(self._log.fileno(), 4000, max(self._log_start, size - 4000))
        lines = printed.decode(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else ""

    def _failed(self, kind: str, message: str) -> EngineFailed:
        self._kill()
        return EngineFailed(kind, message)

    def _end_processes(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, 9)  # with everything that the engine started

    def _kill(self) -> None:
        if self._process is not None:
            self._end_processes()
            self._process.wait()
        for held in (self._pipe, self._log):
            if held is not None:
                held.close()
        self._process = self._pipe = self._log = None
