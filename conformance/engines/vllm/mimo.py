"""A Llama written as a MiMo: the same law, in an architecture with a layer that predicts ahead, which vLLM's MTP drafts with.

MiMo's layers are Llama's with biases, here zero. What predicts ahead is made of an EAGLE head, which lies beside the target:
both draft from the target's last state and the token after it, so that drafts are accepted often, and not always. They need not
be the head's own drafts, because MiMo normalises in three places where EAGLE does not.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from conformance.engines.llama_folder import LlamaFolder
from conformance.engines.model_folders import CONFIG

WEIGHTS = "model.safetensors"
AHEAD = "model.mtp_layers.0"
"""What the names of the layer that predicts ahead begin with."""
CHANGES = {"architectures": ["MiMoForCausalLM"], "model_type": "qwen2", "num_nextn_predict_layers": 1}
"""Of the configuration. A MiMo's own class of it comes with its weights and is a Qwen2's, whose layers a MiMo has."""

Weights = dict[str, torch.Tensor]


def write_as_mimo(target: Path, head: Path, into: Path) -> Path:
    """Write the Llama of `target`, with what predicts ahead from the EAGLE head of `head`, to the folder `into`.

    Raises Unsupported for a target that is no plain Llama.

    >>> from tempfile import TemporaryDirectory
    >>> from specref import pretrained
    >>> target = pretrained.path("target")
    >>> with TemporaryDirectory() as place:
    ...     made = load_file(write_as_mimo(target, target.parent / "eagle", Path(place)) / WEIGHTS)
    >>> made[f"{AHEAD}.input_proj.weight"].shape, bool(made["model.layers.0.self_attn.q_proj.bias"].any())
    (torch.Size([128, 256]), False)
    """
    shape = LlamaFolder.read(target)
    weights = load_file(target / WEIGHTS)
    weights |= _ahead(weights, load_file(head / WEIGHTS), shape.hidden)
    for layer in [f"model.layers.{number}" for number in range(shape.layers)] + [AHEAD]:
        for what in ("q_proj", "k_proj", "v_proj"):
            rows = weights[f"{layer}.self_attn.{what}.weight"].shape[0]
            weights[f"{layer}.self_attn.{what}.bias"] = torch.zeros(rows)
    config: dict[str, Any] = json.loads((target / CONFIG).read_text(encoding="utf-8"))
    for file in target.iterdir():
        if file.name not in (CONFIG, WEIGHTS) and file.is_file():
            (into / file.name).symlink_to(file.resolve())
    (into / CONFIG).write_text(json.dumps(config | CHANGES), encoding="utf-8")
    save_file(weights, into / WEIGHTS)
    return into


def _ahead(weights: Weights, head: Weights, hidden: int) -> Weights:
    """The layer that predicts ahead. An EAGLE head reads (embedding, state), the state normalised; this one (state, embedding),
    both of which it normalises itself, to the size that they have on average."""
    fc = head["fc.weight"]
    size = weights["model.embed_tokens.weight"].square().mean().sqrt()
    ones = torch.ones(hidden)
    made = {
        "input_proj": torch.cat([fc[:, hidden:], fc[:, :hidden]], dim=1),
        "token_layernorm": ones * size,
        "hidden_layernorm": weights["model.norm.weight"].clone(),
        "input_layernorm": ones.clone(),
        "final_layernorm": ones.clone(),
    }
    block = {name.removeprefix("layers.0"): tensor for name, tensor in head.items() if name.startswith("layers.0.")}
    return {f"{AHEAD}.{name}.weight": tensor for name, tensor in made.items()} | {AHEAD + name: block[name] for name in block}
