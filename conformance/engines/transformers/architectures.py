"""Tiny random models of the architectures that take assistance, made from their configuration classes.

Their layers, two each, are of the kinds that the architecture mixes: full attention, sliding windows of `WINDOW` positions,
chunks, convolutions, experts, latent attention, learned positions, rotary ones and slopes.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import transformers

V = 64
"""Vocabulary of every tiny model."""
SHAPE = {
    "vocab_size": V,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,  # laws far from uniform
}


WINDOW = 6
"""Positions that a sliding layer sees: few, so that every schedule leaves it behind."""

_SLIDING: dict[str, Any] = {"sliding_window": WINDOW}
_MIXED: dict[str, Any] = {**_SLIDING, "layer_types": ["sliding_attention", "full_attention"]}
_EXPERTS: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "num_local_experts": 4}
_GROUPS: dict[str, Any] = {**_EXPERTS, "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}
_LATENT: dict[str, Any] = {
    "q_lora_rank": None,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
    "head_dim": None,
}
_PER_LAYER: dict[str, Any] = {
    "vocab_size_per_layer_input": V,
    "hidden_size_per_layer_input": 8,
    "laurel_rank": 4,
    "altup_num_inputs": 2,
    "num_kv_shared_layers": 0,
    "activation_sparsity_pattern": [0.0, 0.0],
    "intermediate_size": [64, 64],
}

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {},
    "gpt2": {},
    "mistral": _SLIDING,
    "gemma": {},
    "gemma2": _MIXED,
    "gemma3_text": _MIXED,
    "gemma3n_text": _MIXED | _PER_LAYER,
    "gemma4_text": {**_MIXED, "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0, "global_head_dim": 16},
    "qwen2": {**_SLIDING, "use_sliding_window": True, "max_window_layers": 1},
    "qwen3": {},
    "qwen2_moe": {**_EXPERTS, "shared_expert_intermediate_size": 32},
    "qwen3_moe": _EXPERTS,
    "mixtral": _EXPERTS,
    "phi": {},
    "phi3": _SLIDING,
    "gpt_neox": {},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": WINDOW},
    "gptj": {"rotary_dim": 8},
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32},
    "bloom": {},
    "falcon": {"new_decoder_architecture": True, "head_dim": None},
    "xglm": {"d_model": 32, "ffn_dim": 64, "num_layers": 2, "attention_heads": 2},
    "cohere2": _MIXED,
    "gpt_oss": _EXPERTS | _MIXED,
    "olmo2": {},
    "olmo3": _MIXED,
    "stablelm": {},
    "starcoder2": _SLIDING,
    "deepseek_v2": _GROUPS | _LATENT,
    "deepseek_v3": _GROUPS | _LATENT,
    "llama4_text": {
        "num_local_experts": 2,
        "interleave_moe_layer_step": 2,
        "intermediate_size_mlp": 64,
        "attention_chunk_size": WINDOW,
        "layer_types": ["chunked_attention", "full_attention"],
        "no_rope_layers": [1, 0],
    },
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "exaone4": {**_MIXED, "sliding_window_pattern": 2},
    "smollm3": {"no_rope_layers": [1, 0]},
    "glm4": {},
    "glm4_moe": _GROUPS,
    "mpt": {"d_model": 32, "n_heads": 2, "n_layers": 2, "max_seq_len": 256},
    "granite": {},
    "vaultgemma": _MIXED,
}
"""What each architecture is given beside `SHAPE`; None leaves a name out."""


def tiny_config(architecture: str, vocabulary: int = V, repeated: int = 1, **special: int) -> Any:
    """The configuration of a tiny model. repeated: how often its two layers come. special: the ids of special tokens."""
    given = SHAPE | ARCHITECTURES[architecture] | {"vocab_size": vocabulary}
    given["num_hidden_layers"] *= repeated
    given |= {"layer_types": given["layer_types"] * repeated} if "layer_types" in given else {}
    shape = {name: value for name, value in given.items() if value is not None}
    if "q_lora_rank" in given:
        shape["q_lora_rank"] = None  # which means something: queries are not compressed
    return transformers.AutoConfig.for_model(architecture, **shape, **special)


@functools.cache
def tiny(architecture: str, attention: str | None = None) -> Any:
    """A random model of an architecture, with an implementation of attention, or the one that the library chooses."""
    config = tiny_config(architecture, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    named = {} if attention is None else {"attn_implementation": attention}
    return made(functools.partial(transformers.AutoModelForCausalLM.from_config, **named), config)


@functools.cache
def gemma4_pair() -> tuple[Any, Any]:
    """A Gemma 4 target and the single-position assistant that reads its keys and values."""
    text = {
        **SHAPE,
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 16,
        "hidden_size_per_layer_input": 0,
        "vocab_size_per_layer_input": 0,
        "global_head_dim": 16,
    }
    assistant = transformers.Gemma4TextConfig(**text, num_kv_shared_layers=2)
    return (
        made(transformers.Gemma4ForCausalLM, transformers.Gemma4TextConfig(**text)),
        made(
            transformers.Gemma4AssistantForCausalLM,
            transformers.Gemma4AssistantConfig(text_config=assistant, backbone_hidden_size=SHAPE["hidden_size"]),
        ),
    )


@functools.cache
def multi_token_target() -> Any:
    """A DeepSeek-V3 with three layers for multi-token prediction to come (its experts are left out)."""
    latent = {"q_lora_rank": None, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16}
    shape = {name: value for name, value in SHAPE.items() if name != "head_dim"}
    config = transformers.DeepseekV3Config(**shape, **latent, first_k_dense_replace=10, num_mtp_layers=3)
    return made(transformers.DeepseekV3ForCausalLM, config)


@functools.cache
def dflash_pair() -> tuple[Any, Any]:
    """A Llama, and a block drafter that reads its hidden states."""
    shape = {name: value for name, value in SHAPE.items() if name != "vocab_size"}
    config = transformers.MuseGlimmerAssistantConfig(
        **shape, block_size=4, mask_token_id=1, target_layer_ids=[0, 1], sliding_window=32
    )
    return (
        made(transformers.LlamaForCausalLM, transformers.LlamaConfig(**SHAPE)),
        made(transformers.MuseGlimmerAssistantModel, config),
    )


def made(kind: Any, config: Any, seed: int = 0) -> Any:
    """A random model, the same one for the same seed; the caller's generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = kind(config).eval()
    model.generation_config = transformers.GenerationConfig()
    return model
