"""A Llama model as a GGUF file, in float32, with the tokenizer of its folder where that spells bytes."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np

from conformance.engines.llama_folder import Array, LlamaFolder
from conformance.protocols import Tokens, Unsupported

END_KINDS = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")
"""Special tokens that end an output, each of one kind."""

LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""Names of a layer's weights: transformers' and GGUF's."""


def write_gguf(model: LlamaFolder, ends: Tokens, file: Path) -> None:
    """Write the model to a file, so that its outputs end at any of `ends`. Raises Unsupported for more than six of them."""
    if len(ends) > len(END_KINDS):
        raise Unsupported(f"eos: llama.cpp knows {len(END_KINDS)} kinds of tokens that end an output, asked were {len(ends)}")
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(model.longest)
    writer.add_embedding_length(model.hidden)
    writer.add_block_count(model.layers)
    writer.add_feed_forward_length(model.inner)
    writer.add_head_count(model.heads)
    writer.add_head_count_kv(model.key_heads)
    writer.add_key_length(model.head_size)
    writer.add_value_length(model.head_size)
    writer.add_rope_dimension_count(model.head_size)
    writer.add_rope_freq_base(model.theta)
    writer.add_layer_norm_rms_eps(model.epsilon)
    writer.add_vocab_size(model.vocabulary)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    _add_vocabulary(writer, model, ends)
    writer.add_tensor("token_embd.weight", model.tensor("model.embed_tokens.weight"))
    for layer in range(model.layers):
        for theirs, ours in LAYER.items():
            weight = model.tensor(f"model.layers.{layer}.{theirs}.weight")
            if ours in ("attn_q", "attn_k"):
                weight = interleaved(weight, model.heads if ours == "attn_q" else model.key_heads)
            writer.add_tensor(f"blk.{layer}.{ours}.weight", np.ascontiguousarray(weight))
    writer.add_tensor("output_norm.weight", model.tensor("model.norm.weight"))
    writer.add_tensor("output.weight", model.tensor("lm_head.weight"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def interleaved(weight: Array, heads: int) -> Array:
    """Rows of a projection in llama.cpp's order: it rotates neighbours, transformers the two halves of a head.

    >>> interleaved(np.arange(4.0, dtype=np.float32)[:, None], heads=1).ravel().tolist()
    [0.0, 2.0, 1.0, 3.0]
    """
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def spellings(model: LlamaFolder) -> list[bytes]:
    """How each token is written: as the folder's byte-level tokenizer says, else `<number>`.

    >>> from specref import pretrained
    >>> spellings(LlamaFolder.read(pretrained.path("draft")))[:8]
    [b'<pad>', b'<bos>', b'<eos>', b'<unk>', b'\\t', b'\\n', b' ', b'!']
    """
    try:
        tokenizer = json.loads((model.folder / "tokenizer.json").read_text(encoding="utf-8"))
        known = {number: text for text, number in tokenizer["model"]["vocab"].items()}
    except (OSError, KeyError, ValueError, AttributeError):
        known = {}
    letters = _letters()
    texts = (known.get(number, f"<{number}>") for number in range(model.vocabulary))
    return [bytes(letters[letter] for letter in text) if set(text) <= set(letters) else text.encode() for text in texts]


def _letters() -> dict[str, int]:
    """The byte that each letter of a byte-level tokenizer stands for: visible ones for themselves, the others from 256 up."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + i): byte for i, byte in enumerate(others)}


def _add_vocabulary(writer: gguf.GGUFWriter, model: LlamaFolder, ends: Tokens) -> None:
    """The tokens as a tokenizer of the RWKV kind has them, the only kind in which no token need be special."""
    writer.add_tokenizer_model("rwkv")
    writer.add_token_list(["".join(f"\\x{byte:02x}" for byte in text) for text in spellings(model)])
    writer.add_token_types([gguf.TokenType.NORMAL] * model.vocabulary)
    writer.add_add_bos_token(False)
    for kind, end in zip(END_KINDS, ends):
        writer.add_uint32(f"tokenizer.ggml.{kind}_token_id", end)
