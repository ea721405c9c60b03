"""Medusa: extra heads on the target's last hidden state, each guessing one place further ahead, and a tree of their guesses.

    h        = the target's hidden state after token t, the one its LM head is given
    LM head  -> the law of token t + 1                 (the base's own answer: in a round it is already the root of the tree)
    head i   -> a guess at token t + 1 + i             i = 1, 2, ..: i places after the token that the LM head predicts

The heads look at h alone, not at one another's guesses, so any combination of their best tokens can be drafted; `choices`
say which. Two shapes are published, both ending in a linear layer of their own: `residual`, x + SiLU(W x), in the paper's code;
`plain`, SiLU(W x), in other texts. Source: Cai et al. 2401.10774, sections 2.1 and 2.2.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from specref.chance import Chance
from specref.draft import Draft
from specref.models import Tokens
from specref.tree import TokenTree
from specref.tree_attention import TreeTarget

Shape = Literal["residual", "plain"]


class MedusaHeads(nn.Module):
    """`heads` heads over hidden states of width d and V tokens, to train on a frozen target.

    shape: "residual" or "plain" (see the module). Called with hidden states `[.., d]` they answer with logits
    `[heads, .., V]`: row i - 1 is head i's.

    >>> heads = MedusaHeads(8, 5, heads=2)
    >>> heads(torch.zeros(3, 8)).shape
    torch.Size([2, 3, 5])

    Raises ValueError for a shape that is not published, or fewer than 1 head.
    """

    def __init__(self, hidden_size: int, vocabulary: int, heads: int = 4, shape: Shape = "residual") -> None:
        super().__init__()
        if shape not in get_args(Shape):
            raise ValueError(f"no shape of heads is called {shape!r}; there are {', '.join(get_args(Shape))}")
        if heads < 1:
            raise ValueError(f"there are {heads} heads; give 1 or more")
        self.shape = shape
        self.blocks: Any = nn.ModuleList(_Block(hidden_size, residual=shape == "residual") for _ in range(heads))
        self.lm_heads: Any = nn.ModuleList(nn.Linear(hidden_size, vocabulary, bias=False) for _ in range(heads))

    @classmethod
    def on(cls, model: Any, heads: int = 4, shape: Shape = "residual") -> MedusaHeads:
        """Untrained heads for a causal language model of transformers, each starting from a copy of the model's LM head.

        Residual blocks start as the identity, so that at first every head answers what the LM head answers (section 2.2.1).

        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> sizes = dict(vocab_size=5, hidden_size=8, intermediate_size=8, num_attention_heads=2, num_hidden_layers=1)
        >>> model = LlamaForCausalLM(LlamaConfig(**sizes))
        >>> hidden = torch.randn(8)
        >>> torch.equal(MedusaHeads.on(model, heads=1)(hidden)[0], model.lm_head(hidden))
        True
        """
        own = model.get_output_embeddings().weight
        made = cls(own.shape[1], own.shape[0], heads, shape).to(dtype=own.dtype, device=own.device)
        with torch.no_grad():
            for block, lm_head in zip(made.blocks, made.lm_heads):
                lm_head.weight.copy_(own)
                if shape == "residual":
                    block.layers[0].weight.zero_()
                    block.layers[0].bias.zero_()
        return made

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits `[heads, .., V]` from hidden states `[.., d]`."""
        return torch.stack([lm_head(block(hidden)) for block, lm_head in zip(self.blocks, self.lm_heads)])

    def losses(self, hidden: Tensor, tokens: Tensor) -> Tensor:
        """The mean cross-entropy `[heads]` of each head in nats. Source: section 2.2.1, which adds them with weights 0.8^i.

        hidden `[B, L, d]`: the frozen target's states after each of `tokens [B, L]`. Head i at place t is asked for
        tokens[t + 1 + i]. Raises ValueError for rows too short to ask the last head.

        >>> heads = MedusaHeads(8, 5, heads=2)
        >>> with torch.no_grad():
        ...     _ = [lm_head.weight.zero_() for lm_head in heads.lm_heads]
        >>> heads.losses(torch.randn(1, 6, 8), torch.tensor([[0, 1, 2, 3, 4, 0]])).exp().tolist()
        [5.0, 5.0]
        """
        length, heads = tokens.shape[1], len(self.blocks)
        if length < heads + 2:
            raise ValueError(f"rows of {length} tokens are too short to train {heads} heads; give {heads + 2} or more")
        losses = []
        for i, logits in enumerate(self(hidden), start=1):
            asked, answer = logits[:, : length - 1 - i], tokens[:, 1 + i :]
            losses.append(nn.functional.cross_entropy(asked.flatten(0, 1), answer.flatten()))
        return torch.stack(losses)

    @torch.no_grad()
    def accuracy(self, hidden: Tensor, tokens: Tensor, ranks: int) -> list[list[float]]:
        """`[heads, ranks]`: how often the token of that rank (0 the best) of each head was the right one.

        hidden `[B, L, d]`, tokens `[B, L]` as for `losses`. This is what `best_choices` needs.

        >>> heads = MedusaHeads(8, 5, heads=1)
        >>> round(sum(heads.accuracy(torch.randn(1, 6, 8), torch.tensor([[0, 1, 2, 3, 4, 0]]), ranks=5)[0]), 6)
        1.0
        """
        shares = []
        for i, logits in enumerate(self(hidden), start=1):
            best = logits[:, : tokens.shape[1] - 1 - i].topk(ranks, dim=-1).indices
            shares.append((best == tokens[:, 1 + i :, None]).double().mean(dim=(0, 1)).tolist())
        return shares

    def save(self, folder: Path) -> None:
        """Write config.json and model.safetensors, the layout that vLLM loads as a `MedusaModel`.

        Raises ValueError for plain heads: no engine knows a file layout for them.
        """
        if self.shape != "residual":
            raise ValueError(f"heads of shape {self.shape!r} have no published file layout; save residual ones")
        vocabulary, hidden_size = self.lm_heads[0].weight.shape
        config = {
            "architectures": ["MedusaModel"],
            "model_type": "medusa",
            "hidden_size": hidden_size,
            "vocab_size": vocabulary,
            "medusa_num_heads": len(self.blocks),
            "medusa_num_layers": 1,
            "medusa_fc_bias": True,
            "dtype": str(self.lm_heads[0].weight.dtype).removeprefix("torch."),
        }
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        save_file({name: weight.contiguous() for name, weight in self.state_dict().items()}, folder / "model.safetensors")

    @classmethod
    def load(cls, folder: Path) -> MedusaHeads:
        """Read what `save` wrote.

        >>> import tempfile
        >>> heads = MedusaHeads(8, 5, heads=2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     heads.save(Path(folder))
        ...     again = MedusaHeads.load(Path(folder))
        >>> hidden = torch.randn(8)
        >>> torch.equal(again(hidden), heads(hidden))
        True
        """
        config = json.loads((folder / "config.json").read_text())
        heads = cls(config["hidden_size"], config["vocab_size"], config["medusa_num_heads"])
        weights = load_file(folder / "model.safetensors")
        heads.load_state_dict(weights)
        return heads.to(dtype=weights["lm_heads.0.weight"].dtype).eval()


class MedusaDrafter:
    """Drafts a chain: the best token of head 1, of head 2, .. They are chosen, so verify them as one-hot, greedily, or by
    token matching. The target is read once per token: draft and verify with the same `target`.

    >>> from specref.chance import SampledChance
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = dict(vocab_size=8, hidden_size=8, intermediate_size=8, num_attention_heads=2, num_hidden_layers=1)
    >>> target = TreeTarget(LlamaForCausalLM(LlamaConfig(**sizes)))
    >>> drafter = MedusaDrafter(MedusaHeads.on(target.model, heads=3), target)
    >>> len(drafter.draft((1, 5), 2, SampledChance(0)).tokens), len(drafter.draft((1, 5), 9, SampledChance(0)).tokens)
    (2, 3)
    """

    def __init__(self, heads: MedusaHeads, target: TreeTarget) -> None:
        self.heads, self.target = heads, _whole(target)

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        """See `Drafter.draft`. Empty after a context of one token, where the target has no hidden state yet."""
        if len(context) < 2 or k < 1:
            return Draft.chosen(())
        return Draft.chosen([best[0] for best in candidates(self.heads, self.target, context, top_k=1)[:k]])


class MedusaTreeDrafter:
    """Drafts the tree of `choices`: (0, 2) is the third best token of head 2 below the best token of head 1.

    Siblings are distinct and chosen, so `sequential_one_hot` and `greedy` verify the tree losslessly; `typical` is Medusa's own
    rule, which is lossy. Draft and verify with the same `target`.

    >>> from specref.chance import SampledChance
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = dict(vocab_size=8, hidden_size=8, intermediate_size=8, num_attention_heads=2, num_hidden_layers=1)
    >>> target = TreeTarget(LlamaForCausalLM(LlamaConfig(**sizes)))
    >>> drafter = MedusaTreeDrafter(MedusaHeads.on(target.model, heads=2), target, choices=[(0,), (1,), (0, 0), (0, 1)])
    >>> drafter.draft((1, 5), 2, SampledChance(0)).tree.parents
    (-1, 0, 0, 1, 1)

    Raises BadTree for choices that are no tree or ask for more heads than there are, ValueError for a target whose features are
    not what its LM head is given.
    """

    def __init__(self, heads: MedusaHeads, target: TreeTarget, choices: Sequence[Sequence[int]]) -> None:
        self.heads, self.target, self.choices = heads, _whole(target), [tuple(choice) for choice in choices]
        self._top_k = 1 + max((rank for choice in self.choices for rank in choice), default=0)
        TokenTree.from_ranks(0, self.choices, [range(min(self._top_k, target.vocabulary))] * len(heads.blocks))

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        """See `Drafter.draft`; the tree is at most `k` deep. It is the root alone after a context of one token."""
        shallow = [choice for choice in self.choices if len(choice) <= k and len(context) > 1]
        best = candidates(self.heads, self.target, context, self._top_k) if shallow else []
        tree = TokenTree.from_ranks(context[-1], shallow, best)
        return Draft.chosen(tree.tokens, tree)


@torch.no_grad()
def candidates(heads: MedusaHeads, target: TreeTarget, context: Tokens, top_k: int) -> list[list[int]]:
    """`[heads, top_k]`: the best tokens of each head for the places after `context`, the most probable first.

    The last token of the context is what the LM head predicted, so the heads read the hidden state before it.

    >>> from specref import pretrained
    >>> target = TreeTarget.load(pretrained.path("target"))
    >>> heads = MedusaHeads.load(pretrained.path("medusa"))
    >>> [len(tokens) for tokens in candidates(heads, target, (1, 20, 30), top_k=3)]
    [3, 3, 3, 3]
    """
    best: list[list[int]] = heads(target.features(context[:-1])[-1]).topk(top_k, dim=-1).indices.tolist()
    return best


def best_choices(accuracy: Sequence[Sequence[float]], nodes: int) -> list[tuple[int, ...]]:
    """The `nodes` choices that accept most tokens if heads are right independently: those likeliest to be right as a whole.

    accuracy `[heads, ranks]`: how often the token of that rank of head i is right. A choice is right if all its ranks are; a
    parent is never less likely than its child, so the likeliest choices make a tree. Source: Cai et al. 2401.10774, 2.3.3.

    >>> best_choices([[0.6, 0.2], [0.5, 0.1]], nodes=4)
    [(0,), (0, 0), (1,), (1, 0)]

    Raises ValueError for an accuracy outside [0, 1].
    """
    for head, row in enumerate(accuracy, start=1):
        if not all(0 <= right <= 1 for right in row):
            raise ValueError(f"the accuracies of head {head} are {list(row)}; each must lie between 0 and 1")
    level: list[tuple[float, tuple[int, ...]]] = [(1.0, ())]
    found: list[tuple[float, tuple[int, ...]]] = []
    for row in accuracy:
        longer = [(value * right, (*choice, rank)) for value, choice in level for rank, right in enumerate(row)]
        level = sorted(longer, key=lambda entry: -entry[0])[:nodes]
        found += level
    return [choice for _, choice in sorted(found, key=lambda entry: -entry[0])[:nodes]]


def _whole(target: TreeTarget) -> TreeTarget:
    layers = target.model.config.get_text_config().num_hidden_layers
    if target.layers != (layers,):
        raise ValueError(f"Medusa's heads read what the LM head is given, layer {layers}, not layers {target.layers}")
    return target


class _Block(nn.Module):
    """SiLU(W x), added to x in the residual shape."""

    def __init__(self, width: int, residual: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width)])
        self.residual = residual

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = nn.functional.silu(self.layers[0](x))
        return x + made if self.residual else made
