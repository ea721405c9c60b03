"""vLLM with the one function replaced that its CPU build has wrong at 0.32.0: what conforms then was wrong for that reason."""

from __future__ import annotations

from typing import Any

from conformance.engines import vllm as adapter
from conformance.protocols import Engine, Models


def expand(
    output: Any, values: Any, ends: Any, replace_from: float, replace_to: float, MAX_NUM_TOKENS: int | None = None
) -> None:
    """Write each request's value at all of its drafted tokens. output `[n]`; values, ends `[requests]`."""
    counts = ends.diff(prepend=ends.new_zeros(1))
    output.copy_(values.where(values != replace_from, values.new_tensor(replace_to)).repeat_interleave(counts))


def make(models: Models) -> Engine:
    """The adapter's own engine, over a corrected vLLM."""
    engine = adapter.make(models)
    correct()
    return engine


def correct() -> None:
    """Replace it in this process."""
    from vllm.utils import cpu_triton_utils

    cpu_triton_utils._expand_kernel_impl = expand
