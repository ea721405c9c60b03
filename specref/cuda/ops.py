"""`torch.ops.specref.*` for rows and chains: schema, CPU and CUDA implementation, fake implementation.

One Python function per op serves both devices: it checks, allocates and launches. On a CPU without a C++ compiler the torch
reference of the same name answers instead, after one warning. Nothing here waits for a GPU, looks at a value, or picks a grid
from data, so ops can be captured in CUDA graphs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from specref.cuda import reference
from specref.cuda.checks import LOGIT_TYPES, expect, expect_together, expect_vocabulary
from specref.cuda.emulator import emulator_unavailable_reason
from specref.cuda.launch import TYPE_NAMES, chunks_of, launch, row_threads

LIBRARY = torch.library.Library("specref", "DEF")  # type: ignore[no-untyped-call]
FLOAT, INT, LONG = torch.float32, torch.int32, torch.int64


@cache
def _warn_once(reason: str) -> None:
    warnings.warn(reason, RuntimeWarning, stacklevel=3)


def register(schema: str, run: Callable[..., Any], fake: Callable[..., Any], plain: Callable[..., Any]) -> None:
    """Make an op of `run`. `fake` gives outputs of the right shape, `plain` is the torch reference of the same signature."""
    name = schema.split("(")[0]

    def on_cpu(*args: Any, **kwargs: Any) -> Any:
        reason = emulator_unavailable_reason()
        if reason is None:
            return run(*args, **kwargs)
        _warn_once(reason)
        fake(*args, **kwargs)  # the same checks
        return plain(*args, **kwargs)

    LIBRARY.define(schema)  # type: ignore[no-untyped-call]
    LIBRARY.impl(name, on_cpu, "CPU")  # type: ignore[no-untyped-call]
    LIBRARY.impl(name, run, "CUDA")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"specref::{name}", fake, lib=LIBRARY)


def taking(call: Callable[..., Any], function: Callable[[Any], Any]) -> Callable[..., Any]:
    """`function`, which takes one `call`, as a function of the call's fields: for ops with many arguments."""
    return lambda *args, **kwargs: function(call(*args, **kwargs))


# ---- row_norm ---------------------------------------------------------------------------------------------------------------


def _row_norm_outputs(logits: Tensor, inv_temp: Tensor, threshold: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    expect("row_norm", "logits", logits, (None, None), LOGIT_TYPES, logits)
    R, V = logits.shape
    expect_vocabulary("row_norm", V)
    expect("row_norm", "inv_temp", inv_temp, (R,), FLOAT, logits)
    expect("row_norm", "threshold", threshold, (R,), FLOAT, logits)
    return logits.new_empty((R, 2), dtype=FLOAT), logits.new_empty((R,), dtype=INT), logits.new_empty((R,), dtype=INT)


def _row_norm(logits: Tensor, inv_temp: Tensor, threshold: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    outputs = _row_norm_outputs(logits, inv_temp, threshold)
    R, V = logits.shape
    kernel, threads = f"row_norm_{TYPE_NAMES[logits.dtype]}", row_threads(logits.device, V)
    launch(logits.device, "row_norm", kernel, (R,), threads, 8 * chunks_of(V), logits, inv_temp, threshold, *outputs, V)
    return outputs


register(
    "row_norm(Tensor logits, Tensor inv_temp, Tensor? threshold=None) -> (Tensor norm, Tensor argmax, Tensor status)",
    _row_norm,
    _row_norm_outputs,
    reference.row_norm,
)


# ---- sample_rows ------------------------------------------------------------------------------------------------------------


def _sample_rows_outputs(
    logits: Tensor, inv_temp: Tensor, threshold: Tensor | None, u: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    expect("sample_rows", "logits", logits, (None, None), LOGIT_TYPES, logits)
    R, V = logits.shape
    expect_vocabulary("sample_rows", V)
    expect("sample_rows", "inv_temp", inv_temp, (R,), FLOAT, logits)
    expect("sample_rows", "threshold", threshold, (R,), FLOAT, logits)
    expect("sample_rows", "u", u, (R,), FLOAT, logits)
    return logits.new_empty((R,), dtype=INT), logits.new_empty((R, 2), dtype=FLOAT), logits.new_empty((R,), dtype=INT)


def _sample_rows(logits: Tensor, inv_temp: Tensor, threshold: Tensor | None, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    outputs = _sample_rows_outputs(logits, inv_temp, threshold, u)
    R, V = logits.shape
    kernel, threads = f"sample_rows_{TYPE_NAMES[logits.dtype]}", row_threads(logits.device, V)
    launch(logits.device, "sample_rows", kernel, (R,), threads, 16 * chunks_of(V), logits, inv_temp, threshold, u, *outputs, V)
    return outputs


register(
    "sample_rows(Tensor logits, Tensor inv_temp, Tensor? threshold, Tensor u) -> (Tensor ids, Tensor norm, Tensor status)",
    _sample_rows,
    _sample_rows_outputs,
    reference.sample_rows,
)


# ---- verify_chain -----------------------------------------------------------------------------------------------------------


class ChainCall(NamedTuple):
    """The arguments of `verify_chain`, as in its schema."""

    target: Tensor
    draft: Tensor | None
    draft_norm: Tensor | None
    draft_ids: Tensor
    num_draft: Tensor | None
    u: Tensor
    inv_temp_t: Tensor
    inv_temp_d: Tensor | None = None
    threshold_t: Tensor | None = None
    threshold_d: Tensor | None = None
    split: bool | None = None


def _verify_chain_outputs(call: ChainCall) -> tuple[Tensor, Tensor, Tensor]:
    op, target = "verify_chain", call.target
    expect(op, "target", target, (None, None, None), LOGIT_TYPES, target)
    B, positions, V = target.shape
    K = positions - 1
    if K < 0:
        raise ValueError("verify_chain: target must have K + 1 >= 1 positions, got none")
    expect_vocabulary(op, V)
    expect(op, "draft", call.draft, (B, K, V), target.dtype, target)
    expect(op, "draft_norm", call.draft_norm, (B, K, 2), FLOAT, target)
    expect_together(op, "draft", call.draft, "draft_norm", call.draft_norm)
    expect_together(op, "draft", call.draft, "inv_temp_d", call.inv_temp_d)
    expect(op, "draft_ids", call.draft_ids, (B, K), INT, target)
    expect(op, "num_draft", call.num_draft, (B,), INT, target)
    expect(op, "u", call.u, (B, K + 1), FLOAT, target)
    expect(op, "inv_temp_t", call.inv_temp_t, (B,), FLOAT, target)
    expect(op, "inv_temp_d", call.inv_temp_d, (B,), FLOAT, target)
    expect(op, "threshold_t", call.threshold_t, (B, K + 1), FLOAT, target)
    expect(op, "threshold_d", call.threshold_d, (B, K), FLOAT, target)
    return target.new_empty((B, K + 1), dtype=INT), target.new_empty((B,), dtype=INT), target.new_empty((B,), dtype=INT)


@cache
def _multiprocessors(device: torch.device) -> int:
    return 1 if device.type == "cpu" else int(torch.cuda.get_device_properties(device).multi_processor_count)


def _verify_chain(call: ChainCall) -> tuple[Tensor, Tensor, Tensor]:
    outputs, target, split = _verify_chain_outputs(call), call.target, call.split
    B, positions, V = target.shape
    device, name, chunks = target.device, TYPE_NAMES[target.dtype], chunks_of(V)
    threads = row_threads(device, V)
    settings = (*call[:-1], positions - 1, V)
    # One block per request leaves multiprocessors idle when there are fewer requests than those.
    if not (_multiprocessors(device) > B if split is None else split):
        launch(device, "verify_chain", f"verify_chain_{name}", (B,), threads, 16 * chunks, *settings, *outputs)
        return outputs

    stats = target.new_empty((B, positions, chunks, 2), dtype=FLOAT)
    masses = target.new_empty((B, chunks), dtype=LONG)
    decisions = target.new_empty((B, 4), dtype=INT)
    parts = -(-chunks // (threads // 32))
    file = "verify_chain_split"
    launch(device, file, f"chain_stats_{name}", (parts, B * positions), threads, 0, *settings, stats)
    launch(device, file, f"chain_residual_{name}", (parts, B), threads, 0, *settings, stats, masses, decisions)
    launch(device, file, f"chain_draw_{name}", (B,), threads, 8 * chunks, *settings, masses, decisions, *outputs)
    return outputs


register(
    "verify_chain(Tensor target, Tensor? draft, Tensor? draft_norm, Tensor draft_ids, Tensor? num_draft, Tensor u, "
    "Tensor inv_temp_t, Tensor? inv_temp_d=None, Tensor? threshold_t=None, Tensor? threshold_d=None, bool? split=None) "
    "-> (Tensor out_ids, Tensor num_accepted, Tensor status)",
    taking(ChainCall, _verify_chain),
    taking(ChainCall, _verify_chain_outputs),
    reference.verify_chain,
)
