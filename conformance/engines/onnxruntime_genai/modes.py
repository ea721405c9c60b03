"""The ways of running ONNX Runtime GenAI that are audited.

A mode's `speculation` is what `set_speculative_options` takes, and "model": "draft" where the draft model proposes;
or "drafts": a kind that cannot be had here. Its options are search options, and: "rewound": an output is begun twice, the
first time for so many tokens; "logits": they are read before every token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance.protocols import Mode

SPECULATION_DOCS = "https://github.com/microsoft/onnxruntime-genai/blob/main/docs/SpeculativeDecoding.md"
CONFIG_DOCS = "https://onnxruntime.ai/docs/genai/reference/config.html"

ORDER = (
    "bad_words",
    "logit_bias",
    "min_tokens",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
)
"""GenAI's own order, of those that it knows."""

REWOUND = {"rewound": 5}
LOGITS = {"logits": "read"}
SHARED = {"past_present_share_buffer": True} | REWOUND | LOGITS
"""One buffer of full length for the cache before and after a step, as exported models for GPUs have it."""

NOT_HERE = {
    "own": "own drafts: the batching Engine verifies what `Request.set_draft_tokens` proposes on a GPU alone; on a CPU its "
    "`max_draft_tokens_per_proposal()` is 0, and it refuses them",
    "MTP": "MTP: `MtpGenerator` wants a target that gives its hidden states, and a model that drafts from them: none is here",
}
"""Kinds of drafts that GenAI knows, and why they are not run."""


def all_modes(k: int) -> Sequence[Mode]:
    """Every mode with `k` drafts per round, speculation off first."""
    model: dict[str, Any] = {"model": "draft", "max_draft_tokens": k}
    lookup: dict[str, Any] = {"ngram_size": 2, "max_draft_tokens": k}
    ways: tuple[tuple[str, dict[str, Any]], ...] = (("off", {}), ("draft model", model), ("n-gram", lookup))
    return (
        *(_mode(name, speculation) for name, speculation in ways),
        _mode("draft model, adaptive", model | {"min_adaptive_k": 1, "cooldown": True}),
        _mode("n-gram, chained and adaptive", lookup | {"ngram_chained_lookup": True, "min_adaptive_k": 2, "cooldown": True}),
        *(_mode(f"{name}, rewound", speculation, REWOUND) for name, speculation in ways),
        *(_mode(f"{name}, logits read", speculation, LOGITS) for name, speculation in ways),
        *(_mode(f"{name}, shared buffer, rewound, logits read", speculation, SHARED) for name, speculation in ways[:2]),
        Mode("own drafts", {"drafts": "own"}, order=ORDER),
        Mode("MTP", {"drafts": "MTP", "max_draft_tokens": k}, order=ORDER),
    )


def _mode(name: str, speculation: dict[str, Any], options: dict[str, Any] | None = None) -> Mode:
    drafts, adaptive = "model" in speculation, "min_adaptive_k" in speculation
    options = options or {}
    promises = {}
    if not adaptive and "rewound" not in options:  # an adaptive width follows the clock
        promises["SEED-1"] = CONFIG_DOCS
    if speculation and not adaptive and "rewound" not in options:
        promises["ACCEPT-3"] = SPECULATION_DOCS
    logprobs = "raw" if "logits" in options and "rewound" not in options else ""
    if logprobs:
        promises |= dict.fromkeys(("LOGPROB-1", "LOGPROB-2"), SPECULATION_DOCS)
    return Mode(
        name,
        speculation,
        "ratio" if drafts else "token_matching" if speculation else "target",
        "draft model" if drafts else "n-gram" if speculation else "",
        options=options,
        order=ORDER,
        promises=promises,
        logprobs=logprobs,
        exact_draft=drafts,
    )
