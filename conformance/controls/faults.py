"""Planted faults of the sampler: each must be rejected within its stated n."""

from __future__ import annotations

from dataclasses import replace

from conformance.controls import Control
from conformance.engines.own import ReferenceEngine
from conformance.protocols import Mode, Request
from specref.models import LanguageModel
from specref.rules import Rule, rewired


class OneMode(ReferenceEngine):
    """The reference with the control and one speculating mode: the draft model under the ratio rule."""

    def modes(self, k: int) -> tuple[Mode, ...]:
        """See `Engine.modes`."""
        return tuple(super().modes(k)[:2])


class ResamplesFromP(OneMode):
    """After a rejection it draws from the target instead of the residual."""

    def rule(self, mode: Mode, request: Request) -> Rule:
        """See `ReferenceEngine.rule`."""
        rule = super().rule(mode, request)
        return rewired(rule, residual=lambda p, q: p) if rule.__name__ == "ratio" else rule


class TemperatureOnOneSide(OneMode):
    """The request's temperature reaches the draft but not the verification, which uses the target's law at temperature 1."""

    def processed(self, model: LanguageModel, mode: Mode, request: Request) -> LanguageModel:
        """See `ReferenceEngine.processed`."""
        if model is self.target and mode.speculates and request.settings.temperature > 0:
            request = replace(request, settings=replace(request.settings, temperature=1.0))
        return super().processed(model, mode, request)


FAULTS = (
    Control("resample from p after a rejection", ResamplesFromP, "LAW-1", 2_000),
    Control("temperature on one side", TemperatureOnOneSide, "LAW-1", 1_000, temperature=0.5),
)
