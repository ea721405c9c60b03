"""Self-speculation by early exit: the target's own first layers are the draft model.

No second model is loaded: the first layers, the final norm and the LM head are the target's modules themselves. Source:
Elhoushi et al. (LayerSkip) 2404.16710, section 4.3; Zhang et al. 2309.08168 skips layers in the middle instead.
"""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from specref.models import TransformersModel


class EarlyExit(TransformersModel):
    """A language model made of a Llama-like model's first `layers` layers, its final norm and its LM head, sharing weights.

    model: a causal language model of transformers whose decoder (`model.model`) has `layers` and `norm`. Drafts from it are
    drawn by `ModelDrafter(EarlyExit(model, 2))` and have their own law q, so the ratio rule applies; `GreedyDrafter` chooses.
    It keeps a key-value cache of its own; an engine would share the first layers' cache with the target, which saves time and
    changes nothing else.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = dict(vocab_size=8, hidden_size=8, intermediate_size=8, num_attention_heads=2, num_hidden_layers=3)
    >>> target = LlamaForCausalLM(LlamaConfig(**sizes))
    >>> draft_model = EarlyExit(target, layers=1)
    >>> len(draft_model.model.model.layers), draft_model.model.lm_head is target.lm_head, len(target.model.layers)
    (1, True, 3)

    Raises ValueError if the model is not built that way, or does not have more than `layers` layers.
    """

    def __init__(self, model: Any, layers: int) -> None:
        decoder: Any = getattr(model, "model", None)
        if not isinstance(getattr(decoder, "layers", None), nn.ModuleList) or not hasattr(decoder, "norm"):
            raise ValueError(f"{type(model).__name__} has no model.layers and model.norm, so it cannot be left early")
        whole = len(decoder.layers)
        if not 1 <= layers < whole:
            raise ValueError(f"leaving after {layers} of {whole} layers: give 1 to {whole - 1}, so that the draft is cheaper")
        config = copy.deepcopy(model.config)
        config.num_hidden_layers = layers
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[:layers]
        early = _with_own_module_table(model)
        early.model = _with_own_module_table(decoder)
        early.model.layers = nn.ModuleList(list(decoder.layers)[:layers])
        early.config = early.model.config = config
        super().__init__(early)


def _with_own_module_table(module: nn.Module) -> Any:
    """A copy of `module` that shares its submodules and parameters but can be given others."""
    copied = copy.copy(module)
    copied._modules = dict(module._modules)
    return copied
