"""vLLM, in process and as a server. Nothing imports vllm before an engine is made: it lives in an environment of its own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from conformance.protocols import Models

if TYPE_CHECKING:
    from conformance.engines.vllm.engine import VllmEngine
    from conformance.engines.vllm.server import VllmServer

OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "NUMBA_NUM_THREADS": "1",  # the n-gram proposer's; more of them wait by spinning
}
"""No network, no telemetry, one thread for the n-gram proposer."""

IN_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "TORCHDYNAMO_DISABLE": "1"}
"""One process, whose scheduling is deterministic, and no compilation: starts take seconds instead of a minute."""


def make(models: Models) -> VllmEngine:
    """vLLM's `LLM` over two local models. What the environment already says of these settings stands."""
    for name, value in (OFFLINE | IN_PROCESS).items():
        os.environ.setdefault(name, value)
    from conformance.engines.vllm.engine import VllmEngine

    return VllmEngine(models)


def make_server(models: Models) -> VllmServer:
    """vLLM's server over two local models."""
    for name, value in (OFFLINE | {"TORCHDYNAMO_DISABLE": "1"}).items():
        os.environ.setdefault(name, value)
    from conformance.engines.vllm.server import VllmServer

    return VllmServer(models)
