"""The ratio rule straight from logits: laws are made where verification comes, and nowhere else.

On average a third to a half of the rows of a batch lie behind the first rejection. A verifier that is given logits, as engines
are, need not normalise those. The decisions are those of `chain.ratio` on the softmax of both.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specref.batched.drafts import Drafts, VerifiedRows
from specref.batched.laws import accepts, picks
from specref.batched.status import BAD_DRAFT, BAD_TARGET


def ratio_from_logits(target: Tensor, draft: Tensor, drafts: Drafts, u: Tensor) -> VerifiedRows:
    """Speculative sampling from the logits of the target `[B, k+1, V]` and of the draft `[B, k, V]`, after every processor.

    drafts: the tokens, without laws; u `[B, k+1]` as for `chain.ratio`. Rows behind the first rejection are not read, so NaN
    there goes unnoticed. Source: Leviathan et al. 2211.17192, algorithm 1; Chen et al. 2302.01318, algorithm 2.

    >>> target, draft = torch.tensor([[[1.0, 3.0]] * 2] * 2).log(), torch.zeros(2, 1, 2)           # p/q of token 0 is 1/2
    >>> drafts = Drafts(torch.tensor([[0], [0]]))
    >>> ratio_from_logits(target, draft, drafts, torch.tensor([[0.4, 0.9], [0.6, 0.1]])).rows()
    [Verified(accepted=1, next_token=1, path=()), Verified(accepted=0, next_token=1, path=())]

    Raises ValueError for shapes that do not go together.
    """
    tokens, status = drafts.checked_tokens(target, u, draft)
    B, k = tokens.shape
    accepted = torch.zeros_like(drafts.count)
    rows = torch.arange(B, device=tokens.device)  # those that have accepted i tokens
    ended, weights = [], []  # rows that are refused their token i, and what p - q leaves there to draw from
    for i in range(k):
        p, q = _laws(target, rows, i), _laws(draft, rows, i)
        x, number, meant = (table.index_select(0, rows) for table in (tokens[:, i : i + 1], u[:, i], drafts.meant[:, i]))
        kept = accepts(p.gather(1, x)[:, 0], q.gather(1, x)[:, 0], number) & meant
        refused = (~kept & meant).nonzero()[:, 0]
        ended.append(rows.index_select(0, refused))
        weights.append(p.index_select(0, refused).sub_(q.index_select(0, refused)).clamp_(min=0))
        rows = rows.index_select(0, kept.nonzero()[:, 0])
        accepted.index_fill_(0, rows, i + 1)
    # All the others have come to the end of their drafts, where nothing is subtracted.
    bonus = (accepted == drafts.count).nonzero()[:, 0]
    row = torch.cat([*ended, bonus])
    left = torch.cat([*weights, _laws(target, bonus, accepted[bonus])])
    nothing = ~(left.amax(dim=-1) > 0)
    if bool(nothing.any()):
        left[nothing] = _plain(target, draft, row[nothing], accepted, drafts.count, status)
    next_token = torch.empty_like(accepted)
    next_token[row] = picks(left, u[:, -1].index_select(0, row))
    return VerifiedRows.of(accepted, next_token, status)


def _plain(target: Tensor, draft: Tensor, rows: Tensor, accepted: Tensor, count: Tensor, status: Tensor) -> Tensor:
    """The target's law `[n, V]` where `rows [n]` ended, for residuals that are empty, or NaN: then `status [B]` is told why.

    A softmax with NaN, +inf, or nothing above -inf in it is NaN throughout, and a row that meets one always ends there.
    """
    law = _laws(target, rows, accepted[rows])
    status[rows] |= law[:, 0].isnan() * BAD_TARGET
    refused = rows[accepted[rows] < count[rows]]
    status[refused] |= _laws(draft, refused, accepted[refused])[:, 0].isnan() * BAD_DRAFT
    return law


def _laws(logits: Tensor, rows: Tensor, i: int | Tensor) -> Tensor:
    """The softmax of `logits [B, n, V]` at position i of these rows."""
    B, n, V = logits.shape
    return logits.reshape(B * n, V).index_select(0, rows * n + i).softmax(dim=-1)
