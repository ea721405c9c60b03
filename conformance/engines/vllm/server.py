"""vLLM's OpenAI-compatible server as an engine under audit: started by the adapter, one at a time, in some of the modes.

Every request is sent on its own, with its seed; the server puts together what it likes.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import vllm

from conformance.engines.http_client import Client, ServerFailed
from conformance.engines.http_server import CONCURRENCY, completion_request, read_completion
from conformance.engines.vllm.metrics import from_text
from conformance.engines.vllm.modes import server_modes
from conformance.engines.vllm.offline import KV_BYTES, speculative_config
from conformance.engines.vllm.one_mode import OneMode
from conformance.protocols import Mode, Models, Output, Request, Unsupported

PATIENCE = 280.0
"""Seconds that a server may take to start."""
NAME = "audited"
ARGUMENTS = {
    "served-model-name": NAME,
    "host": "127.0.0.1",
    "dtype": "float32",
    "max-num-seqs": 64,
    "max-model-len": 512,
    "max-logprobs": -1,
    "kv-cache-memory-bytes": KV_BYTES,
    "generation-config": "vllm",
}
SWITCHES = ("--enforce-eager", "--no-enable-prefix-caching", "--skip-tokenizer-init")


class VllmServer(OneMode):
    """One server at a time: asking for another mode stops it and starts the other."""

    name = "vllm-server"
    version = vllm.__version__

    def __init__(self, models: Models) -> None:
        super().__init__(models)
        self._process: subprocess.Popen[bytes] | None = None
        self._client: Client | None = None
        self._address = ""

    def modes(self, k: int) -> Sequence[Mode]:
        """See `Engine.modes`."""
        return server_modes(k)

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Engine.generate`. At most `CONCURRENCY` requests are on their way."""
        if self._mode != mode:
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

    def counted(self) -> Mapping[str, float]:
        """See `OneMode.counted`."""
        with urllib.request.urlopen(f"{self._address}/metrics", timeout=30) as page:
            return from_text(page.read().decode())

    def _ask(self, request: Request) -> Output:
        assert self._client is not None
        try:
            body = completion_request(request, NAME) | {"ignore_eos": True}  # the model's own: a request names its ends itself
            return read_completion(self._client.post("completions", body))
        except ServerFailed as failed:
            if "status 400" in str(failed):
                raise Unsupported(f"vLLM's server refuses: {failed}") from failed
            raise

    def _start(self, mode: Mode) -> None:
        speculation = speculative_config(self._models, mode)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        self._address = f"http://127.0.0.1:{port}"
        self._process = subprocess.Popen(command(str(self._models.target), port, speculation), env=environment())
        self._await()
        self._mode, self._client = mode, Client(f"{self._address}/v1", timeout=PATIENCE)

    def _await(self) -> None:
        """Wait until the server is well. Raises RuntimeError if it ends, or takes too long."""
        assert self._process is not None
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if self._process.poll() is not None:
                raise RuntimeError(f"vLLM's server ended with exit code {self._process.returncode} while it started")
            try:
                with urllib.request.urlopen(f"{self._address}/health", timeout=5):
                    return
            except OSError:
                time.sleep(0.5)
        self._stop()
        raise RuntimeError(f"vLLM's server did not start within {PATIENCE:g} seconds")

    def _stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._client is not None:
            self._client.close()
        self._mode = self._process = self._client = None


def command(model: str, port: int, speculation: dict[str, Any] | None) -> list[str]:
    """The command line of a server.

    >>> command("m", 8000, {"method": "ngram"})[-2:]
    ['--speculative-config', '{"method": "ngram"}']
    """
    named = {"model": model, "port": port, **ARGUMENTS}
    words = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *SWITCHES]
    words += [word for name, value in named.items() for word in (f"--{name}", str(value))]
    return words + (["--speculative-config", json.dumps(speculation)] if speculation else [])


def environment() -> dict[str, str]:
    """A server's environment: it runs its engine in a process of its own, as servers do."""
    return {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
