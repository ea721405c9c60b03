"""Pairs of models of other architectures than ours: with our vocabulary, tokenizer and number of layers, so that every mode of
ours can be tried on them.

A draft is its target with noise on the weights, so that drafts are accepted often, and not always.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
import transformers

from conformance.engines.model_folders import save_like_ours
from conformance.engines.transformers.architectures import SHAPE, made, tiny_config
from conformance.protocols import Models
from specref import pretrained

NAMES = ("mistral", "gemma3_text", "gpt2", "deepseek_v3")
"""A window in every layer; in every second one, with tied embeddings; learned positions; experts and latent attention."""
NOISE = 0.1
"""Of a draft's weights, in standard deviations of each table of them."""


def make(folder: Path) -> list[tuple[str, Models]]:
    """The pairs by the names of their architectures, written to `folder`."""
    return [(name, _pair(name, folder / name)) for name in NAMES]


def _pair(architecture: str, folder: Path) -> Models:
    ours = pretrained.path("target")
    ends = transformers.GenerationConfig.from_pretrained(str(ours))
    like = transformers.AutoConfig.from_pretrained(str(ours))
    special = {name: getattr(ends, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    config = tiny_config(architecture, like.vocab_size, like.num_hidden_layers // SHAPE["num_hidden_layers"], **special)
    target = made(transformers.AutoModelForCausalLM.from_config, config)
    models = Models(folder / "target", folder / "draft")
    save_like_ours(target, models.target)
    save_like_ours(_with_noise(target), models.draft)
    return models


def _with_noise(model: Any) -> Any:
    noisy, chance = copy.deepcopy(model), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for table in noisy.parameters():
            if table.dim() > 1:
                table += NOISE * table.std() * torch.randn(table.shape, generator=chance)
    return noisy
