"""Parts of transformers that can be audited alone: its verification function, drafters, caches, masks of trees, and rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance.components import Component
from conformance.engines.transformers.caches import caches
from conformance.engines.transformers.drafters import drafters
from conformance.engines.transformers.filled_cache import FilledCache
from conformance.engines.transformers.readers import readers
from conformance.engines.transformers.verifiers import verifiers


def all_components() -> Sequence[Component]:
    """Every part that the installed version offers, its caches in front of a share of the architectures."""
    parts: list[Any] = [*verifiers(), *drafters(), *caches(), *readers(), FilledCache()]
    return parts
