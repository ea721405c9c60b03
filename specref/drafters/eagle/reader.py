"""What a draft net has read: a stable part, made of the target's features alone, and behind it the guesses of this round.

The stable part holds the pairs (f_i, t_(i+1)) of the committed text. It grows when the target has committed more, from the
features that the target's own pass left behind, and never from guesses: those are dropped when the next round begins. (Keeping
them is a known fault: the output stays right, acceptance falls with every round.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import DynamicCache

from specref.drafters.eagle.net import DraftNet
from specref.laws import Law
from specref.models import Tokens, softmax
from specref.tree_attention import TreeTarget, keep_rows


class _Read(NamedTuple):
    """A drafted token that the net has read. row: its place behind the stable part; -1 is the last stable pair."""

    row: int
    guess: Tensor
    law: Law


class EagleReader:
    """The draft laws of `net` below a context, read as they are asked for; several at once cost one pass.

    target: the model that verifies, with the features that the net wants; draft and verify with the same one.

    >>> from specref.drafters.eagle.net import EagleNet
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> config = LlamaConfig(vocab_size=8, hidden_size=8, intermediate_size=8, num_attention_heads=2, num_hidden_layers=1)
    >>> target = TreeTarget(LlamaForCausalLM(config))
    >>> reader = EagleReader(EagleNet(target.model, config), target)
    >>> reader.begin((3, 1, 4))
    >>> reader.law(()).shape, len(reader.laws([(2,), (5,)]))        # after the context; after it and 2, after it and 5
    ((8,), 2)

    Raises ValueError if the target is another model than the net's, or keeps other features.
    """

    def __init__(self, net: DraftNet, target: TreeTarget) -> None:
        if target.model is not net.target:
            raise ValueError("the net drafts for another model: make it and the target from one")
        if target.layers != net.feature_layers:
            raise ValueError(
                f"the net reads the layers {net.feature_layers}: make TreeTarget(model, layers={net.feature_layers})"
            )
        self.net, self.target = net.eval(), target
        self._text: Tokens = ()  # its pairs are the stable part: one pair less than tokens
        self._guesses = torch.empty(0)  # one per stable pair
        self._cache = DynamicCache()
        self._read: dict[Tokens, _Read] = {}

    def begin(self, context: Tokens) -> None:
        """Drop this round's guesses, and make the stable part that of `context`, which must hold two tokens or more."""
        if len(context) < 2:
            raise ValueError(f"the context {context} has no pair of a feature and the token after it; give 2 tokens or more")
        kept = 0
        while kept < min(len(context), len(self._text)) and context[kept] == self._text[kept]:
            kept += 1
        stable = max(kept - 1, 0)
        if stable:
            keep_rows(self._cache, range(stable))
        else:
            self._cache = DynamicCache()
        features = self.target.features(context[:-1])[stable:]
        if len(features):
            seen = torch.ones(len(features), stable + len(features), dtype=torch.bool).tril(stable)
            positions = torch.arange(stable, stable + len(features))
            with torch.no_grad():
                guesses = self._forward(self.net.fused(features), context[stable + 1 :], positions, seen)
            self._guesses = torch.cat([self._guesses[:stable], guesses]) if stable else guesses
        self._guesses, self._text = self._guesses[: len(context) - 1], context
        self._read = {(): self._answer(-1, self._guesses[-1])}

    def law(self, drafted: Tokens) -> Law:
        """The law q `[V]` of the token after the context and `drafted`."""
        return self.laws([drafted])[0]

    def laws(self, paths: Sequence[Tokens]) -> list[Law]:
        """q after the context and each of `paths`; what lies above those that were not read yet is read first."""
        missing = list(dict.fromkeys(path for path in paths if path not in self._read))
        above = [path[:-1] for path in missing if path[:-1] not in self._read]
        if above:
            self.laws(above)
            return self.laws(paths)
        if missing:
            self._read_together(missing)
        return [self._read[path].law for path in paths]

    def _read_together(self, paths: list[Tokens]) -> None:
        """One pass over the last tokens of `paths`, each paired with the guess above it; it sees stable pairs and ancestors."""
        stable, read = len(self._text) - 1, len(self._read) - 1
        rows = {path: read + place for place, path in enumerate(paths)}
        seen = torch.zeros(len(paths), stable + read + len(paths), dtype=torch.bool)
        seen[:, :stable] = True
        for place, path in enumerate(paths):
            for length in range(1, len(path)):
                seen[place, stable + self._read[path[:length]].row] = True
            seen[place, stable + rows[path]] = True
        features = torch.stack([self._read[path[:-1]].guess for path in paths])
        positions = torch.tensor([stable + len(path) - 1 for path in paths])
        with torch.no_grad():
            guesses = self._forward(features, tuple(path[-1] for path in paths), positions, seen)
        for path, guess in zip(paths, guesses):
            self._read[path] = self._answer(rows[path], guess)

    def _forward(self, features: Tensor, tokens: Tokens, positions: Tensor, seen: Tensor) -> Tensor:
        """The guesses `[n, d]` for n pairs. seen `[n, cached + n]`."""
        device = features.device
        mask = torch.zeros(seen.shape, dtype=features.dtype).masked_fill(~seen, -torch.inf)[None, None].to(device)
        ids = torch.tensor([tokens], device=device)
        guesses: Tensor = self.net(features[None], ids, positions[None].to(device), mask, self._cache)
        return guesses[0]

    def _answer(self, row: int, guess: Tensor) -> _Read:
        with torch.no_grad():
            logits = self.net.logits(guess).double().cpu().numpy()
        return _Read(row, guess, softmax(logits))
