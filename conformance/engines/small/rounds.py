"""The loop around a small engine's rounds.

These engines' own loops take a text and give a text, some through a chat template, so that they cannot be asked in token ids.
What is audited is their rounds, through a loop of the adapter's: where an output ends is not their doing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from conformance.engines.adapting import Counts, refuse_others
from conformance.protocols import Engine, Mode, Models, Output, Request, Tokens

KNOWN = ("max_tokens", "temperature", "eos", "stop_sequences", "seed")
"""Settings that are obeyed: by the engine, or, of ends, by the loop."""


@dataclass(frozen=True)
class Step:
    """What one round gave: new tokens, and how many of how many drafts were accepted."""

    tokens: tuple[int, ...]
    accepted: int = 0
    drafted: int = 0


class RoundsEngine(Engine):
    """One request at a time, each with torch's generator set to its seed. A subclass says what a round is."""

    name: str
    version: str

    def __init__(self, models: Models) -> None:
        torch.set_num_threads(1)
        self.target, self.draft = both_models(models)
        self._counts = Counts()

    def step(self, mode: Mode, ids: torch.Tensor, temperature: float) -> Step:
        """One round after `ids` `[1, n]`; raises Unsupported for a temperature that the engine cannot have."""
        raise NotImplementedError

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Engine.generate`."""
        for request in requests:
            yield Output(self._tokens(mode, request))

    def metrics(self, mode: Mode) -> Mapping[str, float] | None:
        """See `Engine.metrics`."""
        return self._counts.of(mode)

    def close(self) -> None:
        """See `Engine.close`."""

    def _tokens(self, mode: Mode, request: Request) -> tuple[int, ...]:
        refuse_others(request.settings, KNOWN, "this engine has no such setting")
        torch.manual_seed(request.seed)
        stops = request.settings.stops()
        tokens: tuple[int, ...] = ()
        ids = torch.tensor([request.prompt])
        while stops.reason(tokens) is None:
            with torch.no_grad():
                step = self.step(mode, ids, float(request.settings.temperature))
            counts = {"drafts": bool(step.drafted), "draft_tokens": step.drafted, "accepted": step.accepted}
            counts |= {"rounds": 1} if mode.rule == "ratio" else {}  # other rules may emit more than is accepted and one token
            self._counts.add(mode, counts)
            tokens += stops.cut(tokens, step.tokens)
            ids = torch.tensor([request.prompt + tokens])
        return tokens


def both_models(models: Models) -> tuple[Any, Any]:
    """Target and draft, as transformers reads them."""
    target, draft = (
        AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32).eval()
        for folder in (models.target, models.draft)
    )
    return target, draft


def transformers_alone(model: Any, request: Request) -> Tokens:
    """What transformers' `generate` writes: the control of an engine that wraps it and offers nothing without speculation."""
    settings, ids = request.settings, torch.tensor([request.prompt])
    torch.manual_seed(request.seed)
    how: dict[str, Any] = {"do_sample": False}
    if settings.temperature:
        kept = {"top_k": settings.top_k or 0, "top_p": float(settings.top_p)}
        how = {"do_sample": True, "temperature": float(settings.temperature), **kept}
    ends = list(settings.eos) or None
    made = model.generate(ids, max_new_tokens=settings.max_tokens, eos_token_id=ends, pad_token_id=0, **how)
    return new_tokens(ids, made)


def new_tokens(before: torch.Tensor, after: Any) -> tuple[int, ...]:
    """The tokens of `after` `[1, m]` behind those of `before` `[1, n]`."""
    return tuple(int(token) for token in after[0, before.shape[1] :])
