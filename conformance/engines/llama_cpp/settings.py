"""A request's settings as the body of the server's `/completion`: what llama.cpp knows is passed on, the rest is refused by
name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance.protocols import Mode, Request, Unsupported

SAMPLERS = ("penalties", "top_k", "top_p", "min_p", "temperature")
"""Sent with every request, in llama.cpp's own order: by default it would truncate, too."""
BANNED = False
"""A bias that no logit outweighs, as the server spells it."""


def completion_body(mode: Mode, request: Request, spellings: Sequence[bytes]) -> dict[str, Any]:
    """The body. spellings: the text of every token, in which stop sequences are spelled.

    >>> from specref.processors import SamplingSettings
    >>> body = completion_body(Mode("off"), Request((1, 5), SamplingSettings(max_tokens=4, top_k=3), seed=7), [])
    >>> body["prompt"], body["n_predict"], body["top_k"], body["top_p"], body["seed"]
    ([1, 5], 4, 3, 1.0, 7)

    Raises Unsupported for a setting that llama.cpp does not know, or means otherwise.
    """
    settings = request.settings
    for name in ("presence_penalty", "frequency_penalty"):
        if getattr(settings, name):
            raise Unsupported(f"{name}: llama.cpp counts the prompt's tokens too")
    if settings.min_tokens:
        raise Unsupported("min_tokens: llama.cpp's server has no such setting")
    if any(len(sequence) > 1 for sequence in settings.bad_words):
        raise Unsupported("bad_words: llama.cpp bans single tokens only")
    bias = [[int(token), float(value)] for token, value in settings.logit_bias.items()]
    body: dict[str, Any] = {
        "prompt": list(request.prompt),
        "n_predict": settings.max_tokens,
        "seed": request.seed,
        "samplers": list(SAMPLERS),
        "temperature": float(settings.temperature),
        "top_k": settings.top_k or 0,
        "top_p": float(settings.top_p),
        "min_p": float(settings.min_p),
        "repeat_penalty": float(settings.repetition_penalty),
        "repeat_last_n": len(request.prompt) + settings.max_tokens,
        "logit_bias": bias + [[sequence[0], BANNED] for sequence in settings.bad_words],
        "cache_prompt": bool(mode.options.get("cache_prompt")),
        "return_tokens": True,
        "n_probs": 1 if mode.logprobs else 0,
    }
    if settings.stop_sequences:
        body["stop"] = [_text(sequence, spellings) for sequence in settings.stop_sequences]
    return body


def _text(sequence: Sequence[int], spellings: Sequence[bytes]) -> str:
    """A stop sequence's text. Raises Unsupported where that is no text, or one that other tokens spell too."""
    texts = [spellings[token] for token in sequence]
    try:
        text = b"".join(texts).decode()
    except UnicodeDecodeError:
        raise Unsupported(f"stop_sequences: llama.cpp takes them as text, which {list(sequence)} is not") from None
    if any(len(one) > 1 or spellings.count(one) > 1 for one in texts):
        raise Unsupported(f"stop_sequences: llama.cpp takes them as text, and other tokens may spell {text!r}")
    return text
