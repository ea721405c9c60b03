"""Small engines from PyPI: one module each; over a common loop where what can be asked is their rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.protocols import Models

if TYPE_CHECKING:
    from conformance.engines.small.deepinfer import Deepinfer
    from conformance.engines.small.flashspec_engine import Flashspec
    from conformance.engines.small.lucidrains import Lucidrains
    from conformance.engines.small.mini_infer_engine import MiniInfer
    from conformance.engines.small.rotalabs import Rotalabs
    from conformance.engines.small.rounds import RoundsEngine


def make_sequential(models: Models) -> RoundsEngine:
    """sequential-speculative-decoding."""
    from conformance.engines.small.sequential import Sequential

    return Sequential(models)


def make_specdec(models: Models) -> RoundsEngine:
    """specdec."""
    from conformance.engines.small.specdec_rounds import Specdec

    return Specdec(models)


def make_lucidrains(models: Models) -> Lucidrains:
    """lucidrains' speculative-decoding."""
    from conformance.engines.small.lucidrains import Lucidrains

    return Lucidrains(models)


def make_mini_infer(models: Models) -> MiniInfer:
    """mini-infer."""
    from conformance.engines.small.mini_infer_engine import MiniInfer

    return MiniInfer(models)


def make_flashspec(models: Models) -> Flashspec:
    """flashspec."""
    from conformance.engines.small.flashspec_engine import Flashspec

    return Flashspec(models)


def make_rotalabs(models: Models) -> Rotalabs:
    """rotalabs-accel."""
    from conformance.engines.small.rotalabs import Rotalabs

    return Rotalabs(models)


def make_deepinfer(models: Models) -> Deepinfer:
    """core-deepinfer."""
    from conformance.engines.small.deepinfer import Deepinfer

    return Deepinfer(models)
