"""Small engines from PyPI whose rounds are functions of two torch models: one module each, over a common loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.protocols import Models

if TYPE_CHECKING:
    from conformance.engines.small.rounds import RoundsEngine


def make_sequential(models: Models) -> RoundsEngine:
    """sequential-speculative-decoding."""
    from conformance.engines.small.sequential import Sequential

    return Sequential(models)


def make_specdec(models: Models) -> RoundsEngine:
    """specdec."""
    from conformance.engines.small.specdec_rounds import Specdec

    return Specdec(models)
