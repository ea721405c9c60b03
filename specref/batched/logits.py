"""The ratio rule straight from logits: laws are made where verification comes, and nowhere else.

On average a third to a half of the rows of a batch lie behind the first rejection. A verifier that is given logits, as engines
are, need not normalise those. The decisions are those of `chain.ratio` on the softmax of both.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specref.batched.drafts import Drafts, VerifiedRows
from specref.batched.laws import accepts, picks, residual
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
    rows = torch.arange(B, device=tokens.device)  # those that have accepted i tokens
    ended, last_p, last_q = [], [], []  # the rows that end with i tokens, and the laws there
    for i in range(k):
        p, q = _laws(target, rows, i), _laws(draft, rows, i)
        x, number, meant = (table[:, i].index_select(0, rows) for table in (tokens, u, drafts.meant))
        kept = accepts(p.gather(1, x[:, None])[:, 0], q.gather(1, x[:, None])[:, 0], number) & meant
        going, over = kept.nonzero()[:, 0], (~kept).nonzero()[:, 0]
        ended.append(rows.index_select(0, over))
        last_p.append(p.index_select(0, over))
        last_q.append(q.index_select(0, over))
        rows = rows.index_select(0, going)
    ended.append(rows)
    last_p.append(_laws(target, rows, k))
    last_q.append(torch.zeros_like(last_p[k]))

    p, q, row = torch.cat(last_p), torch.cat(last_q), torch.cat(ended)
    sizes = torch.tensor([len(rows) for rows in ended], device=row.device)
    count = torch.arange(k + 1, device=row.device).repeat_interleave(sizes)
    bonus = (count == drafts.count[row]).nonzero()[:, 0]
    q.index_fill_(0, bonus, 0.0)  # behind the last draft nothing is subtracted
    # A softmax with NaN, +inf, or nothing above -inf in it is NaN throughout, and such a row always ends there.
    status[row] |= p[:, 0].isnan() * BAD_TARGET | q[:, 0].isnan() * BAD_DRAFT
    accepted, next_token = torch.empty_like(count), torch.empty_like(count)
    accepted[row], next_token[row] = count, picks(residual(p, q), u[row, -1])
    return VerifiedRows.of(accepted, next_token, status)


def _laws(logits: Tensor, rows: Tensor, i: int) -> Tensor:
    """The softmax of `logits [B, n, V]` at position i of these rows."""
    B, n, V = logits.shape
    return logits.reshape(B * n, V).index_select(0, rows * n + i).softmax(dim=-1)
