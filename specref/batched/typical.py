"""Rules that trade the target's law for more accepted tokens, over a batch. They are not lossless."""

from __future__ import annotations

import torch
from torch import Tensor

from specref.batched.chain import accept_or_redraw, ratio
from specref.batched.drafts import Drafts, Trees, VerifiedRows
from specref.batched.laws import law_at, picks, probability, total
from specref.batched.masks import depths


def typical(
    p: Tensor, trees: Trees, u: Tensor, epsilon: float = 0.09, delta: float = 0.3, sampled: bool = False
) -> VerifiedRows:
    """Medusa's typical acceptance: keep the longest path of tokens that the target finds likely enough.

    p `[B, N, V]`, u `[B, N]` (only the last column is read, and only if `sampled`). `specref.rules.typical.typical` explains
    it. Source: Cai et al. 2401.10774 (Medusa), section 2.3.1.

    >>> p = torch.tensor([[[0.75, 0.2, 0.05]] * 3])                            # p(2) is below the threshold of 9/100
    >>> trees = Trees(torch.tensor([[7, 0, 2]]), parents=torch.tensor([[-1, 0, 0]]))
    >>> typical(p, trees, torch.zeros(1, 3)).rows()
    [Verified(accepted=1, next_token=0, path=(1,))]
    """
    x, status = trees.checked(p, u, with_laws=False)
    B, N, V = p.shape
    parents = trees.parents.clamp(min=0)
    of_node = p.reshape(B, N * V).gather(1, parents * V + x)
    likely = (of_node > typical_threshold(p, epsilon, delta).gather(1, parents)) & trees.meant
    likely[:, 0] = True
    path_probability = torch.ones_like(of_node)
    for n in range(1, N):
        parent = parents[:, n : n + 1]
        likely[:, n] &= likely.gather(1, parent)[:, 0]
        path_probability[:, n] = of_node[:, n] * path_probability.gather(1, parent)[:, 0]
    depth = depths(trees.parents, trees.meant).where(likely, -1)
    longest = depth == depth.amax(dim=1, keepdim=True)
    node = path_probability.where(longest, -1.0).argmax(dim=1)
    after = law_at(p, node)
    next_token = picks(after, u[:, -1]) if sampled else after.argmax(dim=-1)
    accepted, path = trees.path_to(node)
    return VerifiedRows.of(accepted, next_token, status, path)


def typical_threshold(laws: Tensor, epsilon: float, delta: float) -> Tensor:
    """min(epsilon, delta exp(-H)) for `laws [..., V]` of entropy H in nats, `[...]`; log of p + 1e-5, as published.

    >>> typical_threshold(torch.full((1, 20), 1 / 20), epsilon=0.09, delta=0.3)
    tensor([0.0150])
    """
    entropy = -total(laws * (laws + 1e-5).log())
    return (delta * (-entropy).exp()).clamp(max=epsilon)


def ensemble(p: Tensor, drafts: Drafts, u: Tensor, weight: float) -> VerifiedRows:
    """`ratio` towards a mixture: each drafted position follows weight p + (1 - weight) q exactly, the bonus token p.

    p `[B, k+1, V]`, drafts with laws, u `[B, k+1]`. Source: `assistant_ensemble_weight` of transformers.

    >>> p = torch.tensor([[[0.25, 0.75]] * 2])
    >>> drafts = Drafts(torch.tensor([[0]]), laws=torch.tensor([[[0.5, 0.5]]]))
    >>> ensemble(p, drafts, torch.tensor([[0.7, 0.0]]), weight=0.5).rows()              # 3/8 instead of 1/4, over 1/2
    [Verified(accepted=1, next_token=0, path=())]

    Raises ValueError for a weight outside [0, 1].
    """
    if not 0 <= weight <= 1:
        raise ValueError(f"weight is {weight}; it must lie between 0 and 1")
    mixed = p.clone()
    mixed[:, :-1] = torch.where(drafts.meant[:, :, None], weight * p[:, :-1] + (1 - weight) * drafts.laws, p[:, :-1])
    return ratio(mixed, drafts, u)


def lenient(p: Tensor, drafts: Drafts, u: Tensor, lenience: float) -> VerifiedRows:
    """`ratio` with the draft's probabilities taken times `lenience` where it accepts: less than 1 accepts more.

    p `[B, k+1, V]`, drafts with laws, u `[B, k+1]`. Source: Leviathan et al. 2211.17192, A.5.

    >>> p = torch.tensor([[[0.25, 0.75]] * 2])
    >>> drafts = Drafts(torch.tensor([[0]]), laws=torch.tensor([[[0.5, 0.5]]]))
    >>> lenient(p, drafts, torch.tensor([[0.9, 0.0]]), lenience=0.5).rows()             # 1/4 over 1/4: always accepted
    [Verified(accepted=1, next_token=0, path=())]

    Raises ValueError for a lenience outside [0, 1].
    """
    if not 0 <= lenience <= 1:
        raise ValueError(f"lenience is {lenience}; it must lie between 0 and 1")
    x, status = drafts.checked(p, u, with_laws=True)
    return accept_or_redraw(p, drafts, u, status, probability(p[:, :-1], x), lenience * probability(drafts.laws, x))
