"""A server that the adapter starts itself, one at a time: in each mode another, with its own settings of speculation.

Every request is sent on its own; the server puts together what it likes.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import SystemRandom
from typing import Any

from conformance.engines.descendants import Known, descendants, end
from conformance.engines.http_client import Client, ServerFailed
from conformance.engines.http_server import CONCURRENCY
from conformance.engines.last_words import LastWords
from conformance.engines.one_mode import OneMode
from conformance.protocols import Mode, Models, Output, Request, Unsupported

PATIENCE = 280.0
"""Seconds that a server may take to start."""
ENDING = 5.0
"""Seconds that one which answers nobody any more may take to end: what it says of that is the reason."""
PORTS = range(20_000, 32_768)
"""Below those that a system gives to whoever asks for any, above Ray's: nobody is given it before the server takes it."""


class StartedServer(OneMode):
    """Asking for another mode stops the server and starts the next. Subclasses say how it is started, and what is asked.

    called: as in messages. path: under which it is asked.
    """

    called, path = "the server", "completions"
    environment: Mapping[str, str] = {}
    """What is added to the environment of its process."""

    def __init__(self, models: Models) -> None:
        super().__init__(models)
        self._process: subprocess.Popen[bytes] | None = None
        self._client: Client | None = None
        self._words: LastWords | None = None
        self._started: Known = {}
        self._address = ""

    def command(self, mode: Mode, port: int) -> Sequence[str]:
        """How it is started in a mode. Raises NotHere for one that this machine cannot run."""
        raise NotImplementedError

    def body(self, request: Request) -> dict[str, Any]:
        """What asks for one continuation. Raises Unsupported, naming the setting, for one that the server does not know."""
        raise NotImplementedError

    def read(self, answer: Any) -> Output:
        """The output that an answer holds."""
        raise NotImplementedError

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Engine.generate`. At most `CONCURRENCY` requests are on their way. A server that ended is started again: whoever
        was asking when it did was told so."""
        if self._mode != mode or self._process is None or self._process.poll() is not None:
            self.close()
            self._start(mode)
        with ThreadPoolExecutor(CONCURRENCY) as pool:
            yield from pool.map(self._ask, requests)

    def close(self) -> None:
        """See `Engine.close`."""
        if self._process is not None:
            if self._process.poll() is None:
                self._remember_counts()
            self._stop()

    def _ask(self, request: Request) -> Output:
        assert self._client is not None
        try:
            return self.read(self._client.post(self.path, self.body(request)))
        except ServerFailed as failed:
            if "status 400" in str(failed):
                raise Unsupported(f"{self.called} refuses: {failed}") from failed
            assert self._process is not None
            try:
                self._process.wait(ENDING)
            except subprocess.TimeoutExpired:
                raise failed from None
            raise RuntimeError(self._how_it_ended("while it was asked")) from failed

    def _start(self, mode: Mode) -> None:
        port = free_port()
        command = self.command(mode, port)
        self._address = f"http://127.0.0.1:{port}"
        environment = {**os.environ, **self.environment}
        self._process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert self._process.stdout is not None
        self._words = LastWords(self._process.stdout)
        self._await()
        self._started = descendants(self._process.pid)
        self._mode, self._client = mode, Client(self._address, timeout=PATIENCE)

    def _await(self) -> None:
        """Wait until the server is well. Raises RuntimeError if it ends, or takes too long."""
        assert self._process is not None
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if self._process.poll() is not None:
                raise RuntimeError(self._how_it_ended("while it started"))
            try:
                with urllib.request.urlopen(f"{self._address}/health", timeout=5):
                    return
            except OSError:
                time.sleep(0.5)
        self._stop()
        raise RuntimeError(f"{self.called} did not start within {PATIENCE:g} seconds")

    def _how_it_ended(self, when: str) -> str:
        assert self._process is not None
        assert self._words is not None
        code, said = self._process.returncode, self._words.said
        return f"{self.called} ended with exit code {code} {when}; it said last: {said}; mend that, and give the audit again"

    def _stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        end(self._started)  # a server that was killed has ended none of its own
        self._started = {}
        if self._client is not None:
            self._client.close()
        self._mode = self._process = self._client = None


def free_port() -> int:
    """One of `PORTS` that nobody listens on. Raises RuntimeError if there is none.

    >>> free_port() in PORTS
    True
    """
    for port in SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
    raise RuntimeError(f"every port from {PORTS[0]} to {PORTS[-1]} is taken; end a server")


def words_of(named: Mapping[str, Any]) -> list[str]:
    """Named values as options of a command line.

    >>> words_of({"port": 8000, "host": "127.0.0.1"})
    ['--port', '8000', '--host', '127.0.0.1']
    """
    return [word for name, value in named.items() for word in (f"--{name}", str(value))]
