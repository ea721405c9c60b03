"""Temperature, top-k, top-p and min-p over a batch of logits `[..., V]`: -inf for what is not kept.

Each setting is a number, or a tensor `[...]` with one per row. What is kept is what the processor of the same name in
`specref.processors` keeps: where tokens tie, the one with the lower id ranks first. All raise ValueError for a setting out of
range, and BadRows for rows with NaN, +inf, or nothing above -inf.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from specref.batched.status import BadRows, no_best

SMALLEST_TEMPERATURE = 1e-6


def temperature(logits: Tensor, by: float | Tensor) -> Tensor:
    """Logits `[..., V]` divided by `by`; 0 is greedy: certain of the most probable token, ties to the lowest id.

    >>> temperature(torch.tensor([[1.0, 2.0, 2.0], [1.0, 2.0, 2.0]]), torch.tensor([0.5, 0.0]))
    tensor([[2., 4., 4.],
            [-inf, 2., -inf]])
    """
    t = _setting("temperature", by, logits, lambda t: (t == 0) | ((t >= SMALLEST_TEMPERATURE) & (t < torch.inf)))
    best = torch.arange(logits.shape[-1], device=logits.device) == logits.argmax(dim=-1, keepdim=True)
    return torch.where(t > 0, logits / torch.where(t > 0, t, 1.0), logits.where(best, -torch.inf))


def top_k(logits: Tensor, k: int | Tensor) -> Tensor:
    """Keeps the k most probable tokens of each row; ties: the lower ids. Source: Fan et al. 1805.04833.

    >>> top_k(torch.tensor([[0.0, 1.0, 1.0, 1.0]]), 2)
    tensor([[-inf, 1., 1., -inf]])
    """
    ks = _setting("top-k", k, logits, lambda k: k >= 1)
    return logits.where(_rank(logits) < ks, -torch.inf)


def top_p(logits: Tensor, p: float | Tensor) -> Tensor:
    """Keeps each token while the mass ranked before it is below p: the smallest set whose mass reaches p. p = 1 keeps all.

    Ties: the lower ids first. Source: Holtzman et al. 1904.09751.

    >>> top_p(torch.tensor([[0.2, 0.5, 0.3]]).log(), 0.6).exp()
    tensor([[0.0000, 0.5000, 0.3000]])
    """
    ps = _setting("top-p", p, logits, lambda p: (p > 0) & (p <= 1))
    order = _order(logits)
    cumulative = softmax(logits).gather(-1, order).cumsum(dim=-1)
    before = torch.nn.functional.pad(cumulative[..., :-1], (1, 0))
    within = (before < ps * cumulative[..., -1:]) | (ps == 1)
    return logits.where(torch.zeros_like(within).scatter_(-1, order, within), -torch.inf)


def min_p(logits: Tensor, m: float | Tensor) -> Tensor:
    """Keeps the tokens whose probability is at least m times the largest one. Source: Nguyen et al. 2407.01082.

    >>> min_p(torch.tensor([[2.0, 1.0, 4.0]]).log(), 0.5).exp()
    tensor([[2., 0., 4.]])
    """
    ms = _setting("min-p", m, logits, lambda m: (m >= 0) & (m <= 1))
    return logits.where(logits >= logits.amax(dim=-1, keepdim=True) + ms.log(), -torch.inf)


def softmax(logits: Tensor) -> Tensor:
    """The laws of rows of logits `[..., V]`: `specref.models.softmax`.

    >>> softmax(torch.tensor([[1.0, 3.0]]).log())
    tensor([[0.2500, 0.7500]])
    """
    weights = (logits - logits.amax(dim=-1, keepdim=True)).exp()
    return weights / weights.sum(dim=-1, keepdim=True)


def _order(logits: Tensor) -> Tensor:
    return torch.argsort(logits, dim=-1, descending=True, stable=True)


def _rank(logits: Tensor) -> Tensor:
    """The place of each token in its row, 0 for the most probable, `[..., V]`."""
    order = _order(logits)
    place = torch.arange(logits.shape[-1], device=logits.device).expand_as(order)
    return torch.empty_like(order).scatter_(-1, order, place)


def _setting(name: str, value: float | Tensor, logits: Tensor, allowed: Callable[[Tensor], Tensor]) -> Tensor:
    """`value` as one number per row, `[..., 1]`, after checking it and the logits."""
    bad = no_best(logits).flatten()
    if bool(bad.any()):
        rows = tuple(bad.nonzero()[:, 0].tolist())
        raise BadRows(f"rows {rows[:5]} of {len(bad)} hold NaN, +inf, or nothing above -inf: they cannot be truncated", rows)
    dtype = value.dtype if isinstance(value, Tensor) else None if isinstance(value, int) else logits.dtype
    one_each = torch.as_tensor(value, dtype=dtype, device=logits.device)
    if not (one_each.dim() == 0 or one_each.shape == logits.shape[:-1]):
        raise ValueError(f"{name} must be one number, or one per row {list(logits.shape[:-1])}; got {list(one_each.shape)}")
    wrong = ~allowed(one_each)
    if bool(wrong.any()):
        raise ValueError(f"{name} is {one_each[wrong].flatten()[0].item()}, which is out of range")
    if name != "top-k":
        one_each = one_each.to(logits.dtype)
    return one_each.expand(logits.shape[:-1]).unsqueeze(-1)
