"""Where SGLang has its functions, and the components made of them.

sglang 0.5.23 compiles them when they are first called (`sglang.kernels.ops.speculative`); the package sgl-kernel, to 0.3.21,
brought them compiled (`sgl_kernel`), and its successor sglang-kernel 0.4.10 has them no longer for CUDA. All take the same
arguments in the same order; they are handed over by their places, because names differ (retrive_index, retrieve_index).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from conformance.engines.sgl_kernel.building import Inputs, Links
from conformance.engines.sgl_kernel.verifying import Greedy, TargetOnly

SAMPLING, TREE, COMPILED = "sglang.kernels.ops.speculative.sampling", "sglang.kernels.ops.speculative.tree", "sgl_kernel"


def target_only() -> TargetOnly:
    """`tree_speculative_sampling_target_only` on the GPU."""
    return TargetOnly(_function(SAMPLING, "tree_speculative_sampling_target_only"), "cuda")


def greedy() -> Greedy:
    """`verify_tree_greedy` on the GPU."""
    return Greedy(_function(TREE, "verify_tree_greedy"), "cuda")


def inputs() -> Inputs:
    """`build_tree_kernel_efficient` on the GPU."""
    return Inputs(_function(TREE, "build_tree_kernel_efficient"), "cuda")


def links() -> Links:
    """The same function, judged by the links that it writes."""
    return Links(_function(TREE, "build_tree_kernel_efficient"), "cuda")


def _function(place: str, name: str) -> Callable[..., Any]:
    try:
        module = import_module(place)
    except ModuleNotFoundError:
        module = import_module(COMPILED)
    function: Callable[..., Any] = getattr(module, name)
    return function
