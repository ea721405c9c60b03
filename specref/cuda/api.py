"""The kernels as ordinary functions: like `torch.ops.specref.*`, but a bad row raises instead of leaving a status to be read.

T is float32, bfloat16 or float16; ids and counts are int32; settings and uniforms float32; all tensors contiguous and on one
device: a GPU, or the CPU, where the kernels are emulated. Uniforms are multiples of 2^-24 in [0, 1). Reading the statuses waits
for the GPU; code that must not wait calls the ops and looks at the statuses later.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specref.cuda.status import raise_for_status


def row_norm(logits: Tensor, inv_temp: Tensor, threshold: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """norm `[R, 2]` (largest scaled logit in log2 units, 1 / sum of 2^(y - largest)) and argmax `[R]` of logits T`[R, V]`.

    Only logits >= threshold `[R]` count. Ties go to the lowest index. Raises BadRows.
    """
    norm, argmax, status = torch.ops.specref.row_norm(logits, inv_temp, threshold)
    raise_for_status("row_norm", status)
    return norm, argmax


def sample_rows(logits: Tensor, inv_temp: Tensor, u: Tensor, threshold: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """One token per row `[R]`, by inverse CDF in index order with u `[R]`; and the rows' norms, which `verify_chain` asks for.

    Raises BadRows.
    """
    ids, norm, status = torch.ops.specref.sample_rows(logits, inv_temp, threshold, u)
    raise_for_status("sample_rows", status)
    return ids, norm


def verify_chain(
    target: Tensor,
    draft: Tensor | None,
    draft_norm: Tensor | None,
    draft_ids: Tensor,
    u: Tensor,
    inv_temp_t: Tensor,
    inv_temp_d: Tensor | None = None,
    num_draft: Tensor | None = None,
    threshold_t: Tensor | None = None,
    threshold_d: Tensor | None = None,
    split: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """The ratio rule on logits (Leviathan et al. 2211.17192): out_ids `[B, K+1]`, padded with -1, and num_accepted `[B]`.

    target T`[B, K+1, V]`, draft T`[B, K, V]` (None: one-hot drafts), draft_ids `[B, K]`, u `[B, K+1]`: column i accepts draft
    i, the last column draws. num_draft `[B]`: how many of the K drafts a row has. split: over many blocks per row; None: for
    small B. Raises BadRows.
    """
    laws = (target, draft, draft_norm, draft_ids, num_draft, u, inv_temp_t, inv_temp_d, threshold_t, threshold_d)
    out_ids, num_accepted, status = torch.ops.specref.verify_chain(*laws, split)
    raise_for_status("verify_chain", status)
    return out_ids, num_accepted


def topk_topp_threshold(logits: Tensor, inv_temp: Tensor, k: Tensor, p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """threshold `[R]`, kept `[R]`, mass int64 `[R]`: keep logits T`[R, V]` >= threshold for top-k, then top-p on the rest.

    Ties with the threshold are all kept. k `[R]` 0: off; p `[R]` 1: off. Raises BadRows.
    """
    threshold, kept, mass, status = torch.ops.specref.topk_topp_threshold(logits, inv_temp, k, p)
    raise_for_status("topk_topp_threshold", status)
    return threshold, kept, mass


def topk_topp_softmax(logits: Tensor, inv_temp: Tensor, threshold: Tensor | None = None) -> Tensor:
    """Probabilities float32 `[R, V]` of the filtered law. Raises BadRows."""
    probs, status = torch.ops.specref.topk_topp_softmax(logits, inv_temp, threshold)
    raise_for_status("topk_topp_softmax", status)
    return probs  # type: ignore[no-any-return]


def tree_build(parents: Tensor, num_nodes: Tensor, prefix_len: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """mask int64 `[B, N]` (bit j: ancestor or self), positions, first_child, next_sibling `[B, N]` of trees of up to 64 nodes.

    Raises BadRows for parents that don't precede their children.
    """
    mask, positions, first_child, next_sibling, status = torch.ops.specref.tree_build(parents, num_nodes, prefix_len)
    raise_for_status("tree_build", status)
    return mask, positions, first_child, next_sibling


def verify_tree_greedy(
    ids: Tensor, first_child: Tensor, next_sibling: Tensor, target_argmax: Tensor | None, target: Tensor | None, max_depth: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Follow the target's argmax down the tree: path, out_ids `[B, max_depth + 1]` and num_accepted `[B]`.

    Pass target_argmax `[B, N]`, or target T`[B, N, V]`, of which only the rows of visited nodes are read. Raises BadRows.
    """
    result = torch.ops.specref.verify_tree_greedy(ids, first_child, next_sibling, target_argmax, target, max_depth)
    path, out_ids, num_accepted, status = result
    raise_for_status("verify_tree_greedy", status)
    return path, out_ids, num_accepted


def verify_tree_sampled(
    ids: Tensor,
    first_child: Tensor,
    next_sibling: Tensor,
    target: Tensor,
    draft: Tensor | None,
    draft_norm: Tensor | None,
    mode: int,
    u: Tensor,
    inv_temp_t: Tensor,
    inv_temp_d: Tensor | None = None,
    threshold_t: Tensor | None = None,
    threshold_d: Tensor | None = None,
    max_depth: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Sampled verification of a tree: path, out_ids `[B, max_depth + 1]`, num_accepted `[B]`.

    mode 0: children drawn iid from the draft's row of their parent (Miao et al. 2305.09781); 1: without replacement (Chen et
    al. 2402.12374); 2: chosen deterministically, draft None. u `[B, N]`: column n - 1 accepts node n, the last column draws.
    max_depth None: N - 1. Raises BadRows.
    """
    depth = ids.shape[1] - 1 if max_depth is None else max_depth
    laws = (target, draft, draft_norm, mode, u, inv_temp_t, inv_temp_d, threshold_t, threshold_d)
    path, out_ids, num_accepted, status = torch.ops.specref.verify_tree_sampled(ids, first_child, next_sibling, *laws, depth)
    raise_for_status("verify_tree_sampled", status)
    return path, out_ids, num_accepted


def tree_attn(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k_tree: Tensor,
    v_tree: Tensor,
    mask: Tensor,
    lengths: Tensor,
    scale: float,
    block_table: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of tree nodes q T`[B, N, Hq, D]` to the prefix and to their ancestors: out like q, lse `[B, N, Hq]`.

    T is bfloat16 or float16, D is 64 or 128. Caches T`[B, S, Hk, D]`, or pages T`[pages, page_size, Hk, D]` with block_table
    `[B, pages_per_row]`; k_tree, v_tree T`[B, N, Hk, D]`; mask from `tree_build`. Raises BadRows.
    """
    out, lse, status = torch.ops.specref.tree_attn(q, k_cache, v_cache, block_table, k_tree, v_tree, mask, lengths, scale)
    raise_for_status("tree_attn", status)
    return out, lse


def kv_compact_(
    k: Tensor, v: Tensor, path: Tensor, num_accepted: Tensor, lengths: Tensor, block_table: Tensor | None = None
) -> Tensor:
    """Move the accepted nodes' keys and values to the front of the tree's slots, in place; returns the new lengths `[B]`.

    k, v T`[L, B, S, Hk, D]`, or pages T`[L, pages, page_size, Hk, D]`; node n lies in slot lengths + n. A bad row (BadRows)
    keeps its slots, the others are moved.
    """
    new_lengths, status = torch.ops.specref.kv_compact_(k, v, block_table, path, num_accepted, lengths)
    raise_for_status("kv_compact_", status)
    return new_lengths  # type: ignore[no-any-return]
