"""The ratio rule straight from logits: laws are made where verification comes, and nowhere else.

On average a third to a half of the rows of a batch lie behind the first rejection. A verifier that is given logits, as engines
are, need not normalise those. The decisions are those of `chain.ratio` on the softmax of both.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specref.batched.drafts import Drafts, VerifiedRows
from specref.batched.laws import accepts, picks_by, probability
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
    accepted, next_token, status = _decide(target, draft, drafts, u)
    return VerifiedRows.of(accepted, next_token, status.clone())  # tensors of inference mode become ordinary ones


@torch.inference_mode()
def _decide(target: Tensor, draft: Tensor, drafts: Drafts, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Accepted counts, next tokens and statuses, `[B]` each."""
    tokens, status = drafts.checked_tokens(target, u, draft)
    B, k = tokens.shape
    p_room, q_room, weights = target.new_empty(3, B, target.shape[-1]).unbind()  # weights: to draw from, as rows end
    accepted = torch.zeros_like(drafts.count)
    rows = torch.arange(B, device=tokens.device)  # those that have accepted i tokens
    ended, n = [], 0  # rows refused their token i, and how many so far
    for i in range(k):
        p, q = _laws(target[:, i], rows, p_room), _laws(draft[:, i], rows, q_room)
        x, number, meant = (table[:, i].index_select(0, rows) for table in (tokens, u, drafts.meant))
        kept = accepts(probability(p, x), probability(q, x), number) & meant
        refused = (~kept & meant).nonzero()[:, 0]
        ended.append(rows.index_select(0, refused))
        left = torch.index_select(p, 0, refused, out=weights[n : n + len(refused)])
        left.sub_(q.index_select(0, refused)).clamp_(min=0)
        n += len(refused)
        rows = rows.index_select(0, kept.nonzero()[:, 0])
        accepted.index_fill_(0, rows, i + 1)
    # All the others have come to the end of their drafts, where nothing is subtracted.
    bonus = (accepted == drafts.count).nonzero()[:, 0]
    _laws(target.flatten(0, 1), bonus * (k + 1) + accepted[bonus], weights[n:])
    row = torch.cat([*ended, bonus])
    cumulative = weights.cumsum(dim=-1)
    nothing = ~(cumulative[:, -1] > 0)
    if bool(nothing.any()):  # an empty residual, or NaN: p itself
        at = row[nothing]
        weights[nothing] = _laws(target.flatten(0, 1), at * (k + 1) + accepted[at], p_room)
        cumulative[nothing] = weights[nothing].cumsum(dim=-1)
        # A softmax with NaN, +inf, or nothing above -inf in it is NaN throughout, and a row that meets one always ends there.
        status[at] |= weights[nothing, 0].isnan() * BAD_TARGET
        at = at[accepted[at] < drafts.count[at]]
        status[at] |= _laws(draft.flatten(0, 1), at * k + accepted[at], q_room)[:, 0].isnan() * BAD_DRAFT
    next_token = torch.empty_like(accepted)
    next_token[row] = picks_by(cumulative, weights, u[:, -1].index_select(0, row))
    return accepted, next_token, status


def _laws(logits: Tensor, rows: Tensor, room: Tensor) -> Tensor:
    """The softmax of these rows of `logits [n, V]`, in `room [B, V]`: the same memory at every position stays in the cache."""
    copied = torch.index_select(logits, 0, rows, out=room[: len(rows)])
    return torch.softmax(copied, dim=-1, out=copied)
