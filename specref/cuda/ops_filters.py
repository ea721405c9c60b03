"""`torch.ops.specref.topk_topp_threshold` and `topk_topp_softmax`."""

from __future__ import annotations

from torch import Tensor

from specref.cuda import reference_filters
from specref.cuda.checks import LOGIT_TYPES, expect, expect_vocabulary
from specref.cuda.launch import TYPE_NAMES, chunks_of, launch, row_threads
from specref.cuda.ops import FLOAT, INT, LONG, register


def _threshold_outputs(logits: Tensor, inv_temp: Tensor, k: Tensor, p: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    op = "topk_topp_threshold"
    expect(op, "logits", logits, (None, None), LOGIT_TYPES, logits)
    R, V = logits.shape
    expect_vocabulary(op, V)
    expect(op, "inv_temp", inv_temp, (R,), FLOAT, logits)
    expect(op, "k", k, (R,), INT, logits)
    expect(op, "p", p, (R,), FLOAT, logits)
    new = logits.new_empty
    return new((R,), dtype=FLOAT), new((R,), dtype=INT), new((R,), dtype=LONG), new((R,), dtype=INT)


def _threshold(logits: Tensor, inv_temp: Tensor, k: Tensor, p: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    outputs = _threshold_outputs(logits, inv_temp, k, p)
    R, V = logits.shape
    file = "topk_topp_threshold"
    threads = row_threads(logits.device, V)
    launch(logits.device, file, f"{file}_{TYPE_NAMES[logits.dtype]}", (R,), threads, 0, logits, inv_temp, k, p, *outputs, V)
    return outputs


register(
    "topk_topp_threshold(Tensor logits, Tensor inv_temp, Tensor k, Tensor p) "
    "-> (Tensor threshold, Tensor kept, Tensor mass, Tensor status)",
    _threshold,
    _threshold_outputs,
    reference_filters.topk_topp_threshold,
)


def _softmax_outputs(logits: Tensor, inv_temp: Tensor, threshold: Tensor | None = None) -> tuple[Tensor, Tensor]:
    op = "topk_topp_softmax"
    expect(op, "logits", logits, (None, None), LOGIT_TYPES, logits)
    R, V = logits.shape
    expect_vocabulary(op, V)
    expect(op, "inv_temp", inv_temp, (R,), FLOAT, logits)
    expect(op, "threshold", threshold, (R,), FLOAT, logits)
    return logits.new_empty((R, V), dtype=FLOAT), logits.new_empty((R,), dtype=INT)


def _softmax(logits: Tensor, inv_temp: Tensor, threshold: Tensor | None = None) -> tuple[Tensor, Tensor]:
    outputs = _softmax_outputs(logits, inv_temp, threshold)
    R, V = logits.shape
    kernel = f"topk_topp_softmax_{TYPE_NAMES[logits.dtype]}"
    threads, shared = row_threads(logits.device, V), 8 * chunks_of(V)
    launch(logits.device, "topk_topp_softmax", kernel, (R,), threads, shared, logits, inv_temp, threshold, *outputs, V)
    return outputs


register(
    "topk_topp_softmax(Tensor logits, Tensor inv_temp, Tensor? threshold=None) -> (Tensor probs, Tensor status)",
    _softmax,
    _softmax_outputs,
    reference_filters.topk_topp_softmax,
)
