"""vLLM's OpenAI-compatible server as an engine under audit: started by the adapter, in some of the modes."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import vllm

from conformance.engines.adapting import with_what_it_lacks
from conformance.engines.http_server import completion_request, read_completion
from conformance.engines.started_server import StartedServer, words_of
from conformance.engines.vllm.metrics import from_text
from conformance.engines.vllm.modes import server_modes
from conformance.engines.vllm.offline import KV_BYTES, speculative_config
from conformance.protocols import Mode, Output, Request

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
SWITCHES = ("--enforce-eager", "--no-enable-prefix-caching", "--skip-tokenizer-init", "--disable-uvicorn-access-log")


class VllmServer(StartedServer):
    """The server; its engine runs in a process of its own, as servers' engines do."""

    name = "vllm-server"
    version = vllm.__version__
    called, path = "vLLM's server", "v1/completions"
    environment: Mapping[str, str] = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}

    def modes(self, k: int) -> Sequence[Mode]:
        """See `Engine.modes`."""
        return [with_what_it_lacks(mode, partial(speculative_config, self._models)) for mode in server_modes(k)]

    def counted(self) -> Mapping[str, float]:
        """See `OneMode.counted`."""
        with urllib.request.urlopen(f"{self._address}/metrics", timeout=30) as page:
            return from_text(page.read().decode())

    def command(self, mode: Mode, port: int) -> list[str]:
        """See `StartedServer.command`."""
        return command(str(self._models.target), port, speculative_config(self._models, mode))

    def body(self, request: Request) -> dict[str, Any]:
        """See `StartedServer.body`. The model's own ends are switched off: a request names its ends itself."""
        return completion_request(request, NAME) | {"ignore_eos": True}

    def read(self, answer: Any) -> Output:
        """See `StartedServer.read`."""
        return read_completion(answer)


def command(model: str, port: int, speculation: dict[str, Any] | None) -> list[str]:
    """The command line of a server.

    >>> command("m", 8000, {"method": "ngram"})[-2:]
    ['--speculative-config', '{"method": "ngram"}']
    """
    words = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *SWITCHES]
    words += words_of({"model": model, "port": port, **ARGUMENTS})
    return words + (["--speculative-config", json.dumps(speculation)] if speculation else [])
