"""SGLang's `build_tree_kernel_efficient` as a builder of tree inputs.

As documented in sglang 0.5.23 (`sglang/kernels/ops/speculative/tree.py`, `sglang/srt/speculative/eagle_utils.py`): drafting
leaves a beam of `topk` nodes at every level, each with `topk` candidates. Candidates are numbered level by level;
`selected_index` int64 `[B, N-1]` holds the numbers of those that are in the tree, and `parent_list` int64 `[B, topk (depth -
1) + 1]` the number of the candidate that each beam node is (the root's place is not read). Written are a flat mask, whose
prefix part the caller has filled, the positions `[B N]`, and each node's place, first child and next sibling `[B, N]`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conformance.components import Ints, Mask, TreeInputs
from specref.tree import TokenTree

FULL_MASK = 0
"""The mode in which the mask has columns for the prefix too."""


def as_beams(tree: TokenTree) -> tuple[int, list[int], list[int]]:
    """The tree as drafting would have left it: topk, the list of parents, and the numbers of the nodes.

    >>> as_beams(TokenTree([7, 1, 2, 3], parents=[-1, 0, 0, 2]))                     # the second child has a child
    (2, [-1, 1, -1], [0, 1, 2])
    """
    depth = max(1, *tree.depths)
    nodes = range(1, len(tree))
    inner = [[node for node in nodes if tree.depths[node] == level and tree.children(node)] for level in range(depth)]
    topk = max(1, *map(len, inner), *(len(tree.children(node)) for node in range(len(tree))))
    beam_of = {0: 0}
    for level in range(1, depth):
        beam_of |= {node: 1 + (level - 1) * topk + place for place, node in enumerate(inner[level])}
    number = {child: beam * topk + rank for node, beam in beam_of.items() for rank, child in enumerate(tree.children(node))}
    parent_list = [-1] * (topk * (depth - 1) + 1)
    for node, beam in beam_of.items():
        if node:
            parent_list[beam] = number[node]
    return topk, parent_list, [number[node] for node in nodes]


class Inputs:
    """Mask and positions, as they are written. A request with a longer prefix stands before ours in the batch."""

    name = "build_tree_kernel_efficient"

    def __init__(self, function: Callable[..., Any], device: str) -> None:
        self._function, self._device = function, device

    def build(self, prefix: int, tokens: Sequence[int], parents: Sequence[int]) -> TreeInputs:
        """See `MaskBuilder.build`."""
        mask, positions, _ = self.built(prefix, TokenTree(tokens, parents))
        return TreeInputs(mask, positions, np.array(tokens))

    def built(self, prefix: int, tree: TokenTree) -> tuple[Mask, Ints, tuple[Tensor, Tensor, Tensor]]:
        """Mask `[N, prefix + N]` and positions `[N]` of our request, and the links `[2, N]` of both."""
        N, before = len(tree), prefix + 1
        topk, parent_list, numbers = as_beams(tree)
        mask = torch.ones(N * (before + N) + N * (prefix + N), dtype=torch.bool, device=self._device)
        positions = torch.zeros(2 * N, dtype=torch.int64, device=self._device)
        places, first_child, next_sibling = torch.full((3, 2, N), -1, dtype=torch.int64, device=self._device)
        given = (self._ints([parent_list] * 2), self._ints([numbers] * 2), self._ints([before, prefix]))
        written = mask, positions, places, first_child, next_sibling
        self._function(*given, *written, topk, max(1, *tree.depths), N, FULL_MASK)
        ours = mask.cpu().numpy()[N * (before + N) :].reshape(N, prefix + N)
        return ours, positions.cpu().numpy()[N:], (places.cpu(), first_child.cpu(), next_sibling.cpu())

    def _ints(self, numbers: object) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int64, device=self._device)


class Links(Inputs):
    """Mask and positions of the tree that the links describe: a wrong link shows as a node that sees another path."""

    name = "build_tree_kernel_efficient, what its links say"

    def build(self, prefix: int, tokens: Sequence[int], parents: Sequence[int]) -> TreeInputs:
        """See `MaskBuilder.build`. Raises ValueError where the nodes' places in the batch are not their own."""
        N = len(tokens)
        _, _, (places, first_child, next_sibling) = self.built(prefix, TokenTree(tokens, parents))
        if places.flatten().tolist() != list(range(2 * N)):
            raise ValueError(f"the nodes' places in the batch are {places.tolist()}; each of the two trees has {N}")
        seen, depths = np.eye(N, dtype=bool), np.zeros(N, dtype=np.int64)
        for node in range(N):
            child = int(first_child[1, node])
            for _ in range(N):  # links that run in a circle end here too
                if not 0 <= child < N:
                    break
                seen[child], depths[child] = seen[node] | np.eye(N, dtype=bool)[child], depths[node] + 1
                child = int(next_sibling[1, child])
        mask = np.concatenate([np.ones((N, prefix), bool), seen], axis=1)
        return TreeInputs(mask, prefix + depths, np.array(tokens))
