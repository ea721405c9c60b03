"""Hugging Face transformers: assisted generation with a draft model, and prompt lookup.

Declared rules, from its own documentation and source: with a sampled draft model the ratio rule of speculative
sampling (`_speculative_sampling`); for prompt lookup, which hands over no draft law, token matching; greedy at temperature 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import transformers

from conformance.protocols import Engine, Mode, Models, Output, Request, Unsupported
from specref.models import TransformersModel
from specref.processors import SamplingSettings

BATCH = 32
"""Requests per call with speculation off; assisted generation takes one at a time."""


class TransformersEngine(Engine):
    """One target and one draft model, through `generate`."""

    name = "transformers"
    version = transformers.__version__

    def __init__(self, models: Models) -> None:
        torch.set_num_threads(1)
        transformers.logging.set_verbosity_error()
        self._target = TransformersModel.load(models.target).model
        self._draft = TransformersModel.load(models.draft).model
        for model in (self._target, self._draft):
            # `generate` fills what a request leaves open from the model's own defaults: a repetition penalty, say.
            model.generation_config = transformers.GenerationConfig()

    def modes(self, k: int) -> Sequence[Mode]:
        """See `Engine.modes`."""
        return (
            Mode("off", rule="target"),
            Mode("assistant model", {"assistant_model": True, "num_assistant_tokens": k}, "ratio", "draft model"),
            Mode("prompt lookup", {"prompt_lookup_num_tokens": k}, "token_matching", "n-gram"),
        )

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Engine.generate`."""
        size = 1 if mode.speculates else BATCH
        for first in range(0, len(requests), size):
            yield from self._batch(mode, requests[first : first + size])

    def _batch(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """Requests that share settings, padded on the left; the first one's seed starts the engine's generator."""
        settings = requests[0].settings
        if any(request.settings != settings for request in requests):
            raise Unsupported("transformers takes one set of sampling settings per batch")
        torch.manual_seed(requests[0].seed)
        width = max(len(request.prompt) for request in requests)
        ids = torch.tensor([[0] * (width - len(request.prompt)) + list(request.prompt) for request in requests])
        mask = torch.tensor([[0] * (width - len(request.prompt)) + [1] * len(request.prompt) for request in requests])
        config = self._config(mode, settings)
        assistant = {}
        if "assistant_model" in mode.speculation:
            # The assistant reads its number of drafts from its own configuration.
            self._draft.generation_config.num_assistant_tokens = mode.speculation["num_assistant_tokens"]
            self._draft.generation_config.num_assistant_tokens_schedule = "constant"
            self._draft.generation_config.assistant_confidence_threshold = 0.0
            assistant = {"assistant_model": self._draft}
        with torch.inference_mode():
            out = self._target.generate(ids, attention_mask=mask, generation_config=config, **assistant)
        for row in out[:, width:].tolist():
            # A batch pads the rows that ended early. Assisted generation has one row, which is taken as it comes.
            yield Output(tuple(row) if mode.speculates else _until_eos(tuple(row), settings.eos))

    def _config(self, mode: Mode, settings: SamplingSettings) -> Any:
        _refuse_unaudited(settings)
        sampling: dict[str, Any] = {"do_sample": False}
        if settings.temperature > 0:
            # top_k is 50 unless it is switched off.
            sampling = {"do_sample": True, "temperature": float(settings.temperature), "top_k": 0, "top_p": 1.0}
        if "prompt_lookup_num_tokens" in mode.speculation:
            sampling["prompt_lookup_num_tokens"] = mode.speculation["prompt_lookup_num_tokens"]
        return transformers.GenerationConfig(
            max_new_tokens=settings.max_tokens, eos_token_id=list(settings.eos) or None, pad_token_id=0, **sampling
        )

    def close(self) -> None:
        """See `Engine.close`."""


def _refuse_unaudited(settings: SamplingSettings) -> None:
    """This adapter passes temperature, EOS and the length limit on; anything else is refused rather than dropped."""
    plain = SamplingSettings(max_tokens=settings.max_tokens)
    for field in dataclasses.fields(settings):
        if field.name not in ("max_tokens", "temperature", "eos", "seed"):
            value = getattr(settings, field.name)
            if value != getattr(plain, field.name):
                raise Unsupported(f"the transformers adapter does not pass on {field.name} (asked for {value!r})")


def _until_eos(tokens: tuple[int, ...], eos: Sequence[int]) -> tuple[int, ...]:
    """The tokens up to the first EOS: what follows is padding."""
    for place, token in enumerate(tokens):
        if token in eos:
            return tokens[: place + 1]
    return tokens


def make(models: Models) -> TransformersEngine:
    """transformers over two local models."""
    return TransformersEngine(models)
