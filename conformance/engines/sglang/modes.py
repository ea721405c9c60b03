"""The ways of running SGLang's server that are audited.

A mode's `speculation` holds options of its command line (sglang 0.5.23: `sglang/srt/arg_groups/fields/spec.py`), with a role
in the place of a folder of models; its `options` switch on what is off in the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance.protocols import Mode

ORDER = (
    "bad_words",
    "min_tokens",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
)
"""SGLang's own order of processors (`SamplingBatchInfo.apply_logits_bias`, then `Sampler`). Asked for top-k and top-p and no
min-p, it keeps what each of them keeps of the whole law; an audit asks for all three or for one."""

LOGPROBS_DOCS = "https://docs.sglang.io/basic_usage/sampling_params.html"
DRAFT = "speculative-draft-model-path"
NGRAM_BREADTH = "speculative-ngram-max-bfs-breadth"
ACC, SINGLE = "speculative-accept-threshold-acc", "speculative-accept-threshold-single"
PREFIX_CACHE, CUDA_GRAPHS = {"prefix_cache": True}, {"cuda_graphs": True}


def server_modes(k: int) -> Sequence[Mode]:
    """Every mode with `k` drafts per round, or trees `k` deep, speculation off first.

    Drafts are the draft's best tokens, verified by the target's law alone; only under rejection sampling are they drawn.
    """
    chain, tree = drafting(k, 1, k + 1), drafting(k, 2, 2 * k + 1)
    standalone: dict[str, Any] = {"speculative-algorithm": "STANDALONE", DRAFT: "draft", **chain}
    lookup = {"speculative-algorithm": "NGRAM", "speculative-num-draft-tokens": 2 * k + 1, NGRAM_BREADTH: 2}
    eagle, eagle3 = _heads("EAGLE", "eagle"), _heads("EAGLE3", "eagle3")
    return (
        _mode("off"),
        _mode("ngram", lookup, "target_only", "n-gram"),
        _mode("standalone", standalone, "target_only", "draft model"),
        _mode("standalone, tree", standalone | tree, "target_only", "draft model"),
        _mode("eagle", eagle | chain, "target_only"),
        _mode("eagle, tree", eagle | tree, "target_only"),
        _mode("eagle, rejection sampling", eagle | chain | {"speculative-use-rejection-sampling": True}, "ratio"),
        _mode("eagle, block verification", eagle | chain | {"speculative-use-block-verification": True}, "block"),
        _mode("eagle3", eagle3 | chain, "target_only"),
        _mode("eagle3, tree", eagle3 | tree, "target_only"),
        *_with("prefix cache", PREFIX_CACHE, standalone),
        *_with("CUDA graphs", CUDA_GRAPHS, standalone),
        _mode("standalone, threshold_acc 0.5", standalone | {ACC: 0.5}, lossy="drafts are accepted with min(1, p / 0.5)"),
        _mode("standalone, threshold_single 0.3", standalone | {SINGLE: 0.3}, lossy="drafts are accepted from p = 0.3 on"),
    )


def drafting(steps: int, topk: int, tokens: int) -> dict[str, Any]:
    """A tree of so many tokens, its root among them, over so many steps, each with the best so many after each."""
    return {
        "speculative-num-steps": steps,
        "speculative-eagle-topk": topk,
        "speculative-num-draft-tokens": tokens,
    }


def _heads(algorithm: str, role: str) -> dict[str, Any]:
    return {"speculative-algorithm": algorithm, DRAFT: role}


def _with(what: str, options: dict[str, Any], standalone: dict[str, Any]) -> tuple[Mode, Mode]:
    """The draft model with something else switched on, beside its control."""
    drafted = _mode(f"standalone, {what}", standalone, "target_only", "draft model", options=options)
    return _mode(f"off, {what}", options=options), drafted


def _mode(
    name: str,
    speculation: dict[str, Any] | None = None,
    rule: str = "",
    draft_law: str = "",
    *,
    options: dict[str, Any] | None = None,
    lossy: str = "",
) -> Mode:
    return Mode(
        name,
        speculation or {},
        rule or ("undeclared" if speculation else "target"),
        draft_law,
        lossy=lossy,
        options=options or {},
        order=ORDER,
        promises=dict.fromkeys(("LOGPROB-1", "LOGPROB-2"), LOGPROBS_DOCS),
        logprobs="raw",
    )
