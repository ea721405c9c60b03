"""An exact Markov model, and one that drafts for it: Llamas without layers, whose logits follow from the last token alone.

Each embedding is a unit vector, so that the last map holds, up to the norm's factor, the whole table of logits.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from conformance.components import Floats
from conformance.engines.model_folders import save_like_ours
from conformance.protocols import Models
from specref import pretrained

NAME = "Markov"
SPREAD, NOISE = 1.5, 0.5
"""Standard deviations of the target's logits, and of what the draft's differ by."""


def make(folder: Path) -> list[tuple[str, Models]]:
    """The pair with its name, written to `folder`."""
    models = Models(folder / "markov" / "target", folder / "markov" / "draft")
    for table, place in zip(tables(), (models.target, models.draft)):
        save_like_ours(model_of(table), place)
    return [(NAME, models)]


def tables() -> tuple[Floats, Floats]:
    """Logits `[V, V]` of target and draft, row t after token t."""
    V = transformers.AutoConfig.from_pretrained(str(pretrained.path("target"))).vocab_size
    rng = np.random.default_rng(0)
    target = rng.normal(0, SPREAD, (V, V))
    return target, target + rng.normal(0, NOISE, (V, V))


def model_of(table: Floats) -> Any:
    """The Llama that computes a table `[V, V]` of logits.

    >>> with torch.no_grad():
    ...     model_of(np.array([[1.0, 2.0], [3.0, 4.0]]))(torch.tensor([[1, 0]])).logits.numpy().round(5).tolist()
    [[[3.0, 4.0], [1.0, 2.0]]]
    """
    V = len(table)
    config = transformers.LlamaConfig(
        vocab_size=V, hidden_size=V, intermediate_size=V, num_hidden_layers=0, num_attention_heads=1, head_dim=2
    )
    model = transformers.LlamaForCausalLM(config).eval()
    norm = math.sqrt(1 / V + config.rms_norm_eps)  # what a unit vector is divided by
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(torch.eye(V))
        model.lm_head.weight.copy_(torch.tensor(table.T * norm))
    return model
