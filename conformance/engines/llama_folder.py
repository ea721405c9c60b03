"""A Llama model in transformers' format, read as plain arrays: what adapters write other formats from (ONNX, GGUF)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.torch import load_file

from conformance.protocols import Unsupported

Array = npt.NDArray[np.float32]

CHANGES = ("attention_bias", "mlp_bias", "sliding_window", "use_sliding_window")
"""Settings of a configuration that would make another model of it than what is read here."""


@dataclass(frozen=True)
class LlamaFolder:
    """A folder with config.json and model.safetensors. No layers make a Markov model: logits follow from the last token.

    >>> from specref import pretrained
    >>> model = LlamaFolder.read(pretrained.path("draft"))
    >>> model.vocabulary, model.layers, model.tensor("model.norm.weight").shape
    (114, 1, (64,))
    """

    folder: Path
    vocabulary: int
    hidden: int
    layers: int
    heads: int
    key_heads: int
    head_size: int
    inner: int
    longest: int
    epsilon: float
    theta: float
    eos: tuple[int, ...]
    first: int | None

    @classmethod
    def read(cls, folder: Path) -> LlamaFolder:
        """Read the configuration. Raises Unsupported, naming what it is, for a model that is no plain Llama."""
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        if config["model_type"] != "llama":
            raise Unsupported(f"model_type {config['model_type']!r}: only Llama models are written for this engine")
        if rope.get("rope_type", "default") != "default" or any(config.get(name) for name in CHANGES):
            raise Unsupported(f"the model in {folder.name}: only plain Llama models are written for this engine")
        eos = config.get("eos_token_id")
        heads, hidden = config["num_attention_heads"], config["hidden_size"]
        return cls(
            folder,
            config["vocab_size"],
            hidden,
            config["num_hidden_layers"],
            heads,
            config.get("num_key_value_heads") or heads,
            config.get("head_dim") or hidden // heads,
            config["intermediate_size"],
            config["max_position_embeddings"],
            config["rms_norm_eps"],
            rope.get("rope_theta", config.get("rope_theta", 10_000.0)),
            tuple(eos) if isinstance(eos, list) else () if eos is None else (eos,),
            config.get("bos_token_id"),
        )

    def tensor(self, name: str) -> Array:
        """A weight by its name in transformers, in float32; `lm_head.weight` may be the embedding."""
        if name == "lm_head.weight" and name not in self._tensors:
            name = "model.embed_tokens.weight"
        return self._tensors[name]

    @cached_property
    def _tensors(self) -> dict[str, Array]:
        return {name: tensor.float().numpy() for name, tensor in load_file(self.folder / "model.safetensors").items()}

    def rotations(self) -> tuple[Array, Array]:
        """Cosines and sines `[longest, head_size / 2]` of every position's rotation."""
        frequencies = self.theta ** (-np.arange(0, self.head_size, 2, dtype=np.float64) / self.head_size)
        angles = np.arange(self.longest)[:, None] * frequencies[None, :]
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
