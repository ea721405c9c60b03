"""core-deepinfer: greedy speculation with cached states that are rolled back, and its recomputing oracle.

Its models are random ones of its own, which no other library can read. What is audited is everything around them: the model
under audit takes their place. It computes each row anew from the tokens of the state that the engine hands it, so that a state
that was not rolled back would show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from core_deepinfer import Engine as DeepEngine
from core_deepinfer import EngineConfig, TinyModel
from core_deepinfer.model import EncoderState, Forward, State
from core_deepinfer.speculative import generate, generate_speculative

from conformance.engines.adapting import Counts, refuse_others
from conformance.engines.small.rounds import both_models
from conformance.protocols import Engine, Mode, Models, Output, Request, Unsupported


class InItsPlace(TinyModel):  # type: ignore[misc]
    """A model of transformers in the form of the engine's own: width, depth and window 1, and states that hold the tokens."""

    def __init__(self, model: Any, name: str) -> None:
        self._model, self._name = model, name
        self.vocab_size, self.width, self.depth, self.window = model.config.vocab_size, 1, 1, 1

    @property
    def identity(self) -> str:
        """What the engine tells two models apart by."""
        return self._name

    def prefill(self, tokens: Sequence[int], **options: Any) -> Forward:
        """Logits `[n, V]` after every token."""
        return self._forward(self.tokens(tokens), rows=len(tokens))

    def replay(self, encoder: EncoderState, **options: Any) -> Forward:
        """What `prefill` gives, from a state that the engine has kept."""
        return self.prefill(encoder.tokens)

    def step(self, state: State, token: int) -> Forward:
        """Logits `[1, V]` after one token more than the state's."""
        return self._forward((*state.tokens, *self.tokens([token])), rows=1)

    def _forward(self, tokens: tuple[int, ...], rows: int) -> Forward:
        with torch.no_grad():
            logits = self._model(torch.tensor([tokens])).logits[0, -rows:].double().numpy()
        column = np.array(tokens, dtype=float)[:, None]
        state = State(self.identity, tokens, *([column] * 5), (column[-1:],), (column[-1:],))
        return Forward(logits, state, np.arange(len(tokens))[-rows:], {"encoder_rows": rows, "consumer_rows": rows})


class Deepinfer(Engine):
    """An engine for each call, which runs four requests at once."""

    name = "core-deepinfer"
    version = version("core-deepinfer")

    def __init__(self, models: Models) -> None:
        torch.set_num_threads(1)
        target, draft = both_models(models)
        self._target, self._draft = InItsPlace(target, "target"), InItsPlace(draft, "draft")
        self._counts = Counts()

    def modes(self, k: int) -> Sequence[Mode]:
        """See `Engine.modes`."""
        drafted: dict[str, Any] = {"draft_width": k}
        oracle: dict[str, Any] = {"recomputed": True}
        return (
            Mode("off", rule="target"),
            Mode("draft model", drafted, "greedy", "draft model"),
            Mode("off, recomputed", rule="target", options=oracle),
            Mode("draft model, recomputed", drafted, "greedy", "draft model", options=oracle),
        )

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Engine.generate`."""
        for request in requests:
            refuse_others(request.settings, ("max_tokens", "temperature", "eos", "seed"), "this engine has no such setting")
            if request.settings.temperature:
                raise Unsupported(f"temperature: core-deepinfer decodes greedily, got {request.settings.temperature:g}")
            if len(request.settings.eos) > 1:
                raise Unsupported(f"eos: core-deepinfer knows one end, got {len(request.settings.eos)}")
        written = self._recomputed if mode.options else self._cached
        for tokens, accepted, drafted in written(mode, requests):
            self._counts.add(mode, {"draft_tokens": drafted, "accepted": accepted, "emitted": len(tokens)})
            yield Output(tuple(int(token) for token in tokens))

    def metrics(self, mode: Mode) -> Mapping[str, float] | None:
        """See `Engine.metrics`."""
        return self._counts.of(mode)

    def close(self) -> None:
        """See `Engine.close`."""

    def _cached(self, mode: Mode, requests: Sequence[Request]) -> Iterator[tuple[Sequence[int], int, int]]:
        draft = self._draft if mode.speculates else None
        engine = DeepEngine(self._target, draft, config=EngineConfig(draft_width=mode.speculation.get("draft_width", 1)))
        for request in requests:
            engine.submit(request.prompt, **_ends(request))
        for result in engine.run():
            yield result.tokens, result.accepted_drafts, result.proposed_drafts

    def _recomputed(self, mode: Mode, requests: Sequence[Request]) -> Iterator[tuple[Sequence[int], int, int]]:
        for request in requests:
            if mode.speculates:
                made = generate_speculative(self._target, self._draft, request.prompt, **mode.speculation, **_ends(request))
            else:
                made = generate(self._target, request.prompt, **_ends(request))
            yield made.tokens, made.accepted_drafts, made.draft_tokens


def _ends(request: Request) -> dict[str, Any]:
    settings = request.settings
    return {"max_tokens": settings.max_tokens, "eos_id": settings.eos[0] if settings.eos else None}
