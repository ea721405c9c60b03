"""The ways of running `generate` that are audited: every kind of speculation, and caches in pairs with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from conformance.protocols import Mode

ORDER = (
    "logit_bias",
    "repetition_penalty",
    "bad_words",
    "min_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "presence_penalty",  # transformers has neither of these two, so that their place says nothing
    "frequency_penalty",
)
"""transformers' own order of processors (`GenerationMixin._get_logits_processor`)."""

PROMISES = dict.fromkeys(
    ("LOGPROB-1", "LOGPROB-2"),
    "https://huggingface.co/docs/transformers/main_classes/text_generation"
    "#transformers.GenerationMixin.compute_transition_scores",
)
"""What the documentation promises. It shows seeds in examples, but promises nothing of them."""

ENSEMBLE = 0.5
"""The weight of the target in the mode that is lossy on purpose."""
GUIDANCE = 1.5
"""The scale of classifier-free guidance: a processor that reads a second, unprompted sequence with the target."""
ROUNDED = "keys and values are kept in 8-bit floats"
CONFIDENCE = 0.4
"""The confidence below which an assistant stops drafting (the library's own default)."""


CACHED = {"prefix": "cached prefix"}
"""What modes are called after a cache, where it is not the name of its kind."""
FILLED = "assisted generation on a filled cache"
"""The component whose rounds show the cache of a speculating mode with a cached prefix."""
CACHES = ("static", "prefix", "quantized")
"""Every cache beside the default one, the dynamic one. "prefix" is a dynamic one that the turn before left behind, or that
has read the first half of the prompt."""


def all_modes(k: int, layers: int) -> Sequence[Mode]:
    """Every mode, speculation off first: those that are audited in full, then what completes their pairs with caches.

    layers: of the target; early exit leaves after half of them.
    """
    main = _main_modes(k, layers)
    return (*main, *_brief_modes(main))


def _brief_modes(main: Sequence[Mode]) -> Iterator[Mode]:
    """Every speculation with every cache that none of the main modes has it with."""
    had = [(mode.speculation, mode.options.get("cache")) for mode in main]
    for mode in main:
        if mode.speculates and not mode.options:
            for cache in CACHES:
                if (mode.speculation, cache) not in had:
                    name = f"{mode.name}, {CACHED.get(cache, f'{cache} cache')}"
                    part = FILLED if cache == "prefix" else ""
                    rounded: dict[str, Any] = {"lossy": ROUNDED, "ensemble": 1.0} if cache == "quantized" else {}
                    yield replace(mode, name=name, options={"cache": cache}, brief=True, cache=part, **rounded)


def _main_modes(k: int, layers: int) -> Sequence[Mode]:
    model = {"assistant_model": True, "num_assistant_tokens": k}
    constant = {**model, "num_assistant_tokens_schedule": "constant"}
    lookup = {"prompt_lookup_num_tokens": k}
    early = {"assistant_early_exit": max(1, layers // 2), "num_assistant_tokens": k}
    static, quantized = ({"cache": kind} for kind in ("static", "quantized"))
    kept: dict[str, Any] = {"options": {"cache": "prefix"}, "prefix_block": 1}
    guided: dict[str, Any] = {"options": {"guidance_scale": GUIDANCE}, "guidance": GUIDANCE}
    return (
        Mode("off", rule="target", order=ORDER, promises=PROMISES, logprobs="processed"),
        _drafts("assistant model", constant),
        _drafts("assistant model, heuristic", {**model, "num_assistant_tokens_schedule": "heuristic"}),
        _drafts("assistant model, confidence", {**constant, "assistant_confidence_threshold": CONFIDENCE}),
        _lookup("prompt lookup", lookup),
        _drafts("early exit", early),
        _drafts("other tokenizer", {"assistant_tokenizer": True, "num_assistant_tokens": k}),
        _drafts("multi-token prediction", {"use_mtp": True}),
        _drafts("single position", {"single_position": True, "num_assistant_tokens": k}),
        _drafts("dflash", {"speculation_type": "dflash"}),
        _drafts(
            "ensemble",
            {**constant, "assistant_ensemble_weight": ENSEMBLE},
            rule="undeclared",
            ensemble=ENSEMBLE,
            lossy=f"drafted places follow {ENSEMBLE} p + {1 - ENSEMBLE} q (assistant_ensemble_weight), the others p",
        ),
        Mode("off, static cache", options=static, rule="target", order=ORDER, promises=PROMISES, logprobs="processed"),
        _drafts("assistant model, static cache", constant, options=static),
        _lookup("prompt lookup, static cache", lookup, options=static),
        _drafts("early exit, static cache", early, options=static),
        Mode("off, cached prefix", rule="target", order=ORDER, promises=PROMISES, logprobs="processed", **kept),
        _drafts("assistant model, cached prefix", constant, cache=FILLED, **kept),
        _lookup("prompt lookup, cached prefix", lookup, cache=FILLED, **kept),
        Mode("off, quantized cache", options=quantized, rule="target", order=ORDER, lossy=ROUNDED),
        _drafts("assistant model, quantized cache", constant, options=quantized, lossy=ROUNDED),
        Mode("off, guidance", rule="target", order=ORDER, promises=PROMISES, logprobs="processed", **guided),
        _drafts("assistant model, guidance", constant, **guided),
        _lookup("prompt lookup, guidance", lookup, **guided),
    )


DRAFTERS = {
    "assistant_tokenizer": "UniversalSpeculativeDecodingGenerator",
    "assistant_model": "AssistedCandidateGenerator",
    "prompt_lookup_num_tokens": "PromptLookupCandidateGenerator",
    "assistant_early_exit": "EarlyExitCandidateGenerator",
    "use_mtp": "MTPCandidateGenerator",
    "single_position": "SinglePositionMultiTokenCandidateGenerator",
    "speculation_type": "DFlashTokenCandidateGenerator",
}
"""The class of candidate generator that each kind of speculation samples with."""


def _drafts(name: str, speculation: dict[str, Any], rule: str = "ratio", draft_law: str = "", **more: Any) -> Mode:
    """A mode that drafts. The law of its drafts is its own affair and left open: an assistant, for one, is handed the processed
    temperature and applies the requested one again, so that it drafts at the square of it (which is lawful)."""
    known: dict[str, Any] = (
        {} if "lossy" in more else {"promises": PROMISES, "logprobs": "processed"}
    )  # of a law that the judge can compute
    drafter = next(generator for setting, generator in DRAFTERS.items() if setting in speculation)
    return Mode(name, speculation, rule, draft_law, exposes_rounds=True, order=ORDER, drafter=drafter, **known, **more)


def _lookup(name: str, speculation: dict[str, Any], **more: Any) -> Mode:
    return _drafts(name, speculation, "token_matching", "n-gram", **more)
