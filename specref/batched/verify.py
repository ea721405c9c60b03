"""Run a rule on a batch and raise if a row is no good; with torch, or with our own kernels where there is one for the rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from torch import Tensor

from specref.batched.drafts import Drafts, Trees, VerifiedRows
from specref.batched.status import require_good


def verify(
    rule: Callable[..., VerifiedRows],
    p: Tensor,
    drafts: Drafts | Trees,
    u: Tensor,
    *,
    backend: Literal["torch", "kernels"] = "torch",
    **settings: Any,
) -> VerifiedRows:
    """What `rule` decides about every row, if all of them are good.

    p `[B, k+1, V]`, u `[B, k+1]` (trees `[B, N, V]`, `[B, N]`); `settings` are the rule's own. backend "kernels" asks
    `specref.cuda` instead of torch: see `specref.batched.kernels`.

    >>> import torch
    >>> from specref.batched.chain import greedy
    >>> verify(greedy, torch.tensor([[[0.25, 0.75]] * 2]), Drafts(torch.tensor([[2]])), torch.zeros(1, 2))
    Traceback (most recent call last):
    specref.batched.status.BadRows: 1 of 1 rows cannot be verified: row 0: a drafted token is outside the vocabulary

    Raises BadRows, naming the rows; ValueError for shapes that do not go together or a rule that has no kernel.
    """
    if backend == "kernels":
        from specref.batched.kernels import kernel_of

        result = kernel_of(rule)(p, drafts, u, **settings)
    else:
        result = rule(p, drafts, u, **settings)
    require_good(result.status)
    return result
