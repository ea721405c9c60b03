"""The rules that our own kernels offer, behind the calls of the torch path.

Kernels compute from logits, in float32 and fixed point, so their decisions are those of the torch path except where a uniform
lies within the rounding of an edge. Here laws go in as their logarithms, to compare one path with the other; an engine that has
logits calls `torch.ops.specref` itself.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from specref.batched import chain, tree
from specref.batched.drafts import Drafts, Trees, VerifiedRows
from specref.batched.masks import links
from specref.cuda import ops, ops_trees  # noqa: F401 - registers torch.ops.specref

IID, WITHOUT_REPLACEMENT, DETERMINISTIC = 0, 1, 2


def kernel_of(rule: Callable[..., VerifiedRows]) -> Callable[..., VerifiedRows]:
    """The function of the same signature that runs `rule` in a kernel. Raises ValueError if there is none.

    >>> kernel_of(chain.ratio).__name__
    'ratio'
    >>> kernel_of(chain.token_matching)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: token_matching has no kernel; use backend="torch", or ratio, one_hot_ratio, greedy, sequential_one_hot, ...
    """
    kernels: dict[Callable[..., VerifiedRows], Callable[..., VerifiedRows]] = {
        chain.ratio: ratio,
        chain.one_hot_ratio: one_hot_ratio,
        tree.greedy: greedy,
        tree.sequential_one_hot: sequential_one_hot,
        tree.recursive_rejection: recursive_rejection,
    }
    if rule not in kernels:
        names = ", ".join(known.__name__ for known in kernels)
        raise ValueError(f'{getattr(rule, "__name__", rule)} has no kernel; use backend="torch", or {names}')
    return kernels[rule]


def ratio(p: Tensor, drafts: Drafts, u: Tensor) -> VerifiedRows:
    """`chain.ratio` by `torch.ops.specref.verify_chain`: p `[B, k+1, V]`, drafts with laws, u `[B, k+1]`.

    >>> drafts = Drafts(torch.tensor([[0]]), laws=torch.tensor([[[0.5, 0.5]]]))
    >>> ratio(torch.tensor([[[0.25, 0.75]] * 2]), drafts, torch.tensor([[0.6, 0.1]])).rows()
    [Verified(accepted=0, next_token=1, path=())]
    """
    return _verify_chain(p, drafts, u, drafts.laws)


def one_hot_ratio(p: Tensor, drafts: Drafts, u: Tensor) -> VerifiedRows:
    """`chain.one_hot_ratio` by `torch.ops.specref.verify_chain`: p `[B, k+1, V]`, u `[B, k+1]`.

    >>> one_hot_ratio(torch.tensor([[[0.25, 0.75]] * 2]), Drafts(torch.tensor([[0]])), torch.tensor([[0.3, 0.0]])).rows()
    [Verified(accepted=0, next_token=1, path=())]
    """
    return _verify_chain(p, drafts, u, None)


def greedy(p: Tensor, trees: Trees, u: Tensor | None = None) -> VerifiedRows:
    """`tree.greedy` by `torch.ops.specref.verify_tree_greedy`, for trees whose siblings differ: p `[B, N, V]`.

    >>> trees = Trees(torch.tensor([[0, 0, 1]]), parents=torch.tensor([[-1, 0, 0]]))
    >>> greedy(torch.tensor([[[0.25, 0.75]] * 3]), trees).rows()
    [Verified(accepted=1, next_token=1, path=(2,))]
    """
    _, border = trees.checked(p, None, with_laws=False)
    results = torch.ops.specref.verify_tree_greedy(*_linked(trees), None, _logits(p), p.shape[1] - 1)
    return _tree_rows(*results, border=border)


def sequential_one_hot(p: Tensor, trees: Trees, u: Tensor) -> VerifiedRows:
    """`tree.sequential_one_hot` by `torch.ops.specref.verify_tree_sampled`: p `[B, N, V]`, u `[B, N]`.

    >>> trees = Trees(torch.tensor([[0, 0, 1]]), parents=torch.tensor([[-1, 0, 0]]))
    >>> sequential_one_hot(torch.tensor([[[0.5, 0.25, 0.25]] * 3]), trees, torch.tensor([[0.6, 0.4, 0.0]])).rows()
    [Verified(accepted=1, next_token=0, path=(2,))]
    """
    return _verify_tree(p, trees, u, None, DETERMINISTIC)


def recursive_rejection(p: Tensor, trees: Trees, u: Tensor, replacement: bool) -> VerifiedRows:
    """`tree.recursive_rejection` by `torch.ops.specref.verify_tree_sampled`: p `[B, N, V]`, trees with laws, u `[B, N]`.

    The kernel wants one draft law per parent, its eldest child's, and whether siblings were drawn from it with `replacement`.

    >>> laws = torch.tensor([[[1.0, 0.0, 0.0], [0.5, 0.25, 0.25], [0.0, 0.5, 0.5]]])
    >>> trees = Trees(torch.tensor([[0, 0, 1]]), parents=torch.tensor([[-1, 0, 0]]), laws=laws)
    >>> p, u = torch.tensor([[[0.25, 0.25, 0.5]] * 3]), torch.tensor([[0.6, 0.0, 0.0]])
    >>> recursive_rejection(p, trees, u, replacement=False).rows()
    [Verified(accepted=0, next_token=2, path=())]
    """
    rows = torch.arange(len(u), device=u.device)[:, None]
    first_child, _ = links(trees.parents, trees.meant)
    return _verify_tree(p, trees, u, trees.laws[rows, first_child.clamp(min=0)], IID if replacement else WITHOUT_REPLACEMENT)


def _verify_chain(p: Tensor, drafts: Drafts, u: Tensor, laws: Tensor | None) -> VerifiedRows:
    _, border = drafts.checked(p, u, with_laws=laws is not None)
    ones = torch.ones(len(u), device=u.device)
    target, draft = _logits(p), None if laws is None else _logits(laws)
    out_ids, accepted, status = torch.ops.specref.verify_chain(
        *(target, draft, None if draft is None else _norms(draft), drafts.tokens.int(), drafts.count.int(), u.float()),
        *(ones, None if draft is None else ones),
    )
    next_token = out_ids.gather(1, accepted.long()[:, None])[:, 0].long()
    return VerifiedRows.of(accepted.long(), next_token, border | status)


def _verify_tree(p: Tensor, trees: Trees, u: Tensor, laws: Tensor | None, mode: int) -> VerifiedRows:
    _, border = trees.checked(p, u, with_laws=laws is not None)
    ones = torch.ones(len(u), device=u.device)
    draft = None if laws is None else _logits(laws)
    results = torch.ops.specref.verify_tree_sampled(
        *(*_linked(trees), _logits(p), draft, None if draft is None else _norms(draft), mode, u.float()),
        *(ones, None if draft is None else ones, None, None, u.shape[1] - 1),
    )
    return _tree_rows(*results, border=border)


def _logits(laws: Tensor) -> Tensor:
    return laws.log().float().contiguous()


def _norms(draft: Tensor) -> Tensor:
    rows = draft.flatten(0, 1)
    norm: Tensor = torch.ops.specref.row_norm(rows, torch.ones(len(rows), device=rows.device), None)[0]
    return norm.reshape(*draft.shape[:2], 2)


def _linked(trees: Trees) -> tuple[Tensor, Tensor, Tensor]:
    first_child, next_sibling = links(trees.parents, trees.meant)
    return trees.tokens.int().contiguous(), first_child.int(), next_sibling.int()


def _tree_rows(path: Tensor, out_ids: Tensor, accepted: Tensor, status: Tensor, *, border: Tensor) -> VerifiedRows:
    """Kernels name the root as the first node of a path; here a path begins with its child."""
    next_token = out_ids.gather(1, accepted.long()[:, None])[:, 0].long()
    return VerifiedRows.of(accepted.long(), next_token, status.long() | border, path[:, 1:].long())
