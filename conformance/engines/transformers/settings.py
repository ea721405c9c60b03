"""A request's settings as a `GenerationConfig`: what transformers knows is passed on, the rest is refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import transformers

from conformance.engines.adapting import spelled
from conformance.protocols import Mode, Unsupported
from specref.processors import SamplingSettings

UNKNOWN = ("presence_penalty", "frequency_penalty")
"""Settings that transformers has no processor for."""

PASSED_ON = ("prompt_lookup_num_tokens", "assistant_early_exit", "assistant_ensemble_weight", "use_mtp", "speculation_type")
"""Settings of speculation that are read from the request's own configuration; others are read from the assistant's."""


def generation_config(mode: Mode, settings: SamplingSettings, tokenizer: Any, pad: int) -> Any:
    """What `generate` is told. Raises Unsupported, naming the setting, for one that it has no counterpart for.

    Stop sequences go in as `stop_strings`, the library's own way of stopping; it needs a tokenizer, and one that spells each
    sequence as a text that is read back as the same tokens. A text is matched however it is spelled, so a vocabulary that can
    spell it otherwise may end earlier than the sequence of ids would.
    """
    for name in UNKNOWN:
        if getattr(settings, name):
            raise Unsupported(f"transformers has no {name} (asked for {getattr(settings, name)!r})")
    asked: dict[str, Any] = {"do_sample": False}
    if settings.temperature > 0:
        asked = {
            "do_sample": True,
            "temperature": float(settings.temperature),
            "top_k": settings.top_k or 0,  # it is 50 unless it is switched off
            "top_p": float(settings.top_p),
            "min_p": float(settings.min_p) or None,
        }
    if settings.repetition_penalty != 1:
        asked["repetition_penalty"] = float(settings.repetition_penalty)
    if settings.logit_bias:
        asked["sequence_bias"] = [[[token], float(bias)] for token, bias in settings.logit_bias.items()]
    if settings.bad_words:
        asked["bad_words_ids"] = [list(words) for words in settings.bad_words]
    if settings.min_tokens:
        asked["min_new_tokens"] = settings.min_tokens
    if settings.stop_sequences:
        asked["stop_strings"] = [_text(tokenizer, sequence) for sequence in settings.stop_sequences]
    return transformers.GenerationConfig(
        max_new_tokens=settings.max_tokens,
        eos_token_id=list(settings.eos) or None,
        pad_token_id=pad,
        return_dict_in_generate=True,
        output_scores=True,
        **asked,
        **cache_settings(mode),
        **{name: mode.options[name] for name in ("guidance_scale",) if name in mode.options},
        **{name: mode.speculation[name] for name in PASSED_ON if name in mode.speculation},
    )


def cache_settings(mode: Mode) -> dict[str, Any]:
    """Which cache `generate` makes. The quantized one is the 8-bit float backend, the only one without packages of its own."""
    cache = mode.options.get("cache", "dynamic")
    if cache == "quantized":
        return {"cache_implementation": "quantized", "cache_config": {"backend": "fp8"}}
    if cache not in ("dynamic", "static", "prefix"):
        raise Unsupported(f"the transformers adapter knows no cache={cache!r}; there are dynamic, static, prefix and quantized")
    return {"cache_implementation": "static"} if cache == "static" else {}


def _text(tokenizer: Any, sequence: Sequence[int]) -> str:
    if tokenizer is None:
        raise Unsupported(
            "stop_sequences: transformers stops at strings, and the target's folder has no tokenizer to spell them"
        )
    return spelled(
        sequence, "transformers", tokenizer.decode, lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]
    )
