"""mlx-lm as an engine under audit, by `stream_generate`: one request at a time, drafts compared with what is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import mlx.core as mx
from mlx_lm import stream_generate
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.sample_utils import make_logits_processors, make_sampler
from mlx_lm.tokenizer_utils import TokenizerWrapper
from mlx_lm.utils import load_model
from transformers import AutoTokenizer

from conformance.engines.adapting import Counts, refuse_others
from conformance.protocols import Engine, Mode, Models, Output, Request, Unsupported
from specref.processors import ORDER as USUAL

DOCS = "https://github.com/ml-explore/mlx-lm/blob/v0.32.2/mlx_lm/generate.py"
PROMISES = {"LOGPROB-1": DOCS, "LOGPROB-2": DOCS}
COUNTED = PROMISES | {"ACCEPT-3": DOCS}
"""A `GenerationResponse` says how many tokens there are so far, and of each whether the draft model wrote it."""
ORDER = (
    *(name for name in USUAL if name not in ("temperature", "top_k", "top_p", "min_p")),
    "top_p",
    "min_p",
    "top_k",
    "temperature",
)
SAMPLED = ("max_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "logit_bias", "eos", "seed")
"""Settings that mean the same here. Its other penalties count the prompt's tokens too."""
ALL = 1_000_000
"""Tokens that a penalty looks back to: all of them, in place of the last 20."""
PREFIX: dict[str, Any] = {"cached_prefix": True}


class MlxLm(Engine):
    """Two models, and a tokenizer that decides where outputs end."""

    name = "mlx-lm"
    version = version("mlx-lm")

    def __init__(self, models: Models) -> None:
        self._target, self._draft = (load_model(folder)[0] for folder in (models.target, models.draft))
        self._tokenizer = AutoTokenizer.from_pretrained(str(models.target))
        self._tokenizer.eos_token = None  # the requests say which ends there are
        self._counts = Counts()

    def modes(self, k: int) -> Sequence[Mode]:
        """See `Engine.modes`."""
        fields: dict[str, Any] = {"order": ORDER, "promises": PROMISES, "logprobs": "raw"}
        drafting: dict[str, Any] = {"draft_law": "draft model", **fields, "promises": COUNTED}
        drafted: dict[str, Any] = {"num_draft_tokens": k}
        return (
            Mode("off", rule="target", **fields),
            Mode("draft model", drafted, "token_matching", **drafting),
            Mode("off, cached prefix", rule="target", options=PREFIX, **fields),
            Mode("draft model, cached prefix", drafted, "token_matching", options=PREFIX, **drafting),
        )

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Engine.generate`."""
        for request in requests:
            refuse_others(request.settings, SAMPLED, "mlx-lm has no such setting, or another one of that name")
            if mode.options == PREFIX and request.settings.repetition_penalty != 1:
                raise Unsupported("repetition_penalty: of a cached prefix mlx-lm is not told the tokens")
            mx.random.seed(request.seed)
            written = list(stream_generate(**self._asked(mode, request)))
            counts = {"accepted": sum(bool(one.from_draft) for one in written), "emitted": written[-1].generation_tokens}
            self._counts.add(mode, counts)
            logprobs = tuple(float(one.logprobs[one.token]) for one in written)
            yield Output(tuple(int(one.token) for one in written), logprobs=logprobs)

    def metrics(self, mode: Mode) -> Mapping[str, float] | None:
        """See `Engine.metrics`."""
        return self._counts.of(mode)

    def close(self) -> None:
        """See `Engine.close`."""

    def _asked(self, mode: Mode, request: Request) -> dict[str, Any]:
        settings = request.settings
        asked: dict[str, Any] = {"model": self._target, "prompt": list(request.prompt), "max_tokens": settings.max_tokens}
        asked["tokenizer"] = TokenizerWrapper(self._tokenizer, eos_token_ids=settings.eos)
        kept = {"top_p": float(settings.top_p), "min_p": float(settings.min_p), "top_k": settings.top_k or 0}
        asked["sampler"] = make_sampler(temp=float(settings.temperature), **kept)
        penalty = None if settings.repetition_penalty == 1 else settings.repetition_penalty
        asked["logits_processors"] = make_logits_processors(dict(settings.logit_bias), penalty, ALL)
        if mode.speculates:
            asked |= {"draft_model": self._draft, **mode.speculation}
        if mode.options == PREFIX:
            asked |= self._half_read(mode, request)
        return asked

    def _half_read(self, mode: Mode, request: Request) -> dict[str, Any]:
        """Caches of the prompt's first half, and the rest of it, as `prompt_cache` has them of earlier turns."""
        half, caches = len(request.prompt) // 2, []
        for model in (self._target, self._draft) if mode.speculates else (self._target,):
            cache = make_prompt_cache(model)
            model(mx.array([request.prompt[:half]]), cache=cache)
            caches += cache
        return {"prompt_cache": caches, "prompt": list(request.prompt[half:])}
