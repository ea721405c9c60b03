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

    >>> row_norm(torch.tensor([[0.0, 1.0, 1.0]]), torch.ones(1))                      # 1 / ln 2; 1 / (1 + 1 + 1/e)
    (tensor([[1.4427, 0.4223]]), tensor([1], dtype=torch.int32))
    """
    norm, argmax, status = torch.ops.specref.row_norm(logits, inv_temp, threshold)
    raise_for_status("row_norm", status)
    return norm, argmax


def sample_rows(logits: Tensor, inv_temp: Tensor, u: Tensor, threshold: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """One token per row `[R]`, by inverse CDF in index order with u `[R]`; and the rows' norms, which `verify_chain` asks for.

    Raises BadRows.

    >>> ids, norm = sample_rows(torch.tensor([[1.0, 3.0]] * 2).log(), torch.ones(2), torch.tensor([0.125, 0.25]))
    >>> ids                                                                           # the first token has a quarter
    tensor([0, 1], dtype=torch.int32)
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

    >>> target, draft, one = torch.tensor([[[1.0, 3.0]] * 2]).log(), torch.zeros(1, 1, 2), torch.ones(1)
    >>> norm, _ = row_norm(draft[0], one)
    >>> verify_chain(target, draft, norm[None], torch.tensor([[0]]).int(), torch.tensor([[0.6, 0.1]]), one, one)  # p/q = 1/2
    (tensor([[ 1, -1]], dtype=torch.int32), tensor([0], dtype=torch.int32))
    """
    laws = (target, draft, draft_norm, draft_ids, num_draft, u, inv_temp_t, inv_temp_d, threshold_t, threshold_d)
    out_ids, num_accepted, status = torch.ops.specref.verify_chain(*laws, split)
    raise_for_status("verify_chain", status)
    return out_ids, num_accepted


def topk_topp_threshold(logits: Tensor, inv_temp: Tensor, k: Tensor, p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """threshold `[R]`, kept `[R]`, mass int64 `[R]`: keep logits T`[R, V]` >= threshold for top-k, then top-p on the rest.

    Ties with the threshold are all kept. k `[R]` 0: off; p `[R]` 1: off. Raises BadRows.

    >>> topk_topp_threshold(torch.tensor([[4.0, 3.0, 3.0, 1.0]]), torch.ones(1), torch.tensor([2]).int(), torch.ones(1))[:2]
    (tensor([3.]), tensor([3], dtype=torch.int32))
    """
    threshold, kept, mass, status = torch.ops.specref.topk_topp_threshold(logits, inv_temp, k, p)
    raise_for_status("topk_topp_threshold", status)
    return threshold, kept, mass


def topk_topp_softmax(logits: Tensor, inv_temp: Tensor, threshold: Tensor | None = None) -> Tensor:
    """Probabilities float32 `[R, V]` of the filtered law. Raises BadRows.

    >>> topk_topp_softmax(torch.tensor([[4.0, 4.0, 2.0]]), torch.ones(1), threshold=torch.tensor([4.0]))
    tensor([[0.5000, 0.5000, 0.0000]])
    """
    probs, status = torch.ops.specref.topk_topp_softmax(logits, inv_temp, threshold)
    raise_for_status("topk_topp_softmax", status)
    return probs  # type: ignore[no-any-return]


def tree_build(parents: Tensor, num_nodes: Tensor, prefix_len: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """mask int64 `[B, N]` (bit j: ancestor or self), positions, first_child, next_sibling `[B, N]` of trees of up to 64 nodes.

    Raises BadRows for parents that don't precede their children.

    >>> mask, positions, first_child, next_sibling = tree_build(
    ...     torch.tensor([[-1, 0, 0, 2]]).int(), num_nodes=torch.tensor([4]).int(), prefix_len=torch.tensor([10]).int()
    ... )
    >>> [f"{bits:04b}" for bits in mask[0].tolist()], positions.tolist()
    (['0001', '0011', '0101', '1101'], [[10, 11, 11, 12]])
    >>> first_child.tolist(), next_sibling.tolist()
    ([[1, -1, 3, -1]], [[-1, 2, -1, -1]])
    """
    mask, positions, first_child, next_sibling, status = torch.ops.specref.tree_build(parents, num_nodes, prefix_len)
    raise_for_status("tree_build", status)
    return mask, positions, first_child, next_sibling


def verify_tree_greedy(
    ids: Tensor, first_child: Tensor, next_sibling: Tensor, target_argmax: Tensor | None, target: Tensor | None, max_depth: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Follow the target's argmax down the tree: path, out_ids `[B, max_depth + 1]` and num_accepted `[B]`.

    Pass target_argmax `[B, N]`, or target T`[B, N, V]`, of which only the rows of visited nodes are read. Raises BadRows.

    >>> links = torch.tensor([[1, -1, 3, -1]]).int(), torch.tensor([[-1, 2, -1, -1]]).int()
    >>> ids, best = torch.tensor([[7, 0, 1, 1]]).int(), torch.tensor([[1, 0, 1, 0]]).int()
    >>> path, out_ids, num_accepted = verify_tree_greedy(ids, *links, target_argmax=best, target=None, max_depth=2)
    >>> path.tolist(), out_ids.tolist()                                   # the path names the root; after node 3 comes 0
    ([[0, 2, 3]], [[1, 1, 0]])
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

    >>> target = torch.tensor([[[0.5, 0.25, 0.25]] * 3]).log()
    >>> links = torch.tensor([[1, -1, -1]]).int(), torch.tensor([[-1, 2, -1]]).int()
    >>> u = torch.tensor([[0.6, 0.4, 0.0]])                               # 1/2 rejects token 0, then 1/4 of the 1/2 left
    >>> verify_tree_sampled(torch.tensor([[7, 0, 1]]).int(), *links, target, None, None, 2, u, torch.ones(1))[1].tolist()
    [[1, 0, -1]]
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

    >>> zeros, mask = torch.zeros(1, 2, 1, 64).half(), torch.tensor([[0b01, 0b11]])       # a root and its child
    >>> prefix, tree = (torch.full((1, n, 1, 64), value).half() for n, value in ((3, 1.0), (2, 5.0)))
    >>> out, _ = tree_attn(zeros, prefix * 0, prefix, zeros, tree, mask, torch.tensor([3]).int(), scale=1.0)
    >>> out[0, :, 0, 0]                                                   # means of 1, 1, 1, 5 and of 1, 1, 1, 5, 5
    tensor([2.0000, 2.5996], dtype=torch.float16)
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

    >>> k = torch.tensor([10.0, 20, 30, 40, 50, 60]).reshape(1, 1, 6, 1, 1)        # two entries, root 30, its nodes
    >>> path, count = torch.tensor([[0, 2, 3]]).int(), torch.tensor([2]).int()
    >>> kv_compact_(k, k.clone(), path, num_accepted=count, lengths=torch.tensor([2]).int())
    tensor([5], dtype=torch.int32)
    >>> k.flatten()[:5]
    tensor([10., 20., 30., 50., 60.])
    """
    new_lengths, status = torch.ops.specref.kv_compact_(k, v, block_table, path, num_accepted, lengths)
    raise_for_status("kv_compact_", status)
    return new_lengths  # type: ignore[no-any-return]
