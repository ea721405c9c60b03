"""transformers' `generate` as an engine under audit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import transformers

from conformance.components import Component
from conformance.engines.adapting import with_what_it_lacks
from conformance.engines.transformers.modes import all_modes
from conformance.engines.transformers.other_tokenizer import with_other_tokenizer
from conformance.engines.transformers.settings import generation_config
from conformance.engines.transformers.trace import Rounds
from conformance.engines.transformers.turns import Turns
from conformance.protocols import Engine, Mode, Models, NotHere, Output, Request, Unsupported
from specref.models import TransformersModel

BATCH = 32
"""Requests per call with speculation off; assisted generation takes one at a time."""
DRAFTED_BY_A_MODEL = {"assistant_model", "assistant_early_exit", "assistant_tokenizer"}
"""Settings under which a model's own `generate` makes the drafts."""
NOT_ASKED = (
    "stop strings with an assistant. They are refused in the midst of drafting although a tokenizer is given, and early exit "
    "then leaves the target with fewer layers for all that follows (stop_strings.py, early_exit_leaves_the_model_changed.py)",
    "greedy requests of an assistant with another tokenizer that sampled before. Sampling prunes its head for good, so each "
    "kind of request has a copy of the assistant (universal_prunes_the_assistant.py)",
)
"""See `Engine.not_asked`; the scripts lie in reports/transformers-5.24.0/reproductions."""
NO_LAYERS = "use_mtp: the target has no layers for multi-token prediction; give a model with them as --target"
DRAFT_LENGTHS = ("num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold")
"""Settings that an assistant reads from its own generation configuration."""


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
        self._folder, self._turns = models.target, Turns(self._target)
        self._tokenizer: Any = None
        self._tokenizer_read = False
        self._others: dict[bool, tuple[Any, Any]] = {}
        self._prepared: tuple[str, bool] | None = None

    def modes(self, k: int) -> Sequence[Mode]:
        """See `Engine.modes`."""
        modes = all_modes(k, int(self._target.config.get_text_config().num_hidden_layers))
        return [with_what_it_lacks(mode, self._check_models) for mode in modes]

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Engine.generate`."""
        size = 1 if mode.speculates or mode.options.get("cache") == "prefix" else BATCH
        for first in range(0, len(requests), size):
            yield from self._batch(mode, requests[first : first + size])

    def not_asked(self) -> Sequence[str]:
        """See `Engine.not_asked`."""
        return NOT_ASKED

    def components(self) -> Sequence[Component]:
        """See `Engine.components`."""
        from conformance.engines.transformers.components import all_components

        return all_components()

    def _batch(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """Requests that share settings, padded on the left; the first one's seed starts the engine's generator."""
        settings = requests[0].settings
        if any(request.settings != settings for request in requests):
            raise Unsupported("transformers takes one set of sampling settings per batch")
        if settings.stop_sequences and DRAFTED_BY_A_MODEL & set(mode.speculation):
            # Asked for nevertheless, it is refused in the midst of drafting, and early exit leaves the target changed.
            raise Unsupported(
                "stop_sequences with an assistant: transformers hands it the stop strings without their tokenizer"
            )
        width = max(len(request.prompt) for request in requests)
        pad = self._target.config.get_text_config().pad_token_id or 0
        ids = torch.tensor([[pad] * (width - len(request.prompt)) + list(request.prompt) for request in requests])
        mask = torch.tensor([[0] * (width - len(request.prompt)) + [1] * len(request.prompt) for request in requests])
        tokenizer = self.tokenizer if settings.stop_sequences else None
        config = generation_config(mode, settings, tokenizer, pad)
        named = self._assistance(mode, sampled=settings.temperature > 0)
        if tokenizer is not None:
            named["tokenizer"] = tokenizer
        if mode.options.get("cache") == "prefix":
            named["cache"] = self._turns.cache_for(mode, requests[0].prompt)
        rounds = Rounds(mode.rule) if mode.speculates else None
        torch.manual_seed(requests[0].seed)
        try:
            with torch.inference_mode(), rounds.of(self._target) if rounds else nullcontext():
                out = self._target.generate(ids, attention_mask=mask, generation_config=config, **named)
        except (ValueError, RuntimeError) as error:
            if "use_mtp" in mode.speculation and "weights are missing" in str(error):
                raise NotHere(NO_LAYERS) from error
            refused = _refused(error, mode)
            if not refused:
                raise
            raise Unsupported(f"{refused}: {error}") from error
        scores = self._target.compute_transition_scores(out.sequences, out.scores, normalize_logits=True).tolist()
        if mode.options.get("cache") == "prefix":
            self._turns.keep(mode, tuple(out.sequences[0].tolist()), out.cache)
        for row, logprobs in zip(out.sequences[:, width:].tolist(), scores):
            # A batch pads the rows that ended early. Assisted generation has one row, which is taken as it comes.
            tokens = tuple(row) if mode.speculates else settings.stops().cut((), tuple(row))
            kept = tuple(logprobs) if mode.speculates else tuple(logprobs[: len(tokens)])
            yield Output(tokens, tuple(rounds.found) if rounds else None, kept)

    @property
    def tokenizer(self) -> Any:
        """The target's tokenizer, or None if its folder has none."""
        if not self._tokenizer_read:
            self._tokenizer_read = True
            try:
                self._tokenizer = transformers.AutoTokenizer.from_pretrained(str(self._folder))
            except (OSError, ValueError):
                self._tokenizer = None
        return self._tokenizer

    def _assistance(self, mode: Mode, sampled: bool) -> dict[str, Any]:
        """The arguments of `generate` that bring the drafts. Raises NotHere for what these models do not have."""
        asked = mode.speculation
        self._check_models(mode)
        if "assistant_early_exit" in asked:
            self._prepare(self._target, mode, sampled)
            return {}
        if "assistant_tokenizer" in asked:
            model, tokenizer = self._other(sampled)
            self._prepare(model, mode, sampled)
            return {"assistant_model": model, "tokenizer": self.tokenizer, "assistant_tokenizer": tokenizer}
        if {"assistant_model", "single_position", "speculation_type"} & set(asked):
            self._prepare(self._draft, mode, sampled)
            return {"assistant_model": self._draft}
        return {}

    def _prepare(self, assistant: Any, mode: Mode, sampled: bool) -> None:
        """Set the drafter's lengths once for a mode: a schedule may change them from request to request."""
        if self._prepared != (mode.name, sampled):
            lengths = {"num_assistant_tokens_schedule": "constant", "assistant_confidence_threshold": 0.0, **mode.speculation}
            for name in DRAFT_LENGTHS:
                if name in lengths:
                    setattr(assistant.generation_config, name, lengths[name])
            self._prepared = (mode.name, sampled)

    def _other(self, sampled: bool) -> tuple[Any, Any]:
        """The draft model behind another tokenizer. Sampling prunes its head for good, so greedy requests have their own."""
        if self.tokenizer is None:
            raise NotHere("assistant_tokenizer: the target's folder has no tokenizer; give a model with one as --target")
        if sampled not in self._others:
            self._others[sampled] = with_other_tokenizer(self._draft, self.tokenizer)
        return self._others[sampled]

    def _check_models(self, mode: Mode) -> None:
        """Raise NotHere for a mode whose drafts come from layers or models that are not here."""
        asked, draft = mode.speculation, type(self._draft).__name__
        alone = f"and the draft is none; such drafts are judged alone (component: {mode.drafter})"
        if "use_mtp" in asked and getattr(self._target.config.get_text_config(), "num_mtp_layers", None) is None:
            raise NotHere(NO_LAYERS)
        if "single_position" in asked and not draft.startswith(("Gemma4Assistant", "Gemma4UnifiedAssistant")):
            raise NotHere(f"single_position: it takes a Gemma 4 assistant, {alone}")
        if "speculation_type" in asked and not hasattr(self._draft.config, "block_size"):
            raise NotHere(f"speculation_type='dflash': it takes a block drafter, {alone}")

    def close(self) -> None:
        """See `Engine.close`."""


def _refused(error: Exception, mode: Mode) -> str:
    """Which setting it is that `generate` refuses with these words, or "" if this is no refusal but a crash."""
    words, cache = str(error), mode.options.get("cache")
    if cache and "cache that can be cropped" in words:
        return f"cache={cache!r} with speculation"
    if cache == "quantized" and "only supported for models with only full attention" in words:
        return f"cache={cache!r} with this architecture"
    return ""


def make(models: Models) -> TransformersEngine:
    """transformers over two local models."""
    return TransformersEngine(models)
