"""A request's settings as GenAI's search options: what GenAI knows is passed on, the rest is refused by name."""

from __future__ import annotations

from typing import Any

from conformance.engines.adapting import refuse
from conformance.protocols import Request

UNKNOWN = ("min_p", "presence_penalty", "frequency_penalty", "logit_bias", "bad_words", "stop_sequences")
"""Settings that a generator has no option for."""


def search_options(request: Request) -> dict[str, Any]:
    """Arguments of `GeneratorParams.set_search_options`. Lengths include the prompt; top_k 0 keeps all, its default is 50.

    >>> from specref.processors import SamplingSettings
    >>> request = Request((1, 5), SamplingSettings(max_tokens=4, temperature=0.5, min_tokens=2, eos=(2,)), seed=7)
    >>> options = search_options(request)
    >>> options["max_length"], options["min_length"], options["top_k"], options["random_seed"], options["do_sample"]
    (6, 4, 0, 7, True)

    Raises Unsupported for a setting that GenAI does not know.
    """
    settings = request.settings
    refuse(settings, UNKNOWN, "GenAI has no such option")
    length = len(request.prompt)
    options: dict[str, Any] = {
        "max_length": length + settings.max_tokens,
        "do_sample": settings.temperature > 0,
        "top_k": settings.top_k or 0,
        "top_p": float(settings.top_p),
        "random_seed": request.seed,
        "repetition_penalty": float(settings.repetition_penalty),
    }
    if settings.temperature > 0:
        options["temperature"] = float(settings.temperature)
    if settings.min_tokens:
        options["min_length"] = length + settings.min_tokens
    return options
