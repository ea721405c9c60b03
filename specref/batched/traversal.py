"""Traversal verification over a batch. p `[B, N, V]`, u `[B, N]`: column n-1 is ("accept", n), the last one ("emit",).

Every row walks its own tree, depth first: in each step all rows that still walk do one thing, either go down to the next child
or close the node they stand at, whose children have all been rejected. Each node is opened and closed at most once: 2N steps.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specref.batched.block import at_most_one
from specref.batched.drafts import Trees, VerifiedRows
from specref.batched.laws import accepts, picks, positive_part, residual, total
from specref.batched.masks import links


def traversal(p: Tensor, trees: Trees, u: Tensor) -> VerifiedRows:
    """Traversal verification: from the leaves up, keep the first path that its own number says yes to.

    p `[B, N, V]`, trees with laws `[B, N, V]`, u `[B, N]`. Source: Weng et al. 2505.12398; `specref.rules.tree.traversal`
    explains it.

    >>> p = torch.tensor([[[0.25, 0.75]] * 3])
    >>> laws = torch.full((1, 3, 2), 0.5)
    >>> trees = Trees(torch.tensor([[7, 0, 1]]), parents=torch.tensor([[-1, 0, 1]]), laws=laws)
    >>> traversal(p, trees, torch.tensor([[0.9, 0.7, 0.0]])).rows()                   # P of node 1 is 1/2, of node 2 3/4
    [Verified(accepted=2, next_token=0, path=(1, 2))]
    """
    x, status = trees.checked(p, u, with_laws=True)
    walk = _Walk(p, trees, x, u)
    for _ in range(2 * x.shape[1]):
        if not walk.step():
            break
    accepted, path = trees.path_to(walk.node)
    rows = torch.arange(len(x), device=x.device)
    return VerifiedRows.of(accepted, picks(walk.weights[rows, walk.node], u[:, -1]), status, path)


class _Walk:
    """Where each row stands, and for each of its open nodes the odds to keep it and what is left of the target's law there."""

    def __init__(self, p: Tensor, trees: Trees, x: Tensor, u: Tensor) -> None:
        self.p, self.q, self.x, self.u, self.parents = p, trees.laws, x, u, trees.parents
        first_child, self.next_sibling = links(self.parents, trees.meant)
        self.pending = first_child  # [B, N]: the child to try next at each node; -1 if there is none
        self.weights = p.clone()  # [B, N, V]
        self.kept, self.of = torch.ones_like(u), torch.ones_like(u)  # [B, N]
        self.node = torch.zeros_like(x[:, 0])
        self.walking = torch.ones_like(self.node, dtype=torch.bool)

    def step(self) -> bool:
        """One step of every row that still walks; False when none is left."""
        rows = self.walking.nonzero().squeeze(1)
        if not len(rows):
            return False
        node = self.node[rows]
        child = self.pending[rows, node]
        down = child >= 0
        self._descend(rows[down], node[down], child[down])
        self._close(rows[~down], node[~down])
        return True

    def _descend(self, rows: Tensor, node: Tensor, child: Tensor) -> None:
        """Open `child`: the odds to keep the path to it, and its target law scaled to them."""
        x = self.x[rows, child]
        kept, of = at_most_one(self.weights[rows, node, x], self.of[rows, node] * self.q[rows, child, x])
        self.kept[rows, child], self.of[rows, child] = kept, of
        self.weights[rows, child] = kept[:, None] * self.p[rows, child]
        self.pending[rows, node] = self.next_sibling[rows, child]
        self.node[rows] = child

    def _close(self, rows: Tensor, node: Tensor) -> None:
        """Keep a node that has no child left to try, if it is the root or its number says yes; else take it away."""
        root = node == 0
        column = (node - 1).clamp(min=0)  # the root asks for no number
        yes = root | accepts(self.kept[rows, node], self.of[rows, node], self.u[rows, column])
        self.walking[rows[yes]] = False
        rows, node = rows[~yes], node[~yes]
        parent = self.parents[rows, node]
        kept, of = self.kept[rows, parent], self.of[rows, parent]
        taken = of[:, None] * self.q[rows, node]
        before = self.weights[rows, parent]
        left = torch.where((parent == 0)[:, None], residual(before, taken), positive_part(before - taken))
        whole = total(left)
        self.weights[rows, parent] = left
        self.kept[rows, parent], self.of[rows, parent] = whole, whole + (of - kept)
        self.node[rows] = parent
