"""Bytes of global memory that the emulated kernels move, against the least that the task needs."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from specref.cuda.emulator import take_bytes
from specref.cuda.proof.cases import Maker


@dataclass(frozen=True)
class Traffic:
    """What one kernel moved and its floor, in bytes; `limit` is the most that ratio may be."""

    kernel: str
    moved: int
    floor: int
    limit: float

    @property
    def ratio(self) -> float:
        """Bytes moved for each byte of the floor."""
        return self.moved / self.floor

    @property
    def good(self) -> bool:
        """Is the ratio between 1 (less would be a counting error) and the limit?"""
        return 0.999 <= self.ratio <= self.limit


def _moved(*files: str) -> int:
    return sum(sum(take_bytes(file)) for file in files)


def measure(V: int = 128_256, B: int = 4, K: int = 5) -> list[Traffic]:
    """All kernels with a stated floor, in bfloat16."""
    ops = torch.ops.specref
    make = Maker(torch.bfloat16, V)
    row = 2 * V
    z, inv_temp = (make.normal(B, V) * 2.5).bfloat16(), make.temperatures(B)
    results = []

    def record(kernel: str, floor: int, files: tuple[str, ...], limit: float = 1.05) -> None:
        results.append(Traffic(kernel, _moved(*files), floor, limit))

    _moved(
        "row_norm",
        "sample_rows",
        "topk_topp_threshold",
        "topk_topp_softmax",
        "verify_chain",
        "verify_chain_split",
        "kv_compact",
    )
    ops.row_norm(z, inv_temp, None)
    record("row_norm: each logit once", B * row, ("row_norm",))
    ops.sample_rows(z, inv_temp, None, make.uniforms(B))
    record("sample_rows: each logit twice", B * 2 * row, ("sample_rows",))
    k = torch.tensor([0, 50, 1, 200], dtype=torch.int32)[torch.arange(B) % 4]
    p = torch.tensor([0.95, 0.9, 1.0, 0.5])[torch.arange(B) % 4]
    threshold = ops.topk_topp_threshold(z, inv_temp, k, p)[0]
    record("topk_topp_threshold: each logit twice", B * 2 * row, ("topk_topp_threshold",), limit=1.001)
    ops.topk_topp_softmax(z, inv_temp, threshold)
    record("topk_topp_softmax: twice, and probabilities", B * (2 * row + 4 * V), ("topk_topp_softmax",))

    target = (make.normal(B, K + 1, V) * 2.5).bfloat16()
    draft = (target[:, :K].float() + make.normal(B, K, V) * 0.4).bfloat16()
    ids, norm = make.drawn(draft, inv_temp)
    arguments = (target, draft, norm, ids, None, make.uniforms(B, K + 1), inv_temp, inv_temp, None, None)
    accepted = ops.verify_chain(*arguments, False)[1].tolist()
    drawn = sum(row + (row if a < K else 0) for a in accepted)  # the last row again, and the draft's row of a rejection
    record("verify_chain, fused: rows that are reached", sum((a + 1) * row for a in accepted) + drawn, ("verify_chain",))
    ops.verify_chain(*arguments, True)
    record("verify_chain, split: all target rows", B * (K + 1) * row + drawn, ("verify_chain_split",))

    L, S, H, D = 2, 40, 8, 128
    path = torch.tensor([[0, 2, 3, 7, 9], [0, 1, 2, 3, 4]], dtype=torch.int32)[torch.arange(B) % 2]
    counts = torch.full((B,), 4, dtype=torch.int32)
    moving = sum(int((row_of != torch.arange(5)).sum()) for row_of in path)
    cache = [make.normal(L, B, S, H, D).bfloat16() for _ in range(2)]
    ops.kv_compact_(*cache, None, path, counts, torch.full((B,), 20, dtype=torch.int32))
    record("kv_compact_: read and write what moves", 2 * 2 * moving * L * H * D * 2, ("kv_compact",))
    return results
