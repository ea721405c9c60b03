"""Tree rules over a batch. p `[B, N, V]`: the target's law after each node; u `[B, N]`: the random numbers.

Column n-1 of u is the slot ("accept", n) of node n, the last column is ("emit",). All are functions
`rule(p, trees, u) -> VerifiedRows` that decide row by row what the rule of the same name in `specref.rules.tree` decides.
`traversal` is in `specref.batched.traversal`.

Parents precede children, so one pass over the nodes in their order is a walk from the root down in every row at once: a row
looks at node n only if n's parent is where it stands, and whatever node it then steps to has its own children further on.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from specref.batched.drafts import Trees, VerifiedRows
from specref.batched.laws import accepts, law_at, norm, picks, residual, total, without
from specref.batched.status import BAD_TREE, flag
from specref.batched.traversal import traversal as traversal

Odds = Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]]
Left = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def greedy(p: Tensor, trees: Trees, u: Tensor | None = None) -> VerifiedRows:
    """Temperature 0: keep the longest path of the target's most probable tokens, then emit that token. Ties: the lowest id.

    p `[B, N, V]`; any increasing function of it (logits) does as well. u is not looked at. Source: Miao et al. 2305.09781
    (SpecInfer), algorithm 2, VerifyGreedy.

    >>> p = torch.tensor([[[0.25, 0.75]] * 4])
    >>> greedy(p, Trees(torch.tensor([[7, 0, 1, 1]]), parents=torch.tensor([[-1, 0, 0, 2]]))).rows()
    [Verified(accepted=2, next_token=1, path=(2, 3))]
    """
    _, status = trees.checked(p, None, with_laws=False, scores=True)
    best = p.argmax(dim=-1)
    parents = trees.parents.clamp(min=0)
    matches = (trees.tokens == best.gather(1, parents)) & trees.meant
    length = torch.zeros_like(parents)  # of the accepted path that ends at a node; -1 where it is broken
    for n in range(1, length.shape[1]):
        before = length.gather(1, parents[:, n : n + 1])[:, 0]
        length[:, n] = torch.where(matches[:, n] & (before >= 0), before + 1, -1)
    node = length.argmax(dim=1)
    accepted, path = trees.path_to(node)
    return VerifiedRows.of(accepted, best.gather(1, node[:, None])[:, 0], status, path)


def sequential_one_hot(p: Tensor, trees: Trees, u: Tensor) -> VerifiedRows:
    """Try the children one after the other as if each had been certain: what a rejected one had is taken from the target's law.

    p `[B, N, V]`, u `[B, N]`. Source: Li et al. 2406.16858 (EAGLE-2); Fu et al. 2402.02057 (lookahead decoding).

    >>> p = torch.tensor([[[0.5, 0.25, 0.25]] * 3])
    >>> trees = Trees(torch.tensor([[7, 0, 1]]), parents=torch.tensor([[-1, 0, 0]]))
    >>> sequential_one_hot(p, trees, torch.tensor([[0.6, 0.4, 0.0]])).rows()          # 1/2 rejects, then 1/4 of the 1/2 left
    [Verified(accepted=1, next_token=0, path=(2,))]
    """
    x, status = trees.checked(p, u, with_laws=False)
    return _walk(p, trees, x, None, u, status, _odds_if_certain, _left_if_certain)


def recursive_rejection(p: Tensor, trees: Trees, u: Tensor) -> VerifiedRows:
    """Try the children one after the other by `ratio`, each against what the rejected ones have left of the target's law.

    p `[B, N, V]`, trees with laws `[B, N, V]`, u `[B, N]`. With and without replacement are one rule: a sibling drawn without
    replacement has the smaller, renormalised law. Source: Miao et al. 2305.09781, algorithm 2; Chen et al. 2402.12374.

    >>> p = torch.tensor([[[0.25, 0.25, 0.5]] * 3])
    >>> laws = torch.tensor([[[1.0, 0.0, 0.0], [0.5, 0.25, 0.25], [0.0, 0.5, 0.5]]])
    >>> trees = Trees(torch.tensor([[7, 0, 1]]), parents=torch.tensor([[-1, 0, 0]]), laws=laws)
    >>> recursive_rejection(p, trees, torch.tensor([[0.6, 0.0, 0.0]])).rows()         # p/q = 1/2 rejects; token 2 alone is left
    [Verified(accepted=0, next_token=2, path=())]
    """
    x, status = trees.checked(p, u, with_laws=True)
    return _walk(p, trees, x, trees.laws, u, status, _odds_if_drawn, _left_if_drawn)


def _odds_if_certain(r: Tensor, x: Tensor, q: Tensor | None) -> tuple[Tensor, Tensor]:
    return _weight(r, x), total(r)


def _left_if_certain(r: Tensor, x: Tensor, q: Tensor | None) -> Tensor:
    return without(r, x)


def _odds_if_drawn(r: Tensor, x: Tensor, q: Tensor | None) -> tuple[Tensor, Tensor]:
    assert q is not None
    return _weight(r, x), _weight(q, x)


def _left_if_drawn(r: Tensor, x: Tensor, q: Tensor | None) -> Tensor:
    assert q is not None
    return norm(residual(r, q))


def _weight(rows: Tensor, x: Tensor) -> Tensor:
    return rows.gather(1, x[:, None])[:, 0]


def _walk(
    p: Tensor, trees: Trees, x: Tensor, laws: Tensor | None, u: Tensor, status: Tensor, odds: Odds, left: Left
) -> VerifiedRows:
    """From the root down: `odds` to take a child at its turn, and what is `left` of the target's law if it is not taken."""
    node = torch.zeros_like(x[:, 0])
    r = p[:, 0].clone()
    for n in range(1, x.shape[1]):
        rows = ((trees.parents[:, n] == node) & trees.meant[:, n]).nonzero().squeeze(1)
        here, q = r[rows], None if laws is None else laws[rows, n]
        taken = accepts(*odds(here, x[rows, n], q), u[rows, n - 1])
        node[rows[taken]] = n
        r[rows[taken]] = p[rows[taken], n]
        refused = ~taken
        r[rows[refused]] = left(here[refused], x[rows[refused], n], None if q is None else q[refused])
    accepted, path = trees.path_to(node)
    return VerifiedRows.of(accepted, picks(r, u[:, -1]), status, path)


def target_only(p: Tensor, trees: Trees, u: Tensor, tau_acc: float = 1.0, tau_single: float = 1.0) -> VerifiedRows:
    """One number decides among all children of a node, each by its target probability: the draft's laws are not needed.

    p `[B, N, V]`, u `[B, N]`: the number of a node's first child decides among its children. Lossless with both thresholds at
    1. A row with two siblings of one token gets BAD_TREE. Source: SGLang's kernel `TreeSpeculativeSamplingTargetOnly`.

    >>> p = torch.tensor([[[0.5, 0.3, 0.2]] * 3])
    >>> trees = Trees(torch.tensor([[7, 0, 1]]), parents=torch.tensor([[-1, 0, 0]]))
    >>> target_only(p, trees, torch.tensor([[0.6, 0.0, 0.0]])).rows()
    [Verified(accepted=1, next_token=0, path=(2,))]

    Raises ValueError for a threshold outside (0, 1].
    """
    for name, threshold in (("tau_acc", tau_acc), ("tau_single", tau_single)):
        if not 0 < threshold <= 1:
            raise ValueError(f"{name} is {threshold}; it must be more than 0 and at most 1")
    x, status = trees.checked(p, u, with_laws=False)
    status |= flag(_repeated_siblings(trees), BAD_TREE)
    N = x.shape[1]
    parents = trees.parents.clamp(min=0)
    upto, whole, first = _shares(p, x, parents, trees.meant, tau_acc, tau_single)
    node = torch.zeros_like(x[:, 0])
    for n in range(1, N):
        edge = u.gather(1, first.gather(1, node[:, None]) - 1)[:, 0] * whole.gather(1, node[:, None])[:, 0]
        taken = (parents[:, n] == node) & trees.meant[:, n] & (upto[:, n] > edge)
        node = torch.where(taken, n, node)
    # No child of the last node was taken, so none may be drawn.
    rejected = (trees.parents == node[:, None]) & trees.meant
    r = law_at(p, node)
    keep = torch.ones_like(r).scatter_reduce_(1, x, (~rejected).to(r.dtype), "amin")
    accepted, path = trees.path_to(node)
    return VerifiedRows.of(accepted, picks(r * keep, u[:, -1]), status, path)


def _shares(
    p: Tensor, x: Tensor, parents: Tensor, meant: Tensor, tau_acc: float, tau_single: float
) -> tuple[Tensor, Tensor, Tensor]:
    """How [0, 1) is shared among a node's children and none of them, all `[B, N]`.

    upto[n]: the summed shares of node n and its elder siblings; whole[n]: of all children of n and of taking none; first[n]:
    n's first child (1, whose number then decides nothing, if it has none).
    """
    B, N, V = p.shape
    probabilities = p.reshape(B, N * V).gather(1, parents * V + x)
    summed, reached, shared = (torch.zeros_like(probabilities) for _ in range(3))
    upto, first = torch.zeros_like(probabilities), torch.zeros_like(x)
    for n in range(1, N):
        rows = meant[:, n].nonzero().squeeze(1)
        parent, probability = parents[rows, n], probabilities[rows, n]
        summed[rows, parent] += probability
        capped = summed[rows, parent].clamp(max=tau_acc)
        edge = torch.where(probability >= tau_single, tau_acc, torch.maximum(reached[rows, parent], capped))
        shared[rows, parent] += edge - reached[rows, parent]
        reached[rows, parent] = edge
        upto[rows, n] = shared[rows, parent]
        first[rows, parent] = torch.where(first[rows, parent] == 0, n, first[rows, parent])
    return upto, shared + (tau_acc - reached), first.clamp(min=1)


def _repeated_siblings(trees: Trees) -> Tensor:
    """Whether a node has an elder sibling with its token, `[B, N]`."""
    N = trees.tokens.shape[1]
    elder = torch.ones(N, N, dtype=torch.bool, device=trees.tokens.device).tril(-1)
    same = (trees.tokens[:, :, None] == trees.tokens[:, None, :]) & (trees.parents[:, :, None] == trees.parents[:, None, :])
    both = trees.meant[:, :, None] & trees.meant[:, None, :]
    return (same & both & elder).any(dim=2)
