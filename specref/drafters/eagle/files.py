"""Draft nets as folders that vLLM loads: model.safetensors, and config.json, which transformers reads as a Llama's.

    EagleNet     EagleLlamaForCausalLM     fc, layers.N
    Eagle3Net    LlamaForCausalLMEagle3    fc, midlayer, norm, lm_head, d2t, t2d

Embeddings, and EAGLE-1's LM head, are the target's and not in the file. `eagle_aux_hidden_state_layer_ids` says which layers
EAGLE-3 reads (the state that enters layer i); engines take layers 2, L//2 and L - 3 where it is missing.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig

from specref.drafters.eagle.net import DraftNet, Eagle3Net, EagleNet

_EAGLE, _EAGLE3 = "EagleLlamaForCausalLM", "LlamaForCausalLMEagle3"


def save(net: DraftNet, folder: Path) -> None:
    """Write the net to `folder`.

    >>> import tempfile
    >>> from transformers import LlamaForCausalLM
    >>> config = LlamaConfig(vocab_size=8, hidden_size=8, intermediate_size=8, num_attention_heads=2, num_hidden_layers=4)
    >>> target = LlamaForCausalLM(config)
    >>> net = Eagle3Net(target, config, drafted=[1, 2, 5])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(net, Path(folder))
    ...     again = load(Path(folder), target)
    >>> again.d2t.tolist(), again.feature_layers
    ([1, 1, 3], (1, 2, 3))
    """
    config = copy.deepcopy(net.config)
    config.dtype = net.target.dtype
    if isinstance(net, Eagle3Net):
        config.architectures = [_EAGLE3]
        config.num_hidden_layers = 1
        config.draft_vocab_size = len(net.d2t)
        config.norm_before_residual = False
        config.eagle_aux_hidden_state_layer_ids = list(net.feature_layers)
    else:
        config.architectures = [_EAGLE]
        config.bias = False  # of fc
    folder.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(folder)
    save_file({name: weight.contiguous() for name, weight in net.state_dict().items()}, folder / "model.safetensors")


def load(folder: Path, target: Any) -> DraftNet:
    """The net in `folder`, for `target`, the causal language model that it drafts for.

    >>> from specref import pretrained
    >>> from specref.models import TransformersModel
    >>> type(load(pretrained.path("eagle3"), TransformersModel.load(pretrained.path("target")).model)).__name__
    'Eagle3Net'

    Raises ValueError for a folder of another architecture or a target of another width or vocabulary.
    """
    config = LlamaConfig.from_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    net: DraftNet
    if config.architectures == [_EAGLE]:
        net = EagleNet(target, config)
    elif config.architectures == [_EAGLE3]:
        drafted = weights["d2t"] + torch.arange(len(weights["d2t"]))
        net = Eagle3Net(target, config, drafted.tolist(), config.eagle_aux_hidden_state_layer_ids)
    else:
        raise ValueError(f"{folder} holds {config.architectures}, not {_EAGLE} or {_EAGLE3}")
    net.load_state_dict(weights)
    return net.eval()
