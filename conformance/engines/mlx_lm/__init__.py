"""mlx-lm. Nothing imports it before an engine is made: it lives in an environment of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.protocols import Models

if TYPE_CHECKING:
    from conformance.engines.mlx_lm.engine import MlxLm


def make(models: Models) -> MlxLm:
    """mlx-lm over two models in transformers' format."""
    from conformance.engines.mlx_lm.engine import MlxLm

    return MlxLm(models)
