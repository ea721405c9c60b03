"""`torch.ops.specref.tree_build`, `verify_tree_greedy` and `verify_tree_sampled`."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from specref.cuda import reference_trees
from specref.cuda.checks import LOGIT_TYPES, expect, expect_together, expect_vocabulary
from specref.cuda.launch import TYPE_NAMES, chunks_of, launch, row_threads
from specref.cuda.ops import FLOAT, INT, LONG, register, taking

MAX_NODES = 64


def _expect_tree(op: str, ids: Tensor, first_child: Tensor, next_sibling: Tensor, max_depth: int) -> tuple[int, int]:
    expect(op, "ids", ids, (None, None), INT, ids)
    B, N = ids.shape
    if not 1 <= N <= MAX_NODES:
        raise ValueError(f"{op}: a tree has 1 to {MAX_NODES} nodes, got {N}")
    if not 0 <= max_depth < N:
        raise ValueError(f"{op}: max_depth must be 0 to N - 1 = {N - 1}, got {max_depth}")
    expect(op, "first_child", first_child, (B, N), INT, ids)
    expect(op, "next_sibling", next_sibling, (B, N), INT, ids)
    return B, N


def _walk_outputs(ids: Tensor, max_depth: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    B = ids.shape[0]
    table = (B, max_depth + 1)
    return ids.new_empty(table), ids.new_empty(table), ids.new_empty((B,)), ids.new_empty((B,))


# ---- tree_build -------------------------------------------------------------------------------------------------------------


def _build_outputs(parents: Tensor, num_nodes: Tensor, prefix_len: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    expect("tree_build", "parents", parents, (None, None), INT, parents)
    B, N = parents.shape
    if not 1 <= N <= MAX_NODES:
        raise ValueError(f"tree_build: a tree has 1 to {MAX_NODES} nodes, got {N}")
    expect("tree_build", "num_nodes", num_nodes, (B,), INT, parents)
    expect("tree_build", "prefix_len", prefix_len, (B,), INT, parents)
    new = parents.new_empty
    return new((B, N), dtype=LONG), new((B, N)), new((B, N)), new((B, N)), new((B,))


def _build(parents: Tensor, num_nodes: Tensor, prefix_len: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    outputs = _build_outputs(parents, num_nodes, prefix_len)
    B, N = parents.shape
    launch(parents.device, "tree_build", "tree_build", (-(-B // 4),), 128, 0, parents, num_nodes, prefix_len, *outputs, B, N)
    return outputs


register(
    "tree_build(Tensor parents, Tensor num_nodes, Tensor prefix_len) "
    "-> (Tensor mask, Tensor positions, Tensor first_child, Tensor next_sibling, Tensor status)",
    _build,
    _build_outputs,
    reference_trees.tree_build,
)


# ---- verify_tree_greedy -----------------------------------------------------------------------------------------------------


def _greedy_outputs(
    ids: Tensor, first_child: Tensor, next_sibling: Tensor, target_argmax: Tensor | None, target: Tensor | None, max_depth: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    op = "verify_tree_greedy"
    B, N = _expect_tree(op, ids, first_child, next_sibling, max_depth)
    if (target_argmax is None) == (target is None):
        raise ValueError(f"{op}: pass either target_argmax or target, got {'neither' if target is None else 'both'}")
    expect(op, "target_argmax", target_argmax, (B, N), INT, ids)
    expect(op, "target", target, (B, N, None), LOGIT_TYPES, ids)
    if target is not None:
        expect_vocabulary(op, target.shape[-1])
    return _walk_outputs(ids, max_depth)


def _greedy(
    ids: Tensor, first_child: Tensor, next_sibling: Tensor, target_argmax: Tensor | None, target: Tensor | None, max_depth: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    outputs = _greedy_outputs(ids, first_child, next_sibling, target_argmax, target, max_depth)
    B, N = ids.shape
    V = 0 if target is None else target.shape[-1]
    kernel = f"verify_tree_greedy_{'f32' if target is None else TYPE_NAMES[target.dtype]}"
    threads = 32 if target is None else row_threads(ids.device, V)
    arguments = (ids, first_child, next_sibling, target_argmax, target, *outputs, N, V, max_depth)
    launch(ids.device, "verify_tree_greedy", kernel, (B,), threads, 0, *arguments)
    return outputs


register(
    "verify_tree_greedy(Tensor ids, Tensor first_child, Tensor next_sibling, Tensor? target_argmax, Tensor? target, "
    "int max_depth) -> (Tensor path, Tensor out_ids, Tensor num_accepted, Tensor status)",
    _greedy,
    _greedy_outputs,
    reference_trees.verify_tree_greedy,
)


# ---- verify_tree_sampled ----------------------------------------------------------------------------------------------------


class SampledTreeCall(NamedTuple):
    """The arguments of `verify_tree_sampled`, as in its schema."""

    ids: Tensor
    first_child: Tensor
    next_sibling: Tensor
    target: Tensor
    draft: Tensor | None
    draft_norm: Tensor | None
    mode: int
    u: Tensor
    inv_temp_t: Tensor
    inv_temp_d: Tensor | None
    threshold_t: Tensor | None
    threshold_d: Tensor | None
    max_depth: int


def _sampled_outputs(call: SampledTreeCall) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    op, ids, mode = "verify_tree_sampled", call.ids, call.mode
    B, N = _expect_tree(op, ids, call.first_child, call.next_sibling, call.max_depth)
    expect(op, "target", call.target, (B, N, None), LOGIT_TYPES, ids)
    V = call.target.shape[-1]
    expect_vocabulary(op, V)
    if mode not in (0, 1, 2):
        raise ValueError(f"{op}: mode is 0 (iid), 1 (without replacement) or 2 (deterministic children), got {mode}")
    if (call.draft is None) != (mode == 2):
        raise ValueError(f"{op}: mode {mode} {'takes no' if mode == 2 else 'needs'} draft logits")
    expect(op, "draft", call.draft, (B, N, V), call.target.dtype, ids)
    expect(op, "draft_norm", call.draft_norm, (B, N, 2), FLOAT, ids)
    expect_together(op, "draft", call.draft, "draft_norm", call.draft_norm)
    expect_together(op, "draft", call.draft, "inv_temp_d", call.inv_temp_d)
    expect(op, "u", call.u, (B, N), FLOAT, ids)
    expect(op, "inv_temp_t", call.inv_temp_t, (B,), FLOAT, ids)
    expect(op, "inv_temp_d", call.inv_temp_d, (B,), FLOAT, ids)
    expect(op, "threshold_t", call.threshold_t, (B, N), FLOAT, ids)
    expect(op, "threshold_d", call.threshold_d, (B, N), FLOAT, ids)
    return _walk_outputs(ids, call.max_depth)


def _sampled(call: SampledTreeCall) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    outputs = _sampled_outputs(call)
    B, N, V = call.target.shape
    device, file = call.ids.device, "verify_tree_sampled"
    launch(
        *(device, file, f"{file}_{TYPE_NAMES[call.target.dtype]}", (B,), row_threads(device, V), 16 * chunks_of(V)),
        *(*call[:-1], *outputs, N, V, call.max_depth),
    )
    return outputs


register(
    "verify_tree_sampled(Tensor ids, Tensor first_child, Tensor next_sibling, Tensor target, Tensor? draft, "
    "Tensor? draft_norm, int mode, Tensor u, Tensor inv_temp_t, Tensor? inv_temp_d, Tensor? threshold_t, "
    "Tensor? threshold_d, int max_depth) "
    "-> (Tensor path, Tensor out_ids, Tensor num_accepted, Tensor status)",
    taking(SampledTreeCall, _sampled),
    taking(SampledTreeCall, _sampled_outputs),
    reference_trees.verify_tree_sampled,
)
