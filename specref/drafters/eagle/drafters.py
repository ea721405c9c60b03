"""The four ways to draft with an EAGLE net. All need a context of two tokens or more; after one they draft nothing.

| drafter | draft | lossless rules |
|---|---|---|
| `EagleDrafter` | a chain, drawn | `ratio`, `block` |
| `EagleDrawnTree` | a tree of fixed shape, siblings drawn without replacement (EAGLE-1) | `recursive_rejection`, `traversal` |
| `EagleRankedTree` | a tree of fixed ranks, chosen | `sequential_one_hot`, `target_only`, `greedy` |
| `EagleGrowingTree` | a tree that grows by confidence, chosen (EAGLE-2 and 3) | `sequential_one_hot`, `target_only`, `greedy` |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from specref.chance import Chance
from specref.draft import Draft
from specref.drafters.eagle.net import DraftNet
from specref.drafters.eagle.reader import EagleReader
from specref.drafters.eagle.trees import checked_choices, grown_tree, ranked_tree, within
from specref.laws import NO_LAW
from specref.models import Tokens
from specref.tree import TokenTree
from specref.tree_attention import TreeTarget


class EagleDrafter:
    """Draws a chain from the net's laws, for `specref.generate`.

    >>> from specref.chance import SampledChance
    >>> from specref.drafters.eagle.net import EagleNet
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> config = LlamaConfig(vocab_size=8, hidden_size=8, intermediate_size=8, num_attention_heads=2, num_hidden_layers=1)
    >>> target = TreeTarget(LlamaForCausalLM(config))
    >>> draft = EagleDrafter(EagleNet(target.model, config), target).draft((3, 1, 4), 3, SampledChance(0))
    >>> len(draft.tokens), draft.laws[0].shape
    (3, (8,))
    """

    def __init__(self, net: DraftNet, target: TreeTarget) -> None:
        self.reader = EagleReader(net, target)

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        """See `Drafter.draft`. Empty after a context of one token."""
        if len(context) < 2 or k < 1:
            return Draft.drawn(lambda so_far: NO_LAW, 0, chance)
        self.reader.begin(context)
        return Draft.drawn(self.reader.law, k, chance)


class _EagleTree(ABC):
    """A drafter of trees, for `specref.tree_generate`."""

    def __init__(self, net: DraftNet, target: TreeTarget) -> None:
        self.reader = EagleReader(net, target)

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        """See `Drafter.draft`; the tree is at most `k` deep. It is the root alone after a context of one token."""
        if len(context) < 2 or k < 1:
            return Draft.drawn_tree(lambda path: NO_LAW, context[-1], [-1], chance, replacement=False)
        self.reader.begin(context)
        return self._below(context[-1], k, chance)

    @abstractmethod
    def _below(self, root: int, k: int, chance: Chance) -> Draft: ...


class EagleDrawnTree(_EagleTree):
    """Draws a tree of the shape `parents [N]`, siblings without replacement. Source: 2401.15077, section 3.3.

    >>> from specref.chance import SampledChance
    >>> from specref.drafters.eagle.net import EagleNet
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> config = LlamaConfig(vocab_size=8, hidden_size=8, intermediate_size=8, num_attention_heads=2, num_hidden_layers=1)
    >>> target = TreeTarget(LlamaForCausalLM(config))
    >>> drafter = EagleDrawnTree(EagleNet(target.model, config), target, parents=[-1, 0, 0, 1])
    >>> draft = drafter.draft((3, 1, 4), 2, SampledChance(0))
    >>> draft.tree.parents, draft.has_laws
    ((-1, 0, 0, 1), True)

    Raises BadTree for parents that are no tree.
    """

    def __init__(self, net: DraftNet, target: TreeTarget, parents: Sequence[int]) -> None:
        super().__init__(net, target)
        self.parents = TokenTree([0] * len(parents), parents).parents

    def _below(self, root: int, k: int, chance: Chance) -> Draft:
        return Draft.drawn_tree(self.reader.law, root, within(self.parents, k), chance, replacement=False)


class EagleRankedTree(_EagleTree):
    """Drafts the most probable tokens in a tree of `choices`, as `ranked_tree`.

    >>> from specref.chance import SampledChance
    >>> from specref.drafters.eagle.net import EagleNet
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> config = LlamaConfig(vocab_size=8, hidden_size=8, intermediate_size=8, num_attention_heads=2, num_hidden_layers=1)
    >>> target = TreeTarget(LlamaForCausalLM(config))
    >>> drafter = EagleRankedTree(EagleNet(target.model, config), target, choices=[(0,), (1,), (0, 0)])
    >>> drafter.draft((3, 1, 4), 2, SampledChance(0)).tree.parents
    (-1, 0, 0, 1)

    Raises BadTree for choices that are no tree.
    """

    def __init__(self, net: DraftNet, target: TreeTarget, choices: Sequence[Sequence[int]]) -> None:
        super().__init__(net, target)
        self.choices = checked_choices(choices)

    def _below(self, root: int, k: int, chance: Chance) -> Draft:
        shallow = [choice for choice in self.choices if len(choice) <= k]
        tree = ranked_tree(root, self.reader.laws, shallow)
        return Draft.chosen(tree.tokens, tree)


class EagleGrowingTree(_EagleTree):
    """Drafts a tree of at most `nodes` drafted tokens that grows by confidence, as `grown_tree`; defaults as published.

    >>> from specref.chance import SampledChance
    >>> from specref.drafters.eagle.net import EagleNet
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> config = LlamaConfig(vocab_size=8, hidden_size=8, intermediate_size=8, num_attention_heads=2, num_hidden_layers=1)
    >>> target = TreeTarget(LlamaForCausalLM(config))
    >>> drafter = EagleGrowingTree(EagleNet(target.model, config), target, top_k=3, nodes=8)
    >>> len(drafter.draft((3, 1, 4), 2, SampledChance(0)).tree)
    9

    Raises ValueError for a top_k or a number of nodes below 1.
    """

    def __init__(self, net: DraftNet, target: TreeTarget, top_k: int = 10, nodes: int = 59) -> None:
        super().__init__(net, target)
        if top_k < 1 or nodes < 1:
            raise ValueError(f"top_k is {top_k} and nodes is {nodes}; both must be 1 or more")
        self.top_k, self.nodes = top_k, nodes

    def _below(self, root: int, k: int, chance: Chance) -> Draft:
        tree = grown_tree(root, self.reader.laws, k, self.top_k, self.nodes)
        return Draft.chosen(tree.tokens, tree)
