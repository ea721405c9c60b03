"""Arithmetic on batches of laws: what `specref.laws` and `specref.chance` do to one row, for rows `[..., V]` at once.

Every operation is the reference's, in its order, so that both take the same decision bit for bit in float64 on a CPU: the total
is the last cumulative sum in index order, never `.sum()`. On a GPU cumulative sums are added in another order, and a decision
can differ where a uniform lies within rounding of an edge.
"""

from __future__ import annotations

import torch
from torch import Tensor


def accepts(numerator: Tensor, denominator: Tensor, u: Tensor) -> Tensor:
    """u * denominator < numerator, all of one shape: `Chance.accepts`. Nothing is divided; 0/0 rejects.

    >>> accepts(torch.tensor([0.25, 0.0]), torch.tensor([0.5, 0.0]), u=torch.tensor([0.25, 0.25]))
    tensor([ True, False])
    """
    return u * denominator < numerator


def picks(weights: Tensor, u: Tensor) -> Tensor:
    """The first index whose cumulative weight exceeds u * total, `[...]`: `Chance.picks` for weights `[..., V]` and u `[...]`.

    Never an index of zero weight, if there is another.

    >>> picks(torch.tensor([[0.0, 1.0, 3.0], [0.0, 1.0, 3.0]]), u=torch.tensor([0.0, 0.25]))
    tensor([1, 2])
    """
    return picks_by(weights.cumsum(dim=-1), weights, u)


def picks_by(cumulative: Tensor, weights: Tensor, u: Tensor) -> Tensor:
    """`picks` from weights of which the cumulative sums are known, both `[..., V]`.

    >>> weights = torch.tensor([[0.0, 1.0, 3.0]])
    >>> picks_by(weights.cumsum(dim=-1), weights, u=torch.tensor([0.25]))
    tensor([2])
    """
    edge = (u * cumulative[..., -1]).unsqueeze(-1)
    index = torch.searchsorted(cumulative, edge, right=True).squeeze(-1)
    last = weights.shape[-1] - 1
    picked = index.clamp(max=last)
    # Past the end where u * total rounded up to a subnormal total; on a zero weight where a GPU's sums are not monotone.
    astray = (index > last) | (_at_index(weights, picked) == 0)
    if bool(astray.any()):
        place = torch.arange(last + 1, device=weights.device)
        possible = (weights[astray] > 0) & (place <= index[astray].unsqueeze(-1))
        picked[astray] = torch.where(possible, place, 0).amax(dim=-1)
    return picked


def total(weights: Tensor) -> Tensor:
    """The last cumulative sum of each row of `weights [..., V]`, `[...]`: `specref.laws.total`.

    >>> total(torch.tensor([[0.25, 0.5]]))
    tensor([0.7500])
    """
    return weights.cumsum(dim=-1)[..., -1]


def norm(weights: Tensor) -> Tensor:
    """Each row of `weights [..., V]` divided by its total: `specref.laws.norm`.

    >>> norm(torch.tensor([[1.0, 3.0]]))
    tensor([[0.2500, 0.7500]])
    """
    return weights / total(weights).unsqueeze(-1)


def positive_part(weights: Tensor) -> Tensor:
    """max(weights, 0), `[..., V]`: `specref.laws.positive_part`.

    >>> positive_part(torch.tensor([0.5, -0.25]))
    tensor([0.5000, 0.0000])
    """
    return weights.clamp(min=0)


def residual(p: Tensor, q: Tensor) -> Tensor:
    """max(p - q, 0) for rows `[B, V]`, and p itself in a row where that is empty: `specref.laws.residual`.

    >>> residual(torch.tensor([[0.25, 0.75], [0.5, 0.5]]), torch.tensor([[0.5, 0.5], [0.5, 0.5]]))
    tensor([[0.0000, 0.2500],
            [0.5000, 0.5000]])
    """
    left = (p - q).clamp_(min=0)
    empty = ~(left.amax(dim=-1) > 0)
    if bool(empty.any()):
        left[empty] = p[empty]
    return left


def without(laws: Tensor, tokens: Tensor) -> Tensor:
    """Rows `[B, V]` with the weight of one token of each, `[B]`, set to zero: `specref.laws.without`.

    >>> without(torch.tensor([[0.25, 0.75]]), torch.tensor([1]))
    tensor([[0.2500, 0.0000]])
    """
    return laws.scatter(-1, tokens.unsqueeze(-1), 0.0)


def one_hot(tokens: Tensor, like: Tensor) -> Tensor:
    """Rows `[..., V]`, each certain of its token `[...]`, with the vocabulary and type of `like`: `specref.laws.one_hot`.

    >>> one_hot(torch.tensor([1]), like=torch.ones(1, 2))
    tensor([[0., 1.]])
    """
    return like.new_zeros(*tokens.shape, like.shape[-1]).scatter_(-1, tokens.unsqueeze(-1), 1.0)


def probability(laws: Tensor, tokens: Tensor) -> Tensor:
    """Of each row of `laws [B, n, V]` the probability of its token, `[B, n]`.

    >>> probability(torch.tensor([[[0.25, 0.75]]]), torch.tensor([[1]]))
    tensor([[0.7500]])
    """
    return _at_index(laws, tokens)


def law_at(laws: Tensor, index: Tensor) -> Tensor:
    """Of `laws [B, n, V]` the row number index[b] of each b, `[B, V]`.

    >>> law_at(torch.tensor([[[0.25, 0.75], [1.0, 0.0]]]), torch.tensor([1]))
    tensor([[1., 0.]])
    """
    B, n, V = laws.shape
    return laws.reshape(B * n, V).index_select(0, torch.arange(B, device=laws.device) * n + index)


def leading(flags: Tensor) -> Tensor:
    """How many flags `[B, n]` hold before the first that does not, `[B]`.

    >>> leading(torch.tensor([[True, False, True], [True, True, True]]))
    tensor([1, 3])
    """
    return flags.long().cumprod(dim=-1).sum(dim=-1)


def _at_index(rows: Tensor, index: Tensor) -> Tensor:
    return rows.gather(-1, index.unsqueeze(-1)).squeeze(-1)
