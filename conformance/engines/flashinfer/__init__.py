"""FlashInfer: its verification of chains, on a GPU. Nothing here imports flashinfer before the component is asked."""

from __future__ import annotations

from conformance.engines.flashinfer.chain import ChainSampling, on_a_gpu
from conformance.engines.gpu import installed_version
from conformance.engines.isolated import Isolated
from conformance.engines.parts_alone import PartsAlone
from conformance.protocols import Models


def make(models: Models) -> PartsAlone:
    """FlashInfer. It reads no models: laws are handed to it."""
    return PartsAlone("flashinfer", installed_version("flashinfer-python"), (Isolated(ChainSampling, on_a_gpu),))
