"""Train Medusa heads and EAGLE nets for the family's target, on the text that the target learned.

    python -m specref.pretrained.train_drafters --out DIR [--family DIR] [--only NAME]

writes DIR/medusa, DIR/eagle and DIR/eagle3, in the layouts that engines load. The target is frozen. The seed fixes data order
and initial weights; `specref.pretrained.measure_drafters` says whether they still do their job.
"""

from __future__ import annotations

import argparse
import copy
import math
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, PreTrainedModel

from specref.drafters import eagle
from specref.drafters.medusa import MedusaHeads
from specref.pretrained import drafter_names, path
from specref.pretrained.measure import load
from specref.pretrained.train import SEED, build_tokenizer, documents, encode, split, windows

HEADS = 4
DRAFT_VOCABULARY = 96  # of the target's 114 tokens, the most frequent ones: enough to leave some out
TRAINING = {"medusa": (300, 256), "eagle": (400, 128), "eagle3": (400, 128)}
"""Steps, and tokens of each row of a step: nets cost more than heads, so their rows are half as long."""


class Read:
    """What the frozen target says about `tokens [B, L]`: logits `[B, L, V]`, and the states that enter its layers."""

    def __init__(self, target: PreTrainedModel, tokens: Tensor) -> None:
        with torch.no_grad():
            out = target(input_ids=tokens, use_cache=False, output_hidden_states=True)
        self.tokens, self.logits, self.states = tokens, out.logits, out.hidden_states

    def features(self, layers: tuple[int, ...]) -> Tensor:
        """The features of these layers, side by side `[B, L, len(layers) d]`."""
        return torch.cat([self.states[layer] for layer in layers], dim=-1)


Loss = Callable[[Read], Tensor]


def fit(net: nn.Module, loss_of: Loss, target: PreTrainedModel, encoded: list[list[int]], label: str, scale: float) -> None:
    """Train in place with AdamW: the learning rate rises to its peak over 50 steps, then falls to zero along a cosine.

    >>> target = load(path("target")).requires_grad_(False)
    >>> heads = untrained_medusa(target)
    >>> loss = lambda read: heads.losses(read.states[-1], read.tokens).sum()
    >>> fit(heads, loss, target, [[1, 40, 41, 2]], "medusa", scale=1 / 300)          # one step
    >>> heads.training
    False
    """
    rng = np.random.default_rng(SEED)
    steps, length = TRAINING[label]
    steps = round(steps * scale)
    optimizer = torch.optim.AdamW(net.parameters(), betas=(0.9, 0.98), weight_decay=0.1)
    began, recent = time.monotonic(), math.nan
    net.train()
    for step, tokens in enumerate(windows(encoded, steps, rng)):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min((step + 1) / 50, (1 + math.cos(math.pi * step / steps)) / 2)
        loss = loss_of(Read(target, tokens[:, : length + 1]))
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        recent = loss.item() if math.isnan(recent) else 0.95 * recent + 0.05 * loss.item()
        if (step + 1) % 50 == 0:
            print(f"{label}: step {step + 1} of {steps}, loss {recent:.4f}, {time.monotonic() - began:.0f} s", flush=True)
    net.eval()


def untrained_medusa(target: PreTrainedModel) -> MedusaHeads:
    """Heads that start as copies of the target's LM head.

    >>> len(untrained_medusa(load(path("target")))(torch.zeros(1, 3, 128)))
    4
    """
    return MedusaHeads.on(target, HEADS)


def one_layer(target: PreTrainedModel) -> LlamaConfig:
    """The shape of a draft net: one of the target's layers.

    >>> one_layer(load(path("target"))).num_hidden_layers
    1
    """
    config: LlamaConfig = copy.deepcopy(target.config)
    config.num_hidden_layers = 1
    return config


def untrained_eagle(target: PreTrainedModel) -> eagle.EagleNet:
    """An EAGLE-1 net with random weights; the seed fixes them.

    >>> untrained_eagle(load(path("target"))).feature_layers
    (4,)
    """
    torch.manual_seed(SEED)
    return eagle.EagleNet(target, one_layer(target))


def untrained_eagle3(target: PreTrainedModel, encoded: list[list[int]]) -> eagle.Eagle3Net:
    """An EAGLE-3 net with random weights over the most frequent tokens; the seed fixes them.

    >>> net = untrained_eagle3(load(path("target")), [list(range(114))])
    >>> len(net.d2t)
    96
    """
    torch.manual_seed(SEED)
    counts = Counter(token for ids in encoded for token in ids)
    frequent = sorted(token for token, _ in counts.most_common(DRAFT_VOCABULARY))
    return eagle.Eagle3Net(target, one_layer(target), frequent)


def train(name: str, target: PreTrainedModel, encoded: list[list[int]], out: Path, scale: float = 1.0) -> None:
    """Make one drafter and write it to `out / name`. `scale` multiplies the number of steps.

    >>> import tempfile
    >>> target = load(path("target")).requires_grad_(False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     train("medusa", target, [[1, 40, 41, 2]], Path(folder), scale=1 / 300)
    ...     (Path(folder) / "medusa").is_dir()
    True
    """
    whole = (target.config.num_hidden_layers,)
    if name == "medusa":
        heads = untrained_medusa(target)
        weights = 0.8 ** torch.arange(HEADS)
        fit(heads, lambda read: (weights * heads.losses(read.states[-1], read.tokens)).sum(), target, encoded, name, scale)
        heads.save(out / name)
    elif name == "eagle":
        net = untrained_eagle(target)
        fit(net, lambda read: net.loss(read.features(whole), read.tokens, classification=1.0), target, encoded, name, scale)
        eagle.save(net, out / name)
    else:
        net3 = untrained_eagle3(target, encoded)
        layers = net3.feature_layers
        fit(net3, lambda read: net3.loss(read.features(layers), read.tokens, read.logits), target, encoded, name, scale)
        eagle.save(net3, out / name)


def main() -> None:
    """The command line; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m specref.pretrained.train_drafters", description="Train the drafters.")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--family", type=Path, default=path("target").parent, help="folder that holds the target")
    parser.add_argument("--only", choices=drafter_names(), help="make this one only")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply the training steps (0.01 for a dry run)")
    options = parser.parse_args()

    tokenizer = build_tokenizer()
    training, _ = split(documents())
    encoded = [encode(tokenizer, text) for text in training]
    target = load(options.family / "target").requires_grad_(False)
    for name in [options.only] if options.only else drafter_names():
        train(name, target, encoded, options.out, options.scale)


if __name__ == "__main__":
    main()
