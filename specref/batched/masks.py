"""What attention over flattened token trees needs, from parents alone: masks, positions, and links between nodes.

parents int64 `[B, N]`: -1 for the root (node 0), and every other parent precedes its child. meant bool `[B, N]`: which nodes
are not padding (None: all). The same as `TokenTree.ancestor_mask`, `.depths`, `.position_ids`, `.children`, for rows at once.
"""

from __future__ import annotations

import torch
from torch import Tensor


def ancestor_mask(parents: Tensor, meant: Tensor | None = None) -> Tensor:
    """bool `[B, N, N]`: whether node i (row) sees node j (column): j is i or one of its ancestors. Padding sees nothing.

    Source: Cai et al. 2401.10774 (Medusa), section 2.1.2; Miao et al. 2305.09781 (SpecInfer), section 4.2.

    >>> ancestor_mask(torch.tensor([[-1, 0, 0, 2]])).int()
    tensor([[[1, 0, 0, 0],
             [1, 1, 0, 0],
             [1, 0, 1, 0],
             [1, 0, 1, 1]]], dtype=torch.int32)
    """
    B, N = parents.shape
    mask = torch.eye(N, dtype=torch.bool, device=parents.device).repeat(B, 1, 1)
    rows = torch.arange(B, device=parents.device)
    for n in range(1, N):
        mask[:, n] |= mask[rows, parents[:, n].clamp(min=0)]
    return mask if meant is None else mask & meant[:, :, None]


def depths(parents: Tensor, meant: Tensor | None = None) -> Tensor:
    """int64 `[B, N]`: how many tokens each node is below the root; 0 for padding.

    >>> depths(torch.tensor([[-1, 0, 0, 2]]))
    tensor([[0, 1, 1, 2]])
    """
    depth = torch.zeros_like(parents)
    for n in range(1, parents.shape[1]):
        depth[:, n] = depth.gather(1, parents[:, n : n + 1].clamp(min=0))[:, 0] + 1
    return depth if meant is None else depth.where(meant, 0)


def position_ids(parents: Tensor, root: Tensor, meant: Tensor | None = None) -> Tensor:
    """int64 `[B, N]`: the position of each node, its depth after the position `root [B]` of its tree's root.

    >>> position_ids(torch.tensor([[-1, 0, 0, 2]]), root=torch.tensor([10]))
    tensor([[10, 11, 11, 12]])
    """
    return root[:, None] + depths(parents, meant)


def links(parents: Tensor, meant: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The first child and the next sibling of each node, int64 `[B, N]` each; -1 where there is none.

    >>> links(torch.tensor([[-1, 0, 0, 2]]))
    (tensor([[ 1, -1,  3, -1]]), tensor([[-1,  2, -1, -1]]))
    """
    B, N = parents.shape
    rows = torch.arange(B, device=parents.device)
    first_child, next_sibling = torch.full_like(parents, -1), torch.full_like(parents, -1)
    for n in range(N - 1, 0, -1):  # from the back: what a parent's first child was so far is this node's next sibling
        parent = parents[:, n].clamp(min=0)
        used = torch.ones_like(parent, dtype=torch.bool) if meant is None else meant[:, n]
        elder = first_child[rows, parent]
        next_sibling[:, n] = torch.where(used, elder, -1)
        first_child[rows, parent] = torch.where(used, n, elder)
    return first_child, next_sibling
