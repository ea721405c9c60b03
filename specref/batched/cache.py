"""Keeping the accepted path of a tree in a KV cache, for a batch at once."""

from __future__ import annotations

import torch
from torch import Tensor


def gather(cache: Tensor, path: Tensor, accepted: Tensor, length: Tensor) -> Tensor:
    """Move the rows of each accepted path behind its root, in place; returns the new lengths, int64 `[B]`.

    cache `[L, B, S, ...]`: L layers (or keys and values), S slots. length `[B]`: the entries of each sequence before its tree,
    whose node n waits in slot length + n. path `[B, D]`: the accepted nodes, from the root's child down, in the first
    accepted[b] columns. Slots behind the new length, length + 1 + accepted, are free; their content means nothing.

    For one row this is `ContiguousCache.gather`. Positions need no repair: a node was read at position length + depth, where
    it lands. Source: Cai et al. 2401.10774 (Medusa), section 2.1.2.

    >>> cache = torch.tensor([[[10, 20, 30, 40, 50, 60]]])          # two entries; root 30 of 40 and 50, 60 below 50
    >>> gather(cache, path=torch.tensor([[2, 3]]), accepted=torch.tensor([2]), length=torch.tensor([2]))
    tensor([5])
    >>> cache[0, 0, :5]
    tensor([10, 20, 30, 50, 60])

    Raises ValueError for shapes that do not go together, and for a path that leaves the cache or does not go down.
    """
    B, D = path.shape
    if cache.dim() < 3 or cache.shape[1] != B or accepted.shape != (B,) or length.shape != (B,):
        shapes = [list(tensor.shape) for tensor in (cache, path, accepted, length)]
        raise ValueError(f"cache [L, B, S, ...], path [B, D], accepted [B] and length [B] are needed; got {shapes}")
    place = torch.arange(D, device=path.device)
    kept = place < accepted[:, None]
    above = torch.nn.functional.pad(path[:, :-1], (1, 0))[:, :D]  # the node before each one; the root before the first
    astray = (kept & ((path <= above) | (length[:, None] + path >= cache.shape[2]))).any(dim=1)
    astray |= (accepted < 0) | (accepted > D) | (length < 0) | (length >= cache.shape[2])
    if bool(astray.any()):
        rows = astray.nonzero()[:, 0].tolist()
        raise ValueError(
            f"rows {rows[:5]}: a path holds increasing node numbers from 1 up, within the cache's {cache.shape[2]} slots"
        )
    row, column = kept.nonzero(as_tuple=True)
    # Indexing by tensors copies before anything is written, so source and destination may overlap.
    cache[:, row, length[row] + 1 + column] = cache[:, row, length[row] + path[row, column]]
    return length + 1 + accepted
