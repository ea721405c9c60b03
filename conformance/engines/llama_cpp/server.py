"""One server of llama.cpp in this process, asked over HTTP as any server is, by as many threads as it has slots."""

from __future__ import annotations

import http.client
import json
import threading
import urllib.parse
from pathlib import Path
from typing import Any

import xllamacpp

from conformance.engines.llama_cpp.modes import LOOKUPS
from conformance.protocols import Mode, Unsupported

SLOTS = 4
"""Requests that a server runs at once."""
F32 = xllamacpp.ggml_type.GGML_TYPE_F32


class Server:
    """A server in one way of running it, with its models' files; one thread computes, for two would wait by spinning."""

    def __init__(self, mode: Mode, target: Path, draft: Path, longest: int) -> None:
        self._server: Any = xllamacpp.Server(_params(mode, target, draft, longest))
        address = urllib.parse.urlparse(self._server.listening_address)
        self._place = (str(address.hostname), int(address.port or 80))
        self._threads = threading.local()

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """What the server answers. Raises Unsupported for a request that it refuses, RuntimeError for any other error."""
        status, answer = self._post(json.dumps(body))
        if status == 400:
            raise Unsupported(f"llama.cpp refuses: {answer.get('error', answer)}")
        if status != 200:
            raise RuntimeError(f"llama.cpp's server answers with status {status}: {str(answer)[:200]}")
        return answer

    def close(self) -> None:
        """Stop it."""
        self._server = None

    def _post(self, body: str) -> tuple[int, dict[str, Any]]:
        """One more try on a new connection: the server closes one after a hundred requests."""
        for fresh in (False, True):
            try:
                kept = self._connection(fresh)
                kept.request("POST", "/completion", body, {"Content-Type": "application/json"})
                response = kept.getresponse()
                return response.status, json.loads(response.read())
            except (http.client.HTTPException, OSError):
                if fresh:
                    raise
        raise AssertionError("two tries either return or raise")

    def _connection(self, fresh: bool) -> http.client.HTTPConnection:
        if fresh or not hasattr(self._threads, "kept"):
            self._threads.kept = http.client.HTTPConnection(*self._place, timeout=120)
        kept: http.client.HTTPConnection = self._threads.kept
        return kept


def _params(mode: Mode, target: Path, draft: Path, longest: int) -> Any:
    params = xllamacpp.CommonParams()
    params.model.path = str(target)
    params.n_parallel, params.n_ctx = SLOTS, SLOTS * longest
    params.n_threads_http = SLOTS
    params.warmup = params.fit_params = False
    params.verbosity, params.cache_ram_mib = 0, 0
    # On a CPU it computes attention in half precision: up to 3e-3 in a log-probability, where float32 has 6e-6.
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    _exact(params)
    asked = mode.speculation
    if asked:
        _speculate(params.speculative, str(asked["type"]), int(asked["k"]), draft)
        params.speculative.draft.probabilistic = bool(asked.get("probabilistic"))
    return params


def _exact(of: Any) -> None:
    """One thread, and a cache in float32."""
    of.cpuparams.n_threads = of.cpuparams_batch.n_threads = 1
    of.cache_type_k = of.cache_type_v = F32


def _speculate(speculative: Any, kind: str, k: int, draft: Path) -> None:
    """Up to `k` drafts by a draft model, or by a table of n-grams that knows what followed two tokens."""
    types = xllamacpp.common_speculative_type
    speculative.types = [getattr(types, f"COMMON_SPECULATIVE_TYPE_{kind.upper()}")]
    speculative.draft.n_max = k
    if kind not in LOOKUPS:
        speculative.draft.mparams.path = str(draft)
        _exact(speculative.draft)
    elif kind == "ngram_mod":
        table = speculative.ngram_mod
        table.n_match, table.n_min, table.n_max = 2, 1, k
    else:
        table = getattr(speculative, kind)
        table.size_n, table.size_m, table.min_hits = 2, k, 1
