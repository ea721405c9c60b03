"""STOP, LOUD and EDGE: where outputs end, which settings are obeyed, and what unusual inputs come to."""

from __future__ import annotations

from conformance.requirements.kinds import Requirement, When

BEHAVIOUR = (
    Requirement(
        "STOP-1",
        "STOP",
        "Nothing follows an end-of-sequence id, whichever of several, wherever in a round it falls.",
        "Plain decoding ends at the first token that ends it; speculation must not change that (Leviathan et al. "
        "2211.17192, A.1)",
        "conformance.checks.stop",
        When.ALWAYS,
        "smoke",
        kills=(
            "EOS looked for in the block's last slot only",
            "first of several EOS ids only",
        ),
        reports=(
            "huggingface/transformers 47912",
            "LostRuins/koboldcpp 1276",
            "openvinotoolkit/openvino.genai 1951",
            "intel/ipex-llm 11896",
        ),
    ),
    Requirement(
        "STOP-2",
        "STOP",
        "Nothing follows a stop sequence, also one that began in an earlier round.",
        "Plain decoding ends at the first token that ends it; speculation must not change that (Leviathan et al. "
        "2211.17192, A.1)",
        "conformance.checks.stop",
        When.ALWAYS,
        "smoke",
        kills=("stop sequences looked for within one round",),
        reports=("sgl-project/sglang 31599",),
    ),
    Requirement(
        "STOP-3",
        "STOP",
        "No output is longer than its limit.",
        "Plain decoding ends at the first token that ends it; speculation must not change that (Leviathan et al. "
        "2211.17192, A.1)",
        "conformance.checks.stop",
        When.ALWAYS,
        "smoke",
        kills=("no clamp to max tokens",),
        reports=(
            "ohdearquant/lattice 242",
            "unslothai/llama.cpp 224",
        ),
    ),
    Requirement(
        "STOP-4",
        "STOP",
        "No end-of-sequence id is emitted, and no output ends, before min_tokens tokens.",
        "Plain decoding ends at the first token that ends it; speculation must not change that (Leviathan et al. "
        "2211.17192, A.1)",
        "conformance.checks.stop",
        When.ALWAYS,
        "smoke",
        kills=("an end before min_tokens",),
        reports=("sgl-project/sglang 33643",),
    ),
    Requirement(
        "STOP-5",
        "STOP",
        "Every output goes on until something that its request names ends it.",
        "Plain decoding ends at the first token that ends it; speculation must not change that (Leviathan et al. "
        "2211.17192, A.1)",
        "conformance.checks.stop",
        When.ALWAYS,
        "smoke",
        kills=("the output ends for no reason",),
        reports=("huggingface/transformers 28508",),
    ),
    Requirement(
        "LOUD-1",
        "LOUD",
        "A setting is obeyed in every token, or refused by a message that names it.",
        "What the engine's own interface offers",
        "conformance.checks.loud",
        When.ALWAYS,
        "smoke",
        kills=(
            "temperature ignored without a word",
            "top_k ignored without a word",
            "top_p ignored without a word",
            "min_p ignored without a word",
            "repetition_penalty ignored without a word",
            "presence_penalty ignored without a word",
            "frequency_penalty ignored without a word",
            "logit_bias ignored without a word",
            "bad_words ignored without a word",
            "min_tokens ignored without a word",
        ),
        reports=(
            "NVIDIA/TensorRT-LLM 17701",
            "InternLM/lmdeploy 4551",
            "sgl-project/sglang 31214",
            "vllm-project/vllm 19482",
            "Blaizzy/mlx-vlm 2029",
        ),
    ),
    Requirement(
        "LOUD-2",
        "LOUD",
        "A mode whose rule changes the law declares it.",
        "Cai et al. 2401.10774 (Medusa), section 2.3.1, on typical acceptance",
        "conformance.checks.loud",
        When.ALWAYS,
        "smoke",
        kills=("a lossy rule passes silently",),
        reports=(
            "verl-project/verl-SpeCo 19",
            "NVIDIA/TensorRT-LLM 3865",
            "vllm-project/vllm 5131",
        ),
    ),
    Requirement(
        "EDGE-1",
        "EDGE",
        "At the ends of chance (u = 0, u just below 1, an empty residual) nothing of probability zero is emitted.",
        "Leviathan et al. 2211.17192, section 2.3, in floating point",
        "conformance.checks.edge",
        When.ALWAYS,
        "smoke",
        kills=(
            "<= lets a token of p = 0 through at u = 0",
            "uniform fallback from an empty residual",
            "the residual divided by a zero sum",
            "inverse CDF emits a first token of p = 0 at u = 0",
        ),
        reports=(
            "sgl-project/sglang 35771",
            "jaymody/speculative-sampling 5",
            "duoan/TorchCode 16",
        ),
    ),
    Requirement(
        "EDGE-2",
        "EDGE",
        "A law that is none (NaN, infinite, negative, all zero) is refused, accepts nothing, and leaves other rows alone.",
        "A decision on NaN is undefined: IEEE 754 comparisons with NaN are false",
        "conformance.checks.edge",
        When.ALWAYS,
        "smoke",
        kills=(
            "NaN row accepted",
            "a bad row changes the healthy ones beside it",
        ),
        reports=(
            "NVIDIA/TensorRT-LLM 5146",
            "local-inference-lab/vllm 621",
            "junhyukso/GSD 1",
        ),
    ),
    Requirement(
        "EDGE-3",
        "EDGE",
        "A token id outside the vocabulary is rejected or refused.",
        "A draft outside the target's support is rejected with probability 1 (Leviathan et al. 2211.17192, section 2.3)",
        "conformance.checks.edge",
        When.ALWAYS,
        "smoke",
        kills=(
            "placeholder id -1 gathered and accepted",
            "an id outside the vocabulary crashes",
        ),
        reports=(
            "vllm-project/vllm 46533",
            "vllm-project/vllm 46899",
        ),
    ),
)
