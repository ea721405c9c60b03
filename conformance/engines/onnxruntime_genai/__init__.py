"""ONNX Runtime GenAI. Nothing imports it before an engine is made: it lives in an environment of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.protocols import Models

if TYPE_CHECKING:
    from conformance.engines.onnxruntime_genai.engine import GenaiEngine


def make(models: Models) -> GenaiEngine:
    """GenAI over two Llama models, written as ONNX graphs."""
    from conformance.engines.onnxruntime_genai.engine import GenaiEngine

    return GenaiEngine(models)
