"""The ways of running llama.cpp's server that are audited.

A mode's `speculation`: "type" is a `common_speculative_type` (its name's end, in small letters), "k" the drafts per round, and
"probabilistic" draws the drafts. Its options: "cache_prompt" keeps what requests have in common; "n_probs" asks for
log-probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance.protocols import Mode

README = "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md"

ORDER = (
    "bad_words",
    "min_tokens",
    "logit_bias",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "top_k",
    "top_p",
    "min_p",
    "temperature",
)
"""llama.cpp's own order: it truncates before it looks at the temperature."""

CACHED = {"cache_prompt": True}
LOGPROBS = {"n_probs": 1}
LOOKUPS = ("ngram_simple", "ngram_map_k", "ngram_map_k4v", "ngram_mod")


def all_modes(k: int) -> Sequence[Mode]:
    """Every mode with `k` drafts per round, speculation off first."""
    best: dict[str, Any] = {"type": "draft_simple", "k": k}
    drawn = best | {"probabilistic": True}
    return (
        _mode("off", {}),
        _mode("draft model", best),
        _mode("draft model, probabilistic", drawn),
        *(_mode(kind.replace("_", "-"), {"type": kind, "k": k}) for kind in LOOKUPS),
        _mode("off, prompt cache", {}, CACHED),
        _mode("draft model, probabilistic, prompt cache", drawn, CACHED),
        _mode("off, log-probabilities", {}, LOGPROBS),
        _mode("draft model, log-probabilities", best, LOGPROBS),
    )


def _mode(name: str, speculation: dict[str, Any], options: dict[str, Any] | None = None) -> Mode:
    drafts = speculation.get("type") == "draft_simple"
    rule = "ratio" if speculation.get("probabilistic") else "token_matching" if speculation else "target"
    promises = {} if options == CACHED else {"SEED-1": README}
    if speculation:
        promises["ACCEPT-3"] = README
    if options == LOGPROBS:
        promises |= dict.fromkeys(("LOGPROB-1", "LOGPROB-2"), README)
    return Mode(
        name,
        speculation,
        rule,
        "draft model" if drafts else "n-gram" if speculation else "",
        options=options or {},
        order=ORDER,
        promises=promises,
        logprobs="raw" if options == LOGPROBS else "",
    )
