"""What the row and chain kernels compute, in plain torch, bit for bit.

Every function here takes and returns what the op of the same name in `torch.ops.specref` does. There is no loop over rows or
over the vocabulary. The arithmetic is that of `kernels/portable.cuh` and `kernels/rows.cuh`: correctly rounded float32
operations in one stated order, then integers.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

BAD_TARGET, BAD_DRAFT, BAD_ID, BAD_TREE, BAD_SETTING = 1, 2, 4, 8, 16

CHUNK, LANES, GROUPS, WIDTH = 1024, 32, 8, 4
ONE = 1 << 40  # probability 1 as a mass
INFINITY = float("inf")
_ROUND = 12582912.0  # 1.5 * 2^23
_COEFFICIENTS = (  # of 2^f - 1 over f, highest power first; the highest of all is in exp2_nonpositive
    *(1.339887440266574e-3, 9.618437357674640e-3, 5.550332471162809e-2),
    *(2.402264791363012e-1, 6.931472028550421e-1, 1.0),
)


def float32(x: float, like: Tensor) -> Tensor:
    """A float32 scalar tensor on the device of `like`.

    >>> float32(0.1, like=torch.zeros(1)).dtype
    torch.float32
    """
    return torch.tensor(x, dtype=torch.float32, device=like.device)


def fused_multiply_add(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """a * b + c in float32 with a single rounding (results must not be subnormal).

    The product of two floats is exact in double, the sum may not be. Rounding it to double and then to float differs from
    rounding once only where the double lies exactly half-way between two floats. There, and only there, it is nudged towards
    what the first rounding lost.

    >>> x = torch.tensor(1 + 2.0**-12)
    >>> fused_multiply_add(x, x, torch.tensor(-1.0)).item() == 2.0**-11 + 2.0**-24         # x * x alone loses 2^-24
    True
    """
    product, addend = torch.broadcast_tensors(a.double() * b.double(), c.double())  # type: ignore[no-untyped-call]
    total = product + addend
    bits = total.view(torch.int64)
    half_way = (bits & 0x1FFFFFFF) == 0x10000000
    if bool(half_way.any()):
        back = total - product
        lost = (product - (total - back)) + (addend - back)  # what the addition rounded away, exactly (Knuth's two-sum)
        away_from_zero = torch.where((lost > 0) == (total > 0), 1, -1)
        total = torch.where(half_way & (lost != 0), bits + away_from_zero, bits).view(torch.float64)
    rounded: Tensor = total.float()
    return rounded


def exp2_nonpositive(x: Tensor) -> Tensor:
    """2^x for float32 x <= 0, with the kernels' own polynomial; 2^-126 below -126 and for NaN.

    >>> exp2_nonpositive(torch.tensor([0.0, -1.0, -0.5]))
    tensor([1.0000, 0.5000, 0.7071])
    """
    x = torch.where(x > -126.0, x, float32(-126.0, x))
    t = x + _ROUND
    f = x - (t - _ROUND)
    p = float32(1.535336188319500e-4, x).expand_as(x)
    for coefficient in _COEFFICIENTS:
        p = fused_multiply_add(p, f, float32(coefficient, x))
    return (p.contiguous().view(torch.int32) + (t.contiguous().view(torch.int32) << 23)).view(torch.float32)


def scale_of(inv_temp: Tensor) -> Tensor:
    """The inverse temperature as a factor to log2 units; 0 when it is not positive and finite.

    >>> scale_of(torch.tensor([1.0, -1.0]))
    tensor([1.4427, 0.0000])
    """
    scale = inv_temp * float32(1.4426950408889634, inv_temp)
    return torch.where((scale > 0) & (scale < INFINITY), scale, torch.zeros_like(scale))


def uniform_24(u: Tensor) -> Tensor:
    """A uniform in [0, 1) as an integer in [0, 2^24); -1 when it isn't one.

    >>> uniform_24(torch.tensor([0.5, 1.0]))
    tensor([8388608,      -1])
    """
    good = (u >= 0) & (u < 1)
    return torch.where(good, (torch.where(good, u, torch.zeros_like(u)) * 16777216.0).long(), -1)


def times_u(mass: Tensor, u24: Tensor) -> Tensor:
    """floor(mass * u): mass * u24 / 2^24 without leaving 63 bits.

    >>> times_u(torch.tensor([3]), u24=torch.tensor([1 << 23]))
    tensor([1])
    """
    return (mass >> 24) * u24 + (((mass & 0xFFFFFF) * u24) >> 24)


class Rows(NamedTuple):
    """Rows of logits with their settings and norms, all `[..., ]` but logits `[..., V]`."""

    logits: Tensor  # float32
    scale: Tensor
    threshold: Tensor
    max: Tensor
    inv: Tensor
    largest: Tensor
    good: Tensor

    @property
    def norm(self) -> Tensor:
        """`[..., 2]` as the ops return it."""
        return torch.stack([self.max, self.inv], dim=-1)

    def take(self, index: Tensor) -> Rows:
        """Of `[B, n]` rows, row index[b] of each b."""
        rows = torch.arange(index.shape[0], device=index.device)
        return Rows(*(field[rows, index] for field in self))


def _butterfly(v: Tensor) -> Tensor:
    """The sum over the last axis (32 lanes) in the order of warp_sum."""
    lanes = torch.arange(LANES, device=v.device)
    for bit in (16, 8, 4, 2, 1):
        v = v + v[..., lanes ^ bit]
    return v[..., 0]


def _in_turn(v: Tensor) -> Tensor:
    """The sum over the last axis, left to right."""
    total = torch.zeros_like(v[..., 0])
    for i in range(v.shape[-1]):
        total = total + v[..., i]
    return total


def rows_of(logits: Tensor, inv_temp: Tensor, threshold: Tensor | None) -> Rows:
    """The norm of each row: logits `[..., V]`, inv_temp and threshold `[...]`.

    >>> rows_of(torch.tensor([[1.0, 3.0]]).log(), torch.ones(1), None).norm               # log2 of 3, and 1 / (1 + 1/3)
    tensor([[1.5850, 0.7500]])
    """
    z = logits.float()
    V = z.shape[-1]
    scale = scale_of(inv_temp).expand(z.shape[:-1])
    kept_from = torch.full_like(scale, -INFINITY) if threshold is None else threshold.expand(scale.shape)
    bad = ~(z * scale[..., None] < INFINITY)
    kept = torch.where(z >= kept_from[..., None], z, float32(-INFINITY, z))

    chunks = -(-V // CHUNK)
    pad = torch.nn.functional.pad
    by_chunk = pad(kept, (0, chunks * CHUNK - V), value=-INFINITY).reshape(*kept.shape[:-1], chunks, GROUPS, LANES, WIDTH)
    by_lane = by_chunk.transpose(-3, -2).flatten(-2)  # [..., chunks, lanes, 32 logits of the lane]
    largest_in = by_lane.amax(dim=(-2, -1))
    top = largest_in * scale[..., None]
    filled = min(GROUPS, -(-V // (LANES * WIDTH))) * WIDTH  # the others are padding, whose terms are 2^-126 whatever the row
    terms = exp2_nonpositive(by_lane[..., :filled] * scale[..., None, None, None] - top[..., None, None])
    sums = _butterfly(_in_turn(pad(terms, (0, GROUPS * WIDTH - filled), value=2.0**-126)))

    largest = largest_in.amax(dim=-1)
    row_max = largest * scale + 0.0
    scaled_sums = sums * exp2_nonpositive(top - row_max[..., None])
    per_lane = pad(scaled_sums, (0, -chunks % LANES)).reshape(*kept.shape[:-1], -1, LANES).transpose(-2, -1)
    total = _butterfly(_in_turn(per_lane))
    inv = float32(1.0, z) / total
    good = (scale > 0) & (row_max > -INFINITY) & (total >= 1) & ~bad.any(dim=-1)
    zero = torch.zeros_like(inv)
    return Rows(z, scale, kept_from, torch.where(good, row_max, zero), torch.where(good, inv, zero), largest, good)


def masses(rows: Rows, z: Tensor | None = None) -> Tensor:
    """floor(2^40 p) for the logits z `[..., n]` of the rows; None: for all of them, `[..., V]`.

    >>> masses(rows_of(torch.tensor([[1.0, 3.0]]).log(), torch.ones(1), None)).double() / ONE
    tensor([[0.2500, 0.7500]], dtype=torch.float64)
    """
    z = rows.logits if z is None else z
    below = torch.clamp(z * rows.scale[..., None] - rows.max[..., None], max=0.0)
    p = exp2_nonpositive(below) * rows.inv[..., None]
    return torch.where(z >= rows.threshold[..., None], (p * float(ONE)).long(), 0)


def drafted_rows(logits: Tensor, inv_temp: Tensor, threshold: Tensor | None, norm: Tensor) -> Rows:
    """Rows whose norm somebody else has computed, `[..., 2]`."""
    scale = scale_of(inv_temp).expand(norm.shape[:-1])
    kept_from = torch.full_like(scale, -INFINITY) if threshold is None else threshold
    top, inv = norm[..., 0], norm[..., 1]
    usable = (inv > 0) & (inv <= 1) & (top > -INFINITY) & (top < INFINITY)
    return Rows(logits.float(), scale, kept_from, top, inv, top, usable)


def pick(weights: Tensor, u24: Tensor) -> Tensor:
    """The first index whose cumulative weight exceeds u * total; -1 where all weights are zero. weights `[R, V]`, u24 `[R]`.

    >>> pick(torch.tensor([[0, 1, 3], [0, 0, 0]]), u24=torch.tensor([1 << 22, 0]))         # u = 1/4
    tensor([ 2, -1])
    """
    cumulative = weights.cumsum(dim=-1)
    drawn = times_u(cumulative[:, -1], u24)
    index = torch.searchsorted(cumulative, drawn[:, None], right=True)[:, 0]
    return torch.where(cumulative[:, -1] > 0, index, -1)


def int32(x: Tensor) -> Tensor:
    """As the ops return ids, counts and statuses."""
    return x.to(torch.int32)


# ---- the ops -----------------------------------------------------------------------------------------------------------------


def row_norm(logits: Tensor, inv_temp: Tensor, threshold: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """See `kernels/row_norm.cu`.

    >>> row_norm(torch.tensor([[0.0, 1.0, 1.0]]), torch.ones(1))[1]
    tensor([1], dtype=torch.int32)
    """
    rows = rows_of(logits, inv_temp, threshold)
    first = (rows.logits == rows.largest[:, None]).to(torch.int8).argmax(dim=-1)
    status = torch.where(rows.scale > 0, torch.where(rows.good, 0, BAD_TARGET), BAD_SETTING)
    return rows.norm, int32(torch.where(rows.good, first, -1)), int32(status)


def sample_rows(logits: Tensor, inv_temp: Tensor, threshold: Tensor | None, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See `kernels/sample_rows.cu`.

    >>> sample_rows(torch.tensor([[1.0, 3.0]] * 2).log(), torch.ones(2), None, torch.tensor([0.125, 0.25]))[0]
    tensor([0, 1], dtype=torch.int32)
    """
    rows = rows_of(logits, inv_temp, threshold)
    u24 = uniform_24(u)
    status = torch.where((rows.scale > 0) & (u24 >= 0), torch.where(rows.good, 0, BAD_TARGET), BAD_SETTING)
    ids = pick(masses(rows), u24.clamp(min=0))
    return int32(torch.where(status == 0, ids, -1)), rows.norm, int32(status)


def verify_chain(
    target: Tensor,
    draft: Tensor | None,
    draft_norm: Tensor | None,
    draft_ids: Tensor,
    num_draft: Tensor | None,
    u: Tensor,
    inv_temp_t: Tensor,
    inv_temp_d: Tensor | None = None,
    threshold_t: Tensor | None = None,
    threshold_d: Tensor | None = None,
    split: bool | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `kernels/verify_chain.cu`. `split` chooses between two forms of the kernel, which agree."""
    B, positions, V = target.shape
    K = positions - 1
    device = target.device
    drafted = torch.full((B,), K, device=device) if num_draft is None else num_draft.long()
    u24 = uniform_24(u)
    p = rows_of(target, inv_temp_t[:, None], threshold_t)

    # What is known before a row is read.
    setting = (p.scale[:, 0] <= 0) | (drafted < 0) | (drafted > K)
    if draft is not None:
        assert inv_temp_d is not None
        setting |= scale_of(inv_temp_d) <= 0
    column = torch.arange(K, device=device)
    in_use = column < drafted[:, None]  # [B, K]
    status = torch.where((in_use & ((draft_ids < 0) | (draft_ids >= V))).any(dim=-1), BAD_ID, 0)
    bad_u = (in_use & (u24[:, :K] < 0)).any(dim=-1) | (u24[:, K] < 0)
    status = torch.where(setting, BAD_SETTING, status | torch.where(bad_u, BAD_SETTING, 0))

    # The decision at every position, as if it were reached.
    x = draft_ids.long().clamp(0, V - 1)[..., None]
    p_x = masses(Rows(*(field[:, :K] for field in p)), p.logits[:, :K].gather(-1, x))[..., 0]
    if draft is None:
        accept, bad_draft = times_u(torch.full_like(p_x, ONE), u24[:, :K]) < p_x, torch.zeros_like(in_use)
        q = None
    else:
        assert inv_temp_d is not None
        assert draft_norm is not None
        q = drafted_rows(draft, inv_temp_d[:, None], threshold_d, draft_norm)
        z_x = q.logits.gather(-1, x)
        accept = times_u(masses(q, z_x)[..., 0], u24[:, :K]) < p_x
        bad_draft = ~q.good | ~(z_x[..., 0] * q.scale < INFINITY)

    # Walk: the first position that is bad, rejected, or past the last draft.
    accepted = torch.zeros_like(drafted)
    walking = status == 0
    for i in range(positions):
        status = torch.where(walking & ~p.good[:, i], BAD_TARGET, status)
        walking = walking & p.good[:, i] & (i < drafted)
        if i < K:
            status = torch.where(walking & bad_draft[:, i], BAD_DRAFT, status)
            walking = walking & ~bad_draft[:, i] & accept[:, i]
            accepted = accepted + walking

    # The law to draw from: p after the last draft, else the residual; p again where rounding left the residual empty.
    row = p.take(accepted)
    plain = masses(row)
    rejected = accepted < drafted
    at = accepted.clamp(max=max(K - 1, 0))
    weights = plain
    if K and q is None:
        one_hot = torch.arange(V, device=device) == x[:, :, 0].gather(1, at[:, None])
        weights = torch.where(rejected[:, None] & one_hot, 0, plain)
    elif K and q is not None:
        law = q.take(at)
        bad_row = (~(law.logits * law.scale[:, None] < INFINITY)).any(dim=-1)
        status = torch.where((status == 0) & rejected & bad_row, BAD_DRAFT, status)
        weights = torch.where(rejected[:, None], (plain - masses(law)).clamp(min=0), plain)
    weights = torch.where(weights.any(dim=-1, keepdim=True), weights, plain)
    token = pick(weights, u24[:, K].clamp(min=0))

    good = (status == 0)[:, None]
    place = torch.arange(positions, device=device)
    ids = torch.nn.functional.pad(draft_ids.long(), (0, 1))
    out = torch.where(place < accepted[:, None], ids, torch.where(place == accepted[:, None], token[:, None], -1))
    return int32(torch.where(good, out, -1)), int32(torch.where(status == 0, accepted, 0)), int32(status)
