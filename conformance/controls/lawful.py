"""Lawful variations: the output law is the target's, so the judge must pass them, whatever their acceptance."""

from __future__ import annotations

from conformance.controls import Control
from conformance.engines.own import ReferenceEngine
from conformance.protocols import Mode


class TokenMatching(ReferenceEngine):
    """Draws from the target and compares, though drafts come from a model whose law is known."""

    def modes(self, k: int) -> tuple[Mode, ...]:
        """See `Engine.modes`."""
        off, _, matching, _ = super().modes(k)
        return (off, matching)


class OneHotOfASampledDraft(ReferenceEngine):
    """Drafts are drawn from the draft model, and verified as if each had been certain."""

    def modes(self, k: int) -> tuple[Mode, ...]:
        """See `Engine.modes`."""
        off, *_ = super().modes(k)
        drafted = {"drafter": "model", "k": k}
        return (off, Mode("draft model, one-hot", drafted, "one_hot", "draft model", exposes_rounds=True))


LAWFUL = (
    Control("token matching", TokenMatching, "", 20_000),
    Control("one-hot verification of a sampled draft", OneHotOfASampledDraft, "", 20_000),
)
