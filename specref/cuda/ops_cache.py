"""`torch.ops.specref.tree_attn` and `kv_compact_`."""

from __future__ import annotations

import torch
from torch import Tensor

from specref.cuda import reference_cache
from specref.cuda.checks import LOGIT_TYPES, expect
from specref.cuda.launch import TYPE_NAMES, launch
from specref.cuda.ops import FLOAT, INT, LONG, register

HALF_TYPES = (torch.bfloat16, torch.float16)
ROWS_PER_BLOCK = 64


def _attn_outputs(
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
    op = "tree_attn"
    expect(op, "q", q, (None, None, None, None), HALF_TYPES, q)
    B, N, Hq, D = q.shape
    if D not in (64, 128):
        raise ValueError(f"{op}: heads have 64 or 128 dimensions, got {D}")
    if not 1 <= N <= 64:
        raise ValueError(f"{op}: a tree has 1 to 64 nodes, got {N}")
    expect(op, "k_tree", k_tree, (B, N, None, D), q.dtype, q)
    Hk = k_tree.shape[2]
    if Hk == 0 or Hq % Hk:
        raise ValueError(f"{op}: the number of query heads must be a multiple of the number of key heads, got {Hq} and {Hk}")
    expect(op, "v_tree", v_tree, (B, N, Hk, D), q.dtype, q)
    rows = B if block_table is None else None
    expect(op, "k_cache", k_cache, (rows, None, Hk, D), q.dtype, q)
    expect(op, "v_cache", v_cache, k_cache.shape, q.dtype, q)
    expect(op, "block_table", block_table, (B, None), INT, q)
    expect(op, "mask", mask, (B, N), LONG, q)
    expect(op, "lengths", lengths, (B,), INT, q)
    return torch.empty_like(q), q.new_empty((B, N, Hq), dtype=FLOAT), q.new_empty((B,), dtype=INT)


def _attn(
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
    tensors = (q, k_cache, v_cache, block_table, k_tree, v_tree, mask, lengths)
    outputs = _attn_outputs(*tensors, scale)
    B, N, Hq, D = q.shape
    Hk = k_tree.shape[2]
    grid = (-(-N * (Hq // Hk) // ROWS_PER_BLOCK), Hk, B)
    pages, page_size = k_cache.shape[:2]
    pages_per_row = 0 if block_table is None else block_table.shape[1]
    sizes = (N, page_size, Hq, Hk, page_size, pages, pages_per_row)
    kernel = f"tree_attn_{TYPE_NAMES[q.dtype]}_{D}"
    launch(q.device, "tree_attn", kernel, grid, 128, 0, *tensors, float(scale), *outputs, *sizes)
    return outputs


register(
    "tree_attn(Tensor q, Tensor k_cache, Tensor v_cache, Tensor? block_table, Tensor k_tree, Tensor v_tree, Tensor mask, "
    "Tensor lengths, float scale) -> (Tensor out, Tensor lse, Tensor status)",
    _attn,
    _attn_outputs,
    reference_cache.tree_attn,
)


def _compact_outputs(
    k: Tensor, v: Tensor, block_table: Tensor | None, path: Tensor, num_accepted: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor]:
    op = "kv_compact_"
    expect(op, "path", path, (None, None), INT, k)
    B, columns = path.shape
    if columns == 0:
        raise ValueError(f"{op}: path must have D + 1 >= 1 columns, got none")
    expect(op, "k", k, (None, B if block_table is None else None, None, None, None), LOGIT_TYPES, k)
    expect(op, "v", v, k.shape, k.dtype, k)
    expect(op, "block_table", block_table, (B, None), INT, k)
    expect(op, "num_accepted", num_accepted, (B,), INT, k)
    expect(op, "lengths", lengths, (B,), INT, k)
    return lengths.new_empty((B,)), lengths.new_empty((B,))


def _compact(
    k: Tensor, v: Tensor, block_table: Tensor | None, path: Tensor, num_accepted: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor]:
    outputs = _compact_outputs(k, v, block_table, path, num_accepted, lengths)
    B, columns = path.shape
    L, pages, S, Hk, D = k.shape
    token_bytes = Hk * D * k.element_size()
    unit = 16 if token_bytes % 16 == 0 and k.data_ptr() % 16 == 0 and v.data_ptr() % 16 == 0 else 2
    units = token_bytes // unit
    threads = min(256, -(-units // 32) * 32)
    pages_per_row = 0 if block_table is None else block_table.shape[1]
    launch(
        *(k.device, "kv_compact", f"kv_compact_{unit}", (-(-units // threads), L, B), threads, 0),
        *(k, v, block_table, path, num_accepted, lengths, *outputs),
        *(B, S, columns - 1, units, S, pages, pages_per_row),
    )
    return outputs


register(
    "kv_compact_(Tensor(a!) k, Tensor(b!) v, Tensor? block_table, Tensor path, Tensor num_accepted, Tensor lengths) "
    "-> (Tensor new_lengths, Tensor status)",
    _compact,
    _compact_outputs,
    reference_cache.kv_compact_,
)
