"""What the top-k / top-p kernels compute, in plain torch, bit for bit; `kernels/topk_topp_threshold.cu` has the definitions."""

from __future__ import annotations

import torch
from torch import Tensor

from specref.cuda.reference import BAD_SETTING, BAD_TARGET, INFINITY, exp2_nonpositive, float32, int32, rows_of, scale_of

PER_OCTAVE, OCTAVES_WITH_MASS = 16, 40


def _share_of(mass: Tensor, p24: Tensor) -> Tensor:
    """ceil(mass * p24 / 2^24), at least 1, without leaving 63 bits."""
    low = (mass & 0xFFFFFF) * p24
    return ((mass >> 24) * p24 + (low >> 24) + ((low & 0xFFFFFF) != 0)).clamp(min=1)


def _bin_masses(m: Tensor, n: Tensor, bin_of: Tensor, top: Tensor) -> Tensor:
    """Cumulative mass of logits sorted from high to low `[R, V]`: exact sums of m inside a bin, each bin shifted as a whole.

    m: weights, n: octaves, bin_of: non-decreasing bin numbers along the row (0 for the highest), top: N `[R]`.
    """
    running = m.cumsum(dim=-1)
    new_bin = torch.nn.functional.pad(bin_of[:, 1:] != bin_of[:, :-1], (1, 0), value=True)
    before_bin = torch.where(new_bin, running - m, 0).cummax(dim=-1).values  # the sum of m over all earlier bins
    below = torch.nan_to_num(top[:, None] - n, nan=99.0).clamp(max=99.0).long()
    shifted = torch.where(below < OCTAVES_WITH_MASS, ((running - before_bin) << 16) >> below.clamp(max=OCTAVES_WITH_MASS), 0)
    last_of_bin = torch.nn.functional.pad(bin_of[:, 1:] != bin_of[:, :-1], (0, 1), value=True)
    full_bins = torch.where(last_of_bin, shifted, 0).cumsum(dim=-1)  # all bins up to and with this one, once it is complete
    return full_bins - torch.where(last_of_bin, shifted, 0) + shifted


def topk_topp_threshold(logits: Tensor, inv_temp: Tensor, k: Tensor, p: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `kernels/topk_topp_threshold.cu`.

    >>> topk_topp_threshold(torch.tensor([[4.0, 3.0, 3.0, 1.0]]), torch.ones(1), k=torch.tensor([2]), p=torch.ones(1))[0]
    tensor([3.])
    """
    z = logits.float() + 0.0
    scale = scale_of(inv_temp)
    V = z.shape[-1]
    bad = (~(z * scale[:, None] < INFINITY)).any(dim=-1)
    z = torch.where(z.isnan(), float32(-INFINITY, z), z)
    z, _ = torch.sort(z, dim=-1, descending=True)
    y = z * scale[:, None]
    top = torch.floor(y[:, 0])
    bad |= ~(top > -INFINITY)

    finite = z > -INFINITY
    n = torch.floor(y)
    f = torch.where(n > -INFINITY, y - n, 0.0).clamp(max=1 - 2.0**-24)
    m = torch.where(finite & (n > -INFINITY), (exp2_nonpositive(f - 1.0) * 16777216.0).long(), 0)
    # Bins need only be told apart, in order: count the changes along the sorted row.
    octave, part = torch.nan_to_num(n, neginf=-3e38), (f * PER_OCTAVE).long()
    change = (octave[:, 1:] != octave[:, :-1]) | (part[:, 1:] != part[:, :-1])
    bin_of = torch.nn.functional.pad(change.long().cumsum(dim=-1), (1, 0))
    mass = _bin_masses(m, n, bin_of, top)

    def last_equal(index: Tensor) -> Tensor:
        """The last place that holds the same logit as place `index`."""
        value = z.gather(-1, index[:, None])
        return (z >= value).sum(dim=-1) - 1

    count = finite.sum(dim=-1)
    use_k = (k > 0) & (k < count)
    last = torch.where(use_k, last_equal((k.long() - 1).clamp(0, V - 1)), count - 1).clamp(min=0)
    use_p = p < 1
    p24 = (torch.nan_to_num(p) * 16777216.0).long()
    need = _share_of(mass.gather(-1, last[:, None])[:, 0], p24)
    # The mass of all logits >= one of them is read at the last of its equals; it never falls along the row.
    at_last_equal = mass.gather(-1, torch.searchsorted(-z, -z, right=True) - 1)
    reached = torch.searchsorted(at_last_equal, need[:, None])[:, 0].clamp(max=V - 1)
    last = torch.where(use_p, torch.minimum(last, last_equal(reached)), last)

    problem = torch.where(bad, BAD_TARGET, 0)
    problem = torch.where((scale > 0) & (k >= 0) & (p > 0) & (p <= 1), problem, BAD_SETTING)
    good = problem == 0
    threshold = torch.where(use_k | use_p, z.gather(-1, last[:, None])[:, 0], float32(-INFINITY, z))
    kept_mass = mass.gather(-1, last[:, None])[:, 0]
    return (
        torch.where(good, threshold, float32(-INFINITY, z)),
        int32(torch.where(good, last + 1, 0)),
        torch.where(good, kept_mass, 0),
        int32(problem),
    )


def topk_topp_softmax(logits: Tensor, inv_temp: Tensor, threshold: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """See `kernels/topk_topp_softmax.cu`.

    >>> topk_topp_softmax(torch.tensor([[4.0, 4.0, 2.0]]), torch.ones(1), threshold=torch.tensor([4.0]))[0]
    tensor([[0.5000, 0.5000, 0.0000]])
    """
    rows = rows_of(logits, inv_temp, threshold)
    below = rows.logits * rows.scale[:, None] - rows.max[:, None]
    possible = rows.good[:, None] & (rows.logits >= rows.threshold[:, None]) & (below > -126.0)
    probs = torch.where(possible, exp2_nonpositive(below) * rows.inv[:, None], 0.0)
    status = torch.where(rows.scale > 0, torch.where(rows.good, 0, BAD_TARGET), BAD_SETTING)
    return probs, int32(status)
