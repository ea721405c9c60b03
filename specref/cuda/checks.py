"""The border of the ops: shapes, types and layout are checked once here; kernels trust them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

LOGIT_TYPES = (torch.float32, torch.bfloat16, torch.float16)
_NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in (*LOGIT_TYPES, torch.int32, torch.int64)}


def expect(
    op: str,
    name: str,
    tensor: Tensor | None,
    shape: Sequence[int | None],
    types: torch.dtype | Sequence[torch.dtype],
    like: Tensor,
) -> None:
    """Raise ValueError unless `tensor` (None is fine: it is optional) has this shape, one of these types and like's device."""
    if tensor is None:
        return
    allowed = (types,) if isinstance(types, torch.dtype) else tuple(types)
    wanted = f"{' or '.join(_NAMES[t] for t in allowed)} [{', '.join('*' if n is None else str(n) for n in shape)}]"
    got = f"{_NAMES.get(tensor.dtype, tensor.dtype)} {list(tensor.shape)}"
    same_shape = tensor.dim() == len(shape) and all(n is None or n == m for n, m in zip(shape, tensor.shape, strict=True))
    if not same_shape or tensor.dtype not in allowed:
        raise ValueError(f"{op}: {name} must be {wanted}, got {got}")
    if tensor.device != like.device:
        raise ValueError(f"{op}: {name} is on {tensor.device}, but the other tensors on {like.device}; move it there")
    if not tensor.is_contiguous():
        raise ValueError(f"{op}: {name} {got} is not contiguous; pass {name}.contiguous()")


def expect_together(op: str, name: str, tensor: object, other_name: str, other: object) -> None:
    """Raise ValueError unless both are given or both are None."""
    if (tensor is None) != (other is None):
        given, missing = (name, other_name) if other is None else (other_name, name)
        raise ValueError(f"{op}: {given} was given without {missing}; pass both or neither")


def expect_vocabulary(op: str, V: int) -> None:
    """Raise ValueError for a vocabulary that doesn't fit a block's shared memory (16 bytes per chunk of 1024)."""
    if not 1 <= V <= 1 << 21:
        raise ValueError(f"{op}: the vocabulary must have 1 to {1 << 21} tokens, got {V}")
