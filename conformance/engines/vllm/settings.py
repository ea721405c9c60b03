"""A request's settings as arguments of `vllm.SamplingParams`: what vLLM knows is passed on, the rest is refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from conformance.protocols import Mode, Request, Unsupported


class Tokenizer(Protocol):
    """What is asked of a tokenizer."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Text as token ids."""

    def decode(self, token_ids: list[int]) -> str:
        """Token ids as text."""


def sampling_arguments(mode: Mode, request: Request, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Arguments of `SamplingParams`. Raises Unsupported, naming the setting, for one that vLLM has no counterpart for.

    EOS goes in as `stop_token_ids`, with the model's own switched off, so that the request alone says where it ends.

    >>> from specref.processors import SamplingSettings
    >>> arguments = sampling_arguments(Mode("off"), Request((1,), SamplingSettings(max_tokens=4, eos=(2,)), 7), None)
    >>> arguments["stop_token_ids"], arguments["ignore_eos"], "seed" in arguments
    ([2], True, False)
    """
    settings = request.settings
    arguments: dict[str, Any] = {
        "max_tokens": settings.max_tokens,
        "min_tokens": settings.min_tokens,
        "temperature": float(settings.temperature),
        "top_k": settings.top_k or 0,  # 0 keeps all
        "top_p": float(settings.top_p),
        "min_p": float(settings.min_p),
        "repetition_penalty": float(settings.repetition_penalty),
        "presence_penalty": float(settings.presence_penalty),
        "frequency_penalty": float(settings.frequency_penalty),
        "stop_token_ids": list(settings.eos),
        "ignore_eos": True,
        "detokenize": bool(settings.stop_sequences),
    }
    if settings.logit_bias:
        arguments["logit_bias"] = {int(token): float(bias) for token, bias in settings.logit_bias.items()}
    if settings.bad_words:
        arguments["bad_words"] = [_text(tokenizer, "bad_words", words) for words in settings.bad_words]
    if settings.stop_sequences:
        arguments["stop"] = [_text(tokenizer, "stop_sequences", words) for words in settings.stop_sequences]
    seed = request.seed if mode.options.get("seed") == "of the request" else settings.seed
    if seed is not None:
        arguments["seed"] = seed
    if mode.logprobs:
        arguments["logprobs"] = -1  # of the whole vocabulary
    return arguments


def _text(tokenizer: Tokenizer | None, setting: str, sequence: Sequence[int]) -> str:
    """The text of a sequence of ids, for settings that vLLM takes as text only."""
    if tokenizer is None:
        raise Unsupported(f"{setting}: vLLM takes them as text, and the target's folder has no tokenizer to spell them")
    text = tokenizer.decode(list(sequence))
    if setting == "bad_words":
        text = text.lstrip()  # as vLLM does before it tokenizes
    if not text or list(tokenizer.encode(text, add_special_tokens=False)) != list(sequence):
        raise Unsupported(f"{setting}: {list(sequence)} is no text that vLLM would read back as these tokens ({text!r})")
    return text
