"""The verification rules as CUDA kernels, registered as `torch.ops.specref.*`, and an emulator that runs their source on a CPU.

Importing this compiles nothing and needs no GPU. A kernel is compiled at its first use: by NVRTC for a GPU, by g++ for the
emulator. `api` holds the ops as functions that raise for bad rows; `reference*` say in plain torch what each kernel computes,
bit for bit; `python -m specref.cuda.check` shows that they do.
"""

from __future__ import annotations

from specref.cuda import ops, ops_cache, ops_filters, ops_trees
from specref.cuda.api import (
    kv_compact_,
    row_norm,
    sample_rows,
    topk_topp_softmax,
    topk_topp_threshold,
    tree_attn,
    tree_build,
    verify_chain,
    verify_tree_greedy,
    verify_tree_sampled,
)
from specref.cuda.emulator import EmulatorError, emulated, emulator_available, emulator_unavailable_reason
from specref.cuda.nvrtc import CudaUnavailable, nvrtc_available
from specref.cuda.status import BadRows, raise_for_status

OPS_MODULES = (ops, ops_filters, ops_trees, ops_cache)  # importing them registers the ops

__all__ = [
    "BadRows",
    "CudaUnavailable",
    "EmulatorError",
    "emulated",
    "emulator_available",
    "emulator_unavailable_reason",
    "kv_compact_",
    "nvrtc_available",
    "raise_for_status",
    "row_norm",
    "sample_rows",
    "topk_topp_softmax",
    "topk_topp_threshold",
    "tree_attn",
    "tree_build",
    "verify_chain",
    "verify_tree_greedy",
    "verify_tree_sampled",
]
