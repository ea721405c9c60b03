"""SGLang's server, started by the adapter on a GPU. Nothing here imports sglang: it runs in a process of its own."""

from __future__ import annotations

from conformance.engines.sglang.server import SglangServer
from conformance.protocols import Models


def make(models: Models) -> SglangServer:
    """SGLang's server over two local models."""
    return SglangServer(models)
