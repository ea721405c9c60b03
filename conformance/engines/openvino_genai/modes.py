"""The ways of running OpenVINO GenAI that are audited.

A mode's `speculation`: "draft_model" or "prompt_lookup" is what drafts; the rest, and all `options` but
"enable_prefix_caching", are fields of `GenerationConfig`. The rule is not declared: its documentation says that a token which
the target would not have produced is replaced by the target's own sample, and that this is "statistically equivalent to
sampling from the target". Of `rng_seed` it says that it initializes a generator, and nowhere that an output comes again: SEED-1
is not promised.

Processors apply in the reference's own order. OpenVINO GenAI has min-p before top-p, of probabilities that are made once, after
top-k and temperature (its source at 2026.3.0.0): what both keep is what top-p and then min-p keep. Of 75,595 tokens that were
sampled without speculation, all settings combined, none is outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance.protocols import Mode

DOCS = "https://github.com/openvinotoolkit/openvino.genai/blob/2026.4.1.0/src/cpp/include/openvino/genai/generation_config.hpp"
METRICS_DOCS = (
    "https://github.com/openvinotoolkit/openvino.genai/blob/2026.4.1.0/src/cpp/include/openvino/genai/perf_metrics.hpp"
)
COUNTED = {"ACCEPT-3": METRICS_DOCS}
CACHED = {"enable_prefix_caching": True}
TOLD: dict[str, Any] = {
    "options": {"logprobs": 1},
    "logprobs": "raw",
    "promises": {"LOGPROB-1": DOCS, "LOGPROB-2": DOCS},
}


def all_modes(k: int) -> Sequence[Mode]:
    """Every mode with `k` drafts per round, or as many as the draft model is confident of."""
    drafted: dict[str, Any] = {"draft_model": True, "num_assistant_tokens": k}
    confident: dict[str, Any] = {"draft_model": True, "assistant_confidence_threshold": 0.4}
    lookup: dict[str, Any] = {"prompt_lookup": True, "num_assistant_tokens": k, "max_ngram_size": 3}
    return (
        Mode("off", rule="target"),
        Mode("draft model", drafted, draft_law="draft model", promises=COUNTED),
        Mode("draft model, confident", confident, draft_law="draft model", promises=COUNTED),
        Mode("prompt lookup", lookup, draft_law="n-gram", promises=COUNTED),
        Mode("off, prefix caching", rule="target", options=CACHED),
        Mode("draft model, prefix caching", drafted, draft_law="draft model", options=CACHED, promises=COUNTED),
        Mode("prompt lookup, prefix caching", lookup, draft_law="n-gram", options=CACHED, promises=COUNTED),
        Mode("off, log-probabilities", rule="target", **TOLD),
        Mode("draft model, log-probabilities", drafted, draft_law="draft model", **TOLD),
        Mode("prompt lookup, log-probabilities", lookup, draft_law="n-gram", **TOLD),
    )
