"""What `tree_attn` and `kv_compact_` compute, in plain torch: the first up to rounding (float64 here), the second exactly."""

from __future__ import annotations

import torch
from torch import Tensor

from specref.cuda.reference import BAD_SETTING, BAD_TREE, int32


def cache_rows(cache: Tensor, block_table: Tensor | None) -> Tensor:
    """A cache as `[B, slots, Hk, D]`, pages put in order; pages that don't exist read as page 0.

    >>> pages = torch.tensor([10.0, 20.0, 30.0]).reshape(3, 1, 1, 1)                      # of one slot each
    >>> cache_rows(pages, torch.tensor([[2, 0]])).flatten()
    tensor([30., 10.])
    """
    if block_table is None:
        return cache
    pages = cache[block_table.long().clamp(0, cache.shape[0] - 1)]  # [B, pages_per_row, page_size, Hk, D]
    return pages.flatten(1, 2)


def tree_attn(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor | None,
    k_tree: Tensor,
    v_tree: Tensor,
    mask: Tensor,
    lengths: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `kernels/tree_attn.cu`."""
    B, N, Hq, _ = q.shape
    Hk = k_tree.shape[2]
    k_old, v_old = cache_rows(k_cache, block_table), cache_rows(v_cache, block_table)
    slots = k_old.shape[1]
    bad = (lengths < 0) | (lengths > slots)
    if block_table is not None:
        in_use = torch.arange(block_table.shape[1], device=q.device) * k_cache.shape[1] < lengths[:, None]
        bad |= (in_use & ((block_table < 0) | (block_table >= k_cache.shape[0]))).any(dim=-1)

    repeat = Hq // Hk
    keys = torch.cat([k_old, k_tree], dim=1).double().repeat_interleave(repeat, dim=2)
    values = torch.cat([v_old, v_tree], dim=1).double().repeat_interleave(repeat, dim=2)
    scores = torch.einsum("bnhd,bkhd->bhnk", q.double(), keys) * scale
    of_prefix = (torch.arange(slots, device=q.device) < lengths[:, None])[:, None, :].expand(B, N, slots)
    of_tree = (mask[:, :, None] >> torch.arange(N, device=q.device) & 1).bool()
    visible = torch.cat([of_prefix, of_tree], dim=-1) & ~bad[:, None, None]
    scores = scores.masked_fill(~visible[:, None], float("-inf"))
    lse = torch.logsumexp(scores, dim=-1)
    weights = torch.where(visible[:, None], torch.exp(scores - torch.nan_to_num(lse, neginf=0.0)[..., None]), 0.0)
    values = torch.where(visible.any(dim=1)[:, :, None, None], values, 0.0)  # unused slots may hold anything, NaN too
    out = torch.einsum("bhnk,bkhd->bnhd", weights, values)
    return out.to(q.dtype), lse.transpose(1, 2).float().contiguous(), int32(torch.where(bad, BAD_SETTING, 0))


def kv_compact_(
    k: Tensor, v: Tensor, block_table: Tensor | None, path: Tensor, num_accepted: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """See `kernels/kv_compact.cu`. Copies first and writes afterwards, which needs no argument about overlap."""
    columns = path.shape[1]
    slots = k.shape[2] if block_table is None else block_table.shape[1] * k.shape[2]
    place = torch.arange(columns, device=k.device)
    in_use = place <= num_accepted[:, None]
    setting = (num_accepted < 0) | (num_accepted >= columns) | (lengths < 0)
    before = torch.nn.functional.pad(path[:, :-1], (1, 0), value=-1)
    rises = torch.where(place == 0, path == 0, path > before) & (path >= place)
    inside = path < slots - lengths[:, None]
    destination = (lengths[:, None] + place).clamp(0, slots - 1).long()
    source = (lengths[:, None] + path).clamp(0, slots - 1).long()
    if block_table is None:
        exists = torch.ones_like(inside)
    else:
        page_size, pages = k.shape[2], k.shape[1]
        page_from = block_table.long().gather(1, source // page_size)
        page_to = block_table.long().gather(1, destination // page_size)
        exists = (page_from >= 0) & (page_from < pages) & (page_to >= 0) & (page_to < pages)
        source = page_from * page_size + source % page_size
        destination = page_to * page_size + destination % page_size
    bad_path = in_use & ~rises
    bad_place = in_use & rises & ~(inside & exists)
    status = torch.where(bad_path.any(dim=-1), BAD_TREE, 0) | torch.where(bad_place.any(dim=-1), BAD_SETTING, 0)
    status = torch.where(setting, BAD_SETTING, status)

    row, column = (in_use & (status == 0)[:, None]).nonzero(as_tuple=True)
    for cache in (k, v):
        if block_table is None:
            cache[:, row, destination[row, column]] = cache[:, row, source[row, column]]
        else:
            flat = cache.view(cache.shape[0], -1, *cache.shape[3:])
            flat[:, destination[row, column]] = flat[:, source[row, column]]
    return int32(torch.where(status == 0, lengths + num_accepted + 1, lengths)), int32(status)
