"""Chain rules over a batch. p `[B, k+1, V]`: the target's laws after 0..k drafted tokens; u `[B, k+1]`: the random numbers.

Column i of u is the slot ("accept", i), or ("token", i) for `token_matching`; the last column is ("emit",). All are functions
`rule(p, drafts, u) -> VerifiedRows` that decide row by row what the rule of the same name in `specref.rules.chain` decides.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specref.batched.drafts import Drafts, VerifiedRows
from specref.batched.laws import accepts, law_at, leading, one_hot, picks, probability, residual


def ratio(p: Tensor, drafts: Drafts, u: Tensor) -> VerifiedRows:
    """Speculative sampling: keep each drafted token with probability min(1, p/q), else draw from the residual and stop.

    p `[B, k+1, V]`, drafts with laws `[B, k, V]`, u `[B, k+1]`. Source: Leviathan et al. 2211.17192, algorithm 1; Chen et al.
    2302.01318, algorithm 2.

    >>> p = torch.tensor([[[0.25, 0.75]] * 2] * 2)
    >>> drafts = Drafts(torch.tensor([[0], [0]]), laws=torch.tensor([[[0.5, 0.5]]] * 2))      # p/q of token 0 is 1/2
    >>> ratio(p, drafts, torch.tensor([[0.4, 0.9], [0.6, 0.1]])).rows()
    [Verified(accepted=1, next_token=1, path=()), Verified(accepted=0, next_token=1, path=())]
    """
    x, status = drafts.checked(p, u, with_laws=True)
    return accept_or_redraw(p, drafts, u, status, probability(p[:, :-1], x), probability(drafts.laws, x))


def token_matching(p: Tensor, drafts: Drafts, u: Tensor) -> VerifiedRows:
    """Draw from the target at every position, and go on while the draft had guessed the draw.

    p `[B, k+1, V]`, u `[B, k+1]`: column i draws the token at position i, the bonus of a row with n drafts included (column n).

    >>> p = torch.tensor([[[0.25, 0.75]] * 2])
    >>> token_matching(p, Drafts(torch.tensor([[1]])), torch.tensor([[0.5, 0.1]])).rows()
    [Verified(accepted=1, next_token=0, path=())]
    """
    _, status = drafts.checked(p, u, with_laws=False)
    drawn = torch.full_like(u, -1, dtype=torch.int64)
    going = torch.ones_like(drafts.count, dtype=torch.bool)
    for i in range(u.shape[1]):
        rows = (going & (drafts.count >= i)).nonzero().squeeze(1)
        drawn[rows, i] = picks(p[rows, i], u[rows, i])
        if i < drafts.tokens.shape[1]:
            going = going & (drawn[:, i] == drafts.tokens[:, i])
    return _matched(drawn, drafts, status)


def one_hot_ratio(p: Tensor, drafts: Drafts, u: Tensor) -> VerifiedRows:
    """`ratio` with each drafted token taken as if it had been certain (q one-hot), however it was found.

    p `[B, k+1, V]`, u `[B, k+1]`.

    >>> p = torch.tensor([[[0.25, 0.75]] * 2])
    >>> one_hot_ratio(p, Drafts(torch.tensor([[0]])), torch.tensor([[0.3, 0.0]])).rows()
    [Verified(accepted=0, next_token=1, path=())]
    """
    x, status = drafts.checked(p, u, with_laws=False)
    accepted = leading((u[:, :-1] < probability(p[:, :-1], x)) & drafts.meant)
    law = law_at(p, accepted)
    refused = (accepted < drafts.count).nonzero().squeeze(1)
    certain = one_hot(x[refused, accepted[refused]], like=p)
    law[refused] = residual(law[refused], certain)
    return VerifiedRows.of(accepted, picks(law, u[:, -1]), status)


def greedy(p: Tensor, drafts: Drafts, u: Tensor | None = None) -> VerifiedRows:
    """Temperature 0: keep what equals the target's most probable token, then emit that token. Ties go to the lowest id.

    p `[B, k+1, V]`; any increasing function of it (logits) does as well. u is not looked at.

    >>> p = torch.tensor([[[0.25, 0.75]] * 2] * 2)
    >>> greedy(p, Drafts(torch.tensor([[1], [0]]))).rows()
    [Verified(accepted=1, next_token=1, path=()), Verified(accepted=0, next_token=1, path=())]
    """
    _, status = drafts.checked(p, None, with_laws=False, scores=True)
    return _matched(p.argmax(dim=-1), drafts, status)


def accept_or_redraw(p: Tensor, drafts: Drafts, u: Tensor, status: Tensor, p_x: Tensor, q_x: Tensor) -> VerifiedRows:
    """The ratio rule with the probabilities of the drafted tokens given, `[B, k]` each: keep while u q_x < p_x, else redraw.

    >>> drafts = Drafts(torch.tensor([[0]]), laws=torch.tensor([[[0.5, 0.5]]]))
    >>> p, u, half = torch.tensor([[[0.25, 0.75]] * 2]), torch.tensor([[0.6, 0.1]]), torch.tensor([[0.5]])
    >>> accept_or_redraw(p, drafts, u, torch.tensor([0]), p_x=half, q_x=half).rows()
    [Verified(accepted=1, next_token=0, path=())]
    """
    accepted = leading(accepts(p_x, q_x, u[:, :-1]) & drafts.meant)
    next_token = picks(residual(law_at(p, accepted), drafts.law_at(accepted)), u[:, -1])
    return VerifiedRows.of(accepted, next_token, status)


def _matched(own: Tensor, drafts: Drafts, status: Tensor) -> VerifiedRows:
    """Keep the drafts that equal the target's own tokens `[B, k+1]`, then emit the target's."""
    accepted = leading((own[:, :-1] == drafts.tokens) & drafts.meant)
    return VerifiedRows.of(accepted, own.gather(1, accepted[:, None])[:, 0], status)
