"""llama.cpp's server, in process, by the package xllamacpp. Nothing imports that before an engine is made: it lives in an
environment of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.protocols import Models

if TYPE_CHECKING:
    from conformance.engines.llama_cpp.engine import LlamaCppEngine


def make(models: Models) -> LlamaCppEngine:
    """llama.cpp over two Llama models, written as GGUF files."""
    from conformance.engines.llama_cpp.engine import LlamaCppEngine

    return LlamaCppEngine(models)
