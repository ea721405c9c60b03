"""The one pass of a round: window and guesses as one token tree, and a target that answers for every node of it at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from specref.drafters.lookahead.window import Window
from specref.laws import Law
from specref.models import BadModel, LanguageModel, Tokens, TransformersModel, softmax
from specref.tree import TokenTree


class Step:
    """One pass: the window, level by level, and after it the guesses, one by one, flattened into one token tree.

    tree: T nodes; its `ancestor_mask()` `[T, T]` is the combined attention mask, its `position_ids` are the positions.
    newest: the nodes `[C]` of the window's last level. guessed: the tree `[M]` of the guesses alone, what they have in common
    once, with siblings that are all different. nodes: where the M nodes of `guessed` stand in `tree`.

    >>> from specref.tree import mask_grid
    >>> step = Step(window=((7, 1, 2), (3, 4, 5)), guesses=[(3, 8), (3, 9)])
    >>> print(mask_grid(step.tree.ancestor_mask()))
    x . . . . . . . . .
    x x . . . . . . . .
    x x x . . . . . . .
    x . . x . . . . . .
    x x . . x . . . . .
    x x x . . x . . . .
    x . . . . . x . . .
    x . . . . . x x . .
    x . . . . . . . x .
    x . . . . . . . x x
    >>> step.tree.position_ids(root=10)
    (10, 11, 12, 11, 12, 13, 11, 12, 11, 12)
    >>> list(step.newest), step.guessed, step.nodes
    ([3, 4, 5], TokenTree(tokens=(7, 3, 8, 9), parents=(-1, 0, 1, 1)), (0, 6, 7, 9))
    """

    def __init__(self, window: Window, guesses: Sequence[Tokens]) -> None:
        columns = len(window[0])
        tokens = [token for level in window for token in level]
        parents = [*range(-1, columns - 1), *range(len(tokens) - columns)]
        self.newest = range(len(tokens) - columns, len(tokens))
        node_of: dict[Tokens, int] = {(): 0}
        for guess in guesses:
            parent = 0
            for length, token in enumerate(guess, start=1):
                parents.append(parent)
                parent = len(tokens)
                tokens.append(token)
                node_of.setdefault(guess[:length], parent)
        self.tree = TokenTree(tokens, parents)
        self.guessed = TokenTree.from_paths(tokens[0], guesses)
        self.nodes = tuple(node_of[self.guessed.spells(node)] for node in range(len(self.guessed)))


def laws_on_tree(target: LanguageModel, context: Tokens, tree: TokenTree) -> list[Law]:
    """The target's laws `[N, V]` after each node of `tree`, whose root is the last token of `context`.

    A transformers model answers all of them in one pass, any other model path by path.

    >>> from specref.models import TableModel
    >>> target = TableModel(3, seed=1)
    >>> laws = laws_on_tree(target, (0, 2), TokenTree([2, 1, 0], parents=[-1, 0, 0]))
    >>> bool((laws[2] == target.next_law((0, 2, 0))).all())
    True
    """
    if isinstance(target, TransformersModel):
        return list(softmax(logits_on_tree(target.model, context, tree)))
    return [target.next_law(context + tree.spells(node)) for node in range(len(tree))]


def logits_on_tree(model: Any, context: Tokens, tree: TokenTree) -> npt.NDArray[np.float64]:
    """Float64 logits `[N, V]` after each node of `tree`, in one pass of a transformers `model` with full attention.

    The model reads the context before its last token causally, then the tree: each node sees that context and its ancestors
    (a 4-D mask), and stands at the position of its depth. Equal to reading each node's path alone, without a cache.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = dict(vocab_size=8, hidden_size=8, intermediate_size=8, num_attention_heads=2, num_hidden_layers=1)
    >>> model = LlamaForCausalLM(LlamaConfig(**sizes)).double().eval()
    >>> logits_on_tree(model, (5, 2), TokenTree([2, 1, 0], parents=[-1, 0, 0])).shape
    (3, 8)

    Raises ValueError if the tree's root is not the last token of the context, BadModel for logits that are not finite.
    """
    if not context or context[-1] != tree.tokens[0]:
        raise ValueError(f"the tree's root {tree.tokens[0]} must be the last token of the context, which ends {context[-1:]}")
    known, nodes = len(context) - 1, len(tree)
    seen = np.tri(known + nodes, dtype=np.bool_)
    seen[known:, known:] = tree.ancestor_mask()
    mask = torch.zeros(seen.shape, dtype=model.dtype).masked_fill(torch.from_numpy(~seen), torch.finfo(model.dtype).min)
    positions = [*range(known), *tree.position_ids(root=known)]
    with torch.inference_mode():
        logits = model(
            input_ids=torch.tensor([[*context[:-1], *tree.tokens]], device=model.device),
            attention_mask=mask[None, None].to(model.device),
            position_ids=torch.tensor([positions], device=model.device),
            use_cache=False,
        ).logits
    rows: npt.NDArray[np.float64] = logits[0, known:].double().cpu().numpy()
    if not np.isfinite(rows).all():
        raise BadModel(f"the model gave logits that are not finite on a tree of {nodes} nodes after {known} tokens")
    return rows
