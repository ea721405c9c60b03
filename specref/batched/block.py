"""Block verification over a batch: accept or reject whole prefixes of the drafts together."""

from __future__ import annotations

import torch
from torch import Tensor

from specref.batched.drafts import Drafts, VerifiedRows
from specref.batched.laws import accepts, law_at, picks, positive_part, probability, residual, total


def block(p: Tensor, drafts: Drafts, u: Tensor) -> VerifiedRows:
    """Block verification: keep the longest prefix whose own number says yes, then draw from that prefix's residual.

    p `[B, k+1, V]`, drafts with laws `[B, k, V]`, u `[B, k+1]`: column i-1 decides on the prefix of i tokens, the last column
    draws. Source: Sun et al. 2403.10444, algorithm 2; `specref.rules.block.block` explains it.

    >>> p = torch.tensor([[[0.25, 0.75]] * 3] * 2)
    >>> drafts = Drafts(torch.tensor([[0, 1]] * 2), laws=torch.tensor([[[0.5, 0.5]] * 2] * 2))   # P_1 = 1/2, P_2 = 3/4
    >>> block(p, drafts, torch.tensor([[0.9, 0.7, 0.0], [0.1, 0.8, 0.0]])).rows()
    [Verified(accepted=2, next_token=0, path=()), Verified(accepted=0, next_token=1, path=())]
    """
    x, status = drafts.checked(p, u, with_laws=True)
    kept, of = joint_ratios(probability(p[:, :-1], x), probability(drafts.laws, x))
    accepted = torch.zeros_like(drafts.count)
    for i in range(x.shape[1], 0, -1):
        rows = ((accepted == 0) & (drafts.count >= i)).nonzero().squeeze(1)
        # Nobody drafted a token after the last one, so nothing is subtracted there.
        q = torch.zeros_like(p[rows, i])
        longer = (drafts.count[rows] > i).nonzero().squeeze(1)
        q[longer] = drafts.laws[rows[longer], min(i, x.shape[1] - 1)]
        numerator, denominator = stopping_odds(kept[rows, i], of[rows, i], p[rows, i], q)
        yes = accepts(numerator, denominator, u[rows, i - 1])
        accepted[rows[yes]] = i
    last = accepted[:, None]
    weights = residual(kept.gather(1, last) * law_at(p, accepted), of.gather(1, last) * drafts.law_at(accepted))
    return VerifiedRows.of(accepted, picks(weights, u[:, -1]), status)


def joint_ratios(p_x: Tensor, q_x: Tensor) -> tuple[Tensor, Tensor]:
    """P_0..P_k as numerators and denominators `[B, k+1]`, from p and q of each drafted token `[B, k]`.

    P_0 = 1 and P_i = min(P_{i-1} p_i(x_i) / q_i(x_i), 1).

    >>> joint_ratios(torch.tensor([[0.25, 0.75]]), torch.tensor([[0.5, 0.5]]))
    (tensor([[1.0000, 0.2500, 0.1875]]), tensor([[1.0000, 0.5000, 0.2500]]))
    """
    kept = p_x.new_ones(len(p_x), p_x.shape[1] + 1)
    of = torch.ones_like(kept)
    for i in range(p_x.shape[1]):
        kept[:, i + 1], of[:, i + 1] = at_most_one(kept[:, i] * p_x[:, i], of[:, i] * q_x[:, i])
    return kept, of


def at_most_one(numerator: Tensor, denominator: Tensor) -> tuple[Tensor, Tensor]:
    """min(numerator / denominator, 1) as odds, all `[B]`; 0/0 is 0.

    >>> at_most_one(torch.tensor([3.0, 1.0, 0.0]), torch.tensor([2.0, 2.0, 0.0]))
    (tensor([1., 1., 0.]), tensor([1., 2., 1.]))
    """
    below = numerator < denominator
    return torch.where(below, numerator, (numerator > 0).to(numerator.dtype)), torch.where(below, denominator, 1.0)


def stopping_odds(kept: Tensor, of: Tensor, p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """h = Z / (Z + 1 - P) where Z = sum(max(P p - q, 0)), as odds `[B]`, for P = kept / of `[B]` and laws `[B, V]`.

    >>> laws = torch.tensor([[0.875, 0.125]]), torch.tensor([[0.25, 0.75]])
    >>> stopping_odds(torch.tensor([1.0]), torch.tensor([2.0]), *laws)
    (tensor([0.3750]), tensor([1.3750]))
    """
    Z = total(positive_part(kept[:, None] * p - of[:, None] * q))
    return Z, Z + (of - kept)
