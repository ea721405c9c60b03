"""The ways of running vLLM that are audited: every method of speculation, and what else an engine does in pairs with them.

A mode's `speculation` is vLLM's `speculative_config`, with a role ("draft", "medusa", ...) where that wants a folder, and with
the judge's own "hostile" where drafts are bad on purpose. Its `options` are arguments of `LLM`; "seed": "of the request" gives
every request its seed, and "written_as": "MiMo" the same target in another architecture (`conformance.engines.vllm.mimo`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from conformance.protocols import Mode

ORDER = (
    "bad_words",
    "min_tokens",
    "logit_bias",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
    "temperature",
    "min_p",
    "top_k",
    "top_p",
)
"""vLLM's own order of processors (`vllm.v1.sample.sampler.Sampler`)."""

LOGPROBS_DOCS = "https://docs.vllm.ai/en/latest/api/vllm/sampling_params/"
SEED_DOCS = "https://docs.vllm.ai/en/latest/usage/reproducibility/"
SERVER_DOCS = "https://docs.vllm.ai/en/latest/serving/openai_compatible_server/"
METRICS_DOCS = "https://docs.vllm.ai/en/latest/design/metrics/"
SPECULATION_DOCS = "https://docs.vllm.ai/en/latest/features/speculative_decoding/"

DRAFTERS = "conformance.engines.vllm.drafters"
ROLES = ("target", "draft", "medusa", "eagle", "eagle3")
"""What stands for a folder in a mode's speculation."""

PREFIX_CACHE = {"enable_prefix_caching": True, "block_size": 32}
CHUNKED = {"enable_chunked_prefill": True, "max_num_batched_tokens": 32, "max_num_seqs": 16}
"""Prompts of up to 49 tokens are read in parts, beside rows that decode."""
FEW_BLOCKS = {"num_gpu_blocks_override": 24, "block_size": 32}
"""Room for a handful of requests: the others are pre-empted and start again."""
SEEDED = {"seed": "of the request"}
PROCESSED = {"logprobs_mode": "processed_logprobs"}
RAW = {"logprobs_mode": "raw_logprobs"}
MIMO = {"written_as": "MiMo"}
BRIEFLY: dict[str, dict[str, Any]] = {
    "caches, chunks and pre-emption": PREFIX_CACHE | CHUNKED | FEW_BLOCKS | PROCESSED,
    "seeds, raw log-probabilities, as MiMo": SEEDED | RAW | MIMO,
}
"""What every method is run with, so that each meets every option: several at once, because every mode starts an engine."""
NEEDS_GPU = ("tensor_parallel_size", "enforce_eager", "async_scheduling")
"""Options that only a GPU build has."""


def all_modes(k: int) -> Sequence[Mode]:
    """Every mode with `k` drafts per round, speculation off first: those that are audited in full, then those that complete the
    pairs of each method with each option."""
    methods = _methods(k)
    return (*methods, *_company(k), *_reported(k), *_gpu(k), *_brief(methods))


def _brief(methods: Sequence[Mode]) -> Iterator[Mode]:
    """Every method in company, speculation off among them."""
    had: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for mode in methods:
        for what, options in BRIEFLY.items():
            asked = mode.options | options
            if (mode.speculation, asked) not in had:
                had.append((mode.speculation, asked))
                yield replace(mode, name=f"{mode.name}, {what}", options=asked, logprobs=_logprobs(asked), brief=True)


def server_modes(k: int) -> Sequence[Mode]:
    """The modes that the server is audited in. It shows no rounds; it is sent seeds, gives log-probabilities, and has a page
    of metrics."""
    names = ("off", "ngram", "draft_model", "draft_model, probabilistic", "medusa", "eagle")
    told = dict.fromkeys(("LOGPROB-1", "LOGPROB-2"), SERVER_DOCS)
    return tuple(
        replace(mode, exposes_rounds=False, logprobs="raw", promises=mode.promises | told)
        for mode in _methods(k)
        if mode.name in names
    )


def _methods(k: int) -> tuple[Mode, ...]:
    """Every method of speculation, as a user switches it on."""
    best = _mode("draft_model", draft(k), "one_hot", "draft model")
    return (
        _mode("off"),
        _mode("ngram", ngram(k), "one_hot", "n-gram"),
        replace(best, promises=best.promises | {"ACCEPT-2": SPECULATION_DOCS}),
        _mode("draft_model, probabilistic", _drawn(draft(k)), "ratio", "draft model"),
        _mode("draft_model, block", _drawn(draft(k)) | {"rejection_sample_method": "block"}, "block", "draft model"),
        _mode("target as its own draft", draft(k, "target"), "one_hot"),
        _mode("medusa", _heads("medusa", k), "one_hot"),
        _mode("eagle", _heads("eagle", k), "one_hot"),
        _mode("eagle, probabilistic", _drawn(_heads("eagle", k)), "ratio"),
        _mode("eagle3", _heads("eagle3", k), "one_hot"),
        _mode("eagle3, probabilistic", _drawn(_heads("eagle3", k)), "ratio"),
        _mode("off, as MiMo", options=MIMO),
        _mode("mtp", {"method": "mtp", "num_speculative_tokens": k}, "one_hot", options=MIMO),
        _mode("suffix", {"method": "suffix", "num_speculative_tokens": k}, "one_hot", "n-gram"),
        _mode("custom_class, constant", _custom("Constant", k, "always token 0"), "one_hot"),
        _mode("custom_class, random", _custom("Random", k, "random tokens"), "one_hot"),
        _mode("custom_class, ragged", _custom("Ragged", k, "as many as the row's number and length give"), "one_hot"),
    )


def _company(k: int) -> tuple[Mode, ...]:
    """Caches, chunks and pre-emption, each with speculation off as its control."""
    lookup = ("ngram", ngram(k), "one_hot", "n-gram")
    drawn = ("draft_model, probabilistic", _drawn(draft(k)), "ratio", "draft model")
    eagle = ("eagle", _heads("eagle", k), "one_hot", "")
    return (
        *_with("prefix cache", PREFIX_CACHE, lookup, drawn, eagle),
        *_with("chunked prefill", CHUNKED, lookup, drawn),
        *_with("pre-emption", FEW_BLOCKS, drawn),
    )


def _reported(k: int) -> tuple[Mode, ...]:
    """Seeds of the requests, and log-probabilities before and after the processors."""
    lookup, best = ("ngram", ngram(k), "one_hot", "n-gram"), ("draft_model", draft(k), "one_hot", "draft model")
    drawn = ("draft_model, probabilistic", _drawn(draft(k)), "ratio", "draft model")
    return (
        *_with("seeds", SEEDED, lookup, best, drawn),
        *_with("seeds and chunked prefill", SEEDED | CHUNKED),
        *_with("raw log-probabilities", RAW, best),
        *_with("processed log-probabilities", PROCESSED, best),
    )


def _with(what: str, options: dict[str, Any], *some: tuple[str, dict[str, Any], str, str]) -> tuple[Mode, ...]:
    """Modes with the same options, speculation off among them."""
    speculating = (_mode(f"{name}, {what}", asked, rule, law, options) for name, asked, rule, law in some)
    return (_mode(f"off, {what}", options=options), *speculating)


def _gpu(k: int) -> tuple[Mode, ...]:
    """What only a GPU build has."""
    best = ("draft_model", draft(k), "one_hot", "draft model")
    return (
        _mode("ngram_gpu", ngram(k) | {"method": "ngram_gpu"}, "one_hot", "n-gram"),
        *_with("CUDA graphs", {"enforce_eager": False}, best),
        *_with("tensor parallel", {"tensor_parallel_size": 2}, best),
        *_with("async scheduling", {"async_scheduling": True}, best),
    )


def ngram(k: int) -> dict[str, Any]:
    """Prompt lookup: up to `k` tokens that followed an earlier occurrence of the last one to three."""
    return {"method": "ngram", "num_speculative_tokens": k, "prompt_lookup_min": 1, "prompt_lookup_max": 3}


def draft(k: int, role: str = "draft") -> dict[str, Any]:
    """A draft model; its best tokens, unless told to draw them."""
    return {"method": "draft_model", "model": role, "num_speculative_tokens": k}


def _drawn(speculation: dict[str, Any]) -> dict[str, Any]:
    return speculation | {"draft_sample_method": "probabilistic"}


def _heads(method: str, k: int) -> dict[str, Any]:
    return {"method": method, "model": method, "num_speculative_tokens": k}


def _custom(name: str, k: int, hostile: str) -> dict[str, Any]:
    return {"method": "custom_class", "model": f"{DRAFTERS}.{name}", "num_speculative_tokens": k, "hostile": hostile}


def _logprobs(options: dict[str, Any]) -> str:
    return str(options.get("logprobs_mode", "")).removesuffix("_logprobs")


def _mode(
    name: str,
    speculation: dict[str, Any] | None = None,
    rule: str = "target",
    draft_law: str = "",
    options: dict[str, Any] | None = None,
) -> Mode:
    asked = options or {}
    promises: dict[str, str] = {}
    if "logprobs_mode" in asked:
        promises |= dict.fromkeys(("LOGPROB-1", "LOGPROB-2"), LOGPROBS_DOCS)
    if "seed" in asked:
        promises |= {"SEED-1": SEED_DOCS}
    if speculation:
        promises |= {"ACCEPT-3": METRICS_DOCS}
    return Mode(
        name,
        speculation or {},
        rule,
        draft_law,
        exposes_rounds=not set(NEEDS_GPU) & set(asked),
        options=asked,
        order=ORDER,
        promises=promises,
        logprobs=_logprobs(asked),
        prefix_block=int(asked.get("block_size", 0)) if asked.get("enable_prefix_caching") else 0,
    )
