"""economize. Nothing imports it before an engine is made: it lives in an environment of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.protocols import Models

if TYPE_CHECKING:
    from conformance.engines.economize.engine import EconomizeEngine


def make(models: Models) -> EconomizeEngine:
    """economize over two models of transformers."""
    from conformance.engines.economize.engine import EconomizeEngine

    return EconomizeEngine(models)
