"""OpenVINO GenAI. Nothing imports it before an engine is made: it lives in an environment of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.protocols import Models

if TYPE_CHECKING:
    from conformance.engines.openvino_genai.engine import OpenVino


def make(models: Models) -> OpenVino:
    """OpenVINO GenAI over two models of transformers, which are converted."""
    from conformance.engines.openvino_genai.engine import OpenVino

    return OpenVino(models)
