"""`torch.ops.specref.tree_attn` and `kv_compact_`."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from specref.cuda import reference_cache
from specref.cuda.checks import LOGIT_TYPES, expect
from specref.cuda.launch import TYPE_NAMES, launch
from specref.cuda.ops import FLOAT, INT, LONG, register, taking

HALF_TYPES = (torch.bfloat16, torch.float16)
ROWS_PER_BLOCK = 64


class AttentionCall(NamedTuple):
    """The arguments of `tree_attn`, as in its schema."""

    q: Tensor
    k_cache: Tensor
    v_cache: Tensor
    block_table: Tensor | None
    k_tree: Tensor
    v_tree: Tensor
    mask: Tensor
    lengths: Tensor
    scale: float


def _attn_outputs(call: AttentionCall) -> tuple[Tensor, Tensor, Tensor]:
    op, q = "tree_attn", call.q
    expect(op, "q", q, (None, None, None, None), HALF_TYPES, q)
    B, N, Hq, D = q.shape
    if D not in (64, 128):
        raise ValueError(f"{op}: heads have 64 or 128 dimensions, got {D}")
    if not 1 <= N <= 64:
        raise ValueError(f"{op}: a tree has 1 to 64 nodes, got {N}")
    expect(op, "k_tree", call.k_tree, (B, N, None, D), q.dtype, q)
    Hk = call.k_tree.shape[2]
    if Hk == 0 or Hq % Hk:
        raise ValueError(f"{op}: the number of query heads must be a multiple of the number of key heads, got {Hq} and {Hk}")
    expect(op, "v_tree", call.v_tree, (B, N, Hk, D), q.dtype, q)
    rows = B if call.block_table is None else None
    expect(op, "k_cache", call.k_cache, (rows, None, Hk, D), q.dtype, q)
    expect(op, "v_cache", call.v_cache, call.k_cache.shape, q.dtype, q)
    expect(op, "block_table", call.block_table, (B, None), INT, q)
    expect(op, "mask", call.mask, (B, N), LONG, q)
    expect(op, "lengths", call.lengths, (B,), INT, q)
    return torch.empty_like(q), q.new_empty((B, N, Hq), dtype=FLOAT), q.new_empty((B,), dtype=INT)


def _attn(call: AttentionCall) -> tuple[Tensor, Tensor, Tensor]:
    outputs = _attn_outputs(call)
    B, N, Hq, D = call.q.shape
    Hk = call.k_tree.shape[2]
    grid = (-(-N * (Hq // Hk) // ROWS_PER_BLOCK), Hk, B)
    pages, page_size = call.k_cache.shape[:2]
    pages_per_row = 0 if call.block_table is None else call.block_table.shape[1]
    sizes = (N, page_size, Hq, Hk, page_size, pages, pages_per_row)
    kernel = f"tree_attn_{TYPE_NAMES[call.q.dtype]}_{D}"
    launch(call.q.device, "tree_attn", kernel, grid, 128, 0, *call[:-1], float(call.scale), *outputs, *sizes)
    return outputs


register(
    "tree_attn(Tensor q, Tensor k_cache, Tensor v_cache, Tensor? block_table, Tensor k_tree, Tensor v_tree, Tensor mask, "
    "Tensor lengths, float scale) -> (Tensor out, Tensor lse, Tensor status)",
    taking(AttentionCall, _attn),
    taking(AttentionCall, _attn_outputs),
    reference_cache.tree_attn,
)


class CompactCall(NamedTuple):
    """The arguments of `kv_compact_`, as in its schema."""

    k: Tensor
    v: Tensor
    block_table: Tensor | None
    path: Tensor
    num_accepted: Tensor
    lengths: Tensor


def _compact_outputs(call: CompactCall) -> tuple[Tensor, Tensor]:
    op, k = "kv_compact_", call.k
    expect(op, "path", call.path, (None, None), INT, k)
    B, columns = call.path.shape
    if columns == 0:
        raise ValueError(f"{op}: path must have D + 1 >= 1 columns, got none")
    expect(op, "k", k, (None, B if call.block_table is None else None, None, None, None), LOGIT_TYPES, k)
    expect(op, "v", call.v, k.shape, k.dtype, k)
    expect(op, "block_table", call.block_table, (B, None), INT, k)
    expect(op, "num_accepted", call.num_accepted, (B,), INT, k)
    expect(op, "lengths", call.lengths, (B,), INT, k)
    return call.lengths.new_empty((B,)), call.lengths.new_empty((B,))


def _compact(call: CompactCall) -> tuple[Tensor, Tensor]:
    outputs, k = _compact_outputs(call), call.k
    B, columns = call.path.shape
    L, pages, S, Hk, D = k.shape
    token_bytes = Hk * D * k.element_size()
    unit = 16 if token_bytes % 16 == 0 and k.data_ptr() % 16 == 0 and call.v.data_ptr() % 16 == 0 else 2
    units = token_bytes // unit
    threads = min(256, -(-units // 32) * 32)
    pages_per_row = 0 if call.block_table is None else call.block_table.shape[1]
    launch(
        *(k.device, "kv_compact", f"kv_compact_{unit}", (-(-units // threads), L, B), threads, 0),
        *(*call, *outputs, B, S, columns - 1, units, S, pages, pages_per_row),
    )
    return outputs


register(
    "kv_compact_(Tensor(a!) k, Tensor(b!) v, Tensor? block_table, Tensor path, Tensor num_accepted, Tensor lengths) "
    "-> (Tensor new_lengths, Tensor status)",
    taking(CompactCall, _compact),
    taking(CompactCall, _compact_outputs),
    reference_cache.kv_compact_,
)
