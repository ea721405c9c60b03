"""GRAMMAR: what an engine that offers grammars must keep to while it speculates."""

from __future__ import annotations

from conformance.requirements.kinds import Requirement, When

GRAMMAR = (
    Requirement(
        "GRAMMAR-1",
        "GRAMMAR",
        "After every round the grammar's matcher is in the state that a fresh one reaches on the committed tokens.",
        "Willard and Louf 2307.09702, algorithm 2: the mask follows from the text so far; Leviathan et al. 2211.17192, "
        "algorithm 1: the next round starts from the accepted prefix",
        "conformance.checks.grammar",
        When.IF_OFFERED,
        "quick",
        kills=("matcher lags one token", "matcher rolled back by k, not by what advanced"),
        reports=("vllm-project/vllm 48516", "vllm-project/vllm 31955", "vllm-project/vllm 9423"),
    ),
    Requirement(
        "GRAMMAR-2",
        "GRAMMAR",
        "Every position of a round is masked by what the grammar allows after the position's own path: of a tree's node, after "
        "its ancestors.",
        "Willard and Louf 2307.09702, algorithm 2, at each drafted position",
        "conformance.checks.grammar",
        When.IF_OFFERED,
        "quick",
        kills=("grammar flag read once per round", "one mask for a whole round", "tree masked in chain order"),
        reports=("vllm-project/vllm 44297", "NVIDIA/TensorRT-LLM 18892"),
    ),
    Requirement(
        "GRAMMAR-3",
        "GRAMMAR",
        "Every output follows the grammar; nothing follows its end, and before its limit it ends only where the text is "
        "complete.",
        "Willard and Louf 2307.09702, algorithm 2",
        "conformance.checks.grammar",
        When.IF_OFFERED,
        "smoke",
        kills=("no mask at verification", "mask asked for past the end"),
        reports=("InternLM/lmdeploy 4551", "openvinotoolkit/openvino.genai 4081", "sgl-project/sglang 21723"),
    ),
    Requirement(
        "GRAMMAR-4",
        "GRAMMAR",
        "Every emitted token follows the target's law with what the grammar forbids removed; an invalid draft is rejected "
        "under the q that it was judged by.",
        "Leviathan et al. 2211.17192, appendix A.1, for the masked target",
        "conformance.checks.grammar",
        When.IF_OFFERED,
        "quick",
        kills=("invalid draft rejected, its q kept in the residual", "invalid drafts dropped before verification"),
        reports=("local-inference-lab/vllm 476",),
    ),
)
