"""Times each kernel on a GPU against its floor and against what others offer: `python -m specref.cuda.bench`. See BENCH.md.

A floor is the bytes that must move (section "Floor" of each kernel) over the bandwidth that a plain copy reaches on the same
GPU in the same run. All figures are ratios; caches are flushed before every run.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import specref.cuda  # noqa: F401  registers the ops

GPU, CPU = torch.device("cuda"), torch.device("cpu")


@dataclass(frozen=True)
class Sizes:
    """What is measured; the default is a large serving batch, `SMALL` only shows that the script runs."""

    V: int = 128_256
    B: int = 256
    K: int = 5
    N: int = 64
    prefix: int = 4096
    layers: int = 32
    heads: tuple[int, int, int] = (32, 8, 128)  # query heads, key heads, dimensions
    attention_batch: int = 32
    runs: int = 30


SMALL = Sizes(V=2000, B=4, K=2, N=8, prefix=64, layers=2, heads=(4, 2, 64), attention_batch=2, runs=2)


@dataclass(frozen=True)
class Reading:
    """One line: the time of a run in seconds and, for our kernels, the bytes that must move."""

    name: str
    seconds: float
    floor_bytes: int | None = None


class Clock:
    """Median time of a call; on a GPU by events, with the second-level cache flushed before each."""

    def __init__(self, device: torch.device, runs: int) -> None:
        self.device, self.runs = device, runs
        self._flush = torch.empty(256 << 20 if device.type == "cuda" else 1, dtype=torch.uint8, device=device)

    def median(self, call: Callable[[], Any]) -> float:
        """Seconds."""
        call()  # compiles
        times: list[float] = []
        for _ in range(self.runs):
            self._flush.zero_()
            if self.device.type == "cuda":
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
                start.record()
                call()
                end.record()
                torch.cuda.synchronize()
                times.append(start.elapsed_time(end) / 1e3)
            else:
                started = time.perf_counter()
                call()
                times.append(time.perf_counter() - started)
        return statistics.median(times)

    def bandwidth(self) -> float:
        """Bytes per second that a copy reads and writes."""
        size = 1 << 30 if self.device.type == "cuda" else 1 << 22
        source = torch.empty(size, dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        return 2 * size / self.median(lambda: target.copy_(source))


def _rows(clock: Clock, sizes: Sizes, dtype: torch.dtype) -> list[Reading]:
    ops, device = torch.ops.specref, clock.device
    R, V, item = sizes.B * (sizes.K + 1), sizes.V, dtype.itemsize
    logits = torch.randn(R, V, device=device).mul_(2.5).to(dtype)
    ones, u = torch.ones(R, device=device), torch.rand(R, device=device)
    k, p = torch.full((R,), 50, dtype=torch.int32, device=device), torch.full((R,), 0.9, device=device)
    threshold = ops.topk_topp_threshold(logits, ones, k, p)[0]
    once = R * V * item
    return [
        Reading("row_norm", clock.median(lambda: ops.row_norm(logits, ones, None)), once),
        Reading("sample_rows", clock.median(lambda: ops.sample_rows(logits, ones, None, u)), 2 * once),
        Reading("topk_topp_threshold", clock.median(lambda: ops.topk_topp_threshold(logits, ones, k, p)), 2 * once),
        Reading(
            "topk_topp_softmax", clock.median(lambda: ops.topk_topp_softmax(logits, ones, threshold)), 2 * once + 4 * R * V
        ),
        Reading("torch: softmax in float32", clock.median(lambda: torch.softmax(logits, dim=-1, dtype=torch.float32))),
    ]


def _chain(clock: Clock, sizes: Sizes, dtype: torch.dtype) -> list[Reading]:
    ops, device = torch.ops.specref, clock.device
    B, K, V = sizes.B, sizes.K, sizes.V
    target = torch.randn(B, K + 1, V, device=device).mul_(2.5).to(dtype)
    draft = (target[:, :K].float() + 0.3 * torch.randn(B, K, V, device=device)).to(dtype)
    ones, u = torch.ones(B, device=device), torch.rand(B, K + 1, device=device)
    ids, norm, _ = ops.sample_rows(draft.view(-1, V), torch.ones(B * K, device=device), None, torch.rand(B * K, device=device))
    ids, norm = ids.view(B, K), norm.view(B, K, 2)
    arguments = (target, draft, norm, ids, None, u, ones, ones, None, None)
    accepted = ops.verify_chain(*arguments, False)[1]
    row = V * dtype.itemsize
    drawn = B * row + int((accepted < K).sum()) * row
    readings = [
        Reading(
            f"verify_chain, fused ({accepted.float().mean():.2f} accepted)",
            clock.median(lambda: ops.verify_chain(*arguments, False)),
            int((accepted + 1).sum()) * row + drawn,
        ),
        Reading("verify_chain, split", clock.median(lambda: ops.verify_chain(*arguments, True)), B * (K + 1) * row + drawn),
    ]
    try:
        sampling = importlib.import_module("flashinfer.sampling")
    except ImportError:
        return readings

    def flashinfer() -> Tensor:
        p, q = (torch.softmax(z, dim=-1, dtype=torch.float32) for z in (target, draft))
        return sampling.chain_speculative_sampling(q, ids, p)[0]  # type: ignore[no-any-return]

    return [*readings, Reading("FlashInfer: softmax of p and q, chain_speculative_sampling", clock.median(flashinfer))]


def _trees(clock: Clock, sizes: Sizes, dtype: torch.dtype) -> list[Reading]:
    ops, device = torch.ops.specref, clock.device
    B, N, (Hq, Hk, D) = sizes.attention_batch, sizes.N, sizes.heads
    whole = torch.tensor([-1, *[(n - 1) // 2 for n in range(1, N)]], dtype=torch.int32, device=device)  # a binary tree
    parents, count = whole.expand(B, N).contiguous(), torch.full((B,), N, dtype=torch.int32, device=device)
    lengths = torch.full((B,), sizes.prefix, dtype=torch.int32, device=device)
    mask = ops.tree_build(parents, count, lengths)[0]
    half = torch.bfloat16 if dtype == torch.float32 else dtype

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=half, device=device)

    q, cache = normal(B, N, Hq, D), [normal(B, sizes.prefix, Hk, D) for _ in range(2)]
    tree = [normal(B, N, Hk, D) for _ in range(2)]
    path = torch.tensor([0, 2, 5, N - 2, N - 1], dtype=torch.int32, device=device).expand(B, 5).contiguous()
    moved = torch.full((B,), 4, dtype=torch.int32, device=device)
    slots = [normal(sizes.layers, B, N + 8, Hk, D) for _ in range(2)]
    start = torch.full((B,), 8, dtype=torch.int32, device=device)
    keys = 2 * B * (sizes.prefix + N) * Hk * D * half.itemsize
    attention = clock.median(lambda: ops.tree_attn(q, *cache, None, *tree, mask, lengths, D**-0.5))
    return [
        Reading("tree_build", clock.median(lambda: ops.tree_build(parents, count, lengths)), 28 * B * N),
        Reading(f"tree_attn ({4 * B * N * (sizes.prefix + N) * Hq * D / attention / 1e12:.1f} TFLOP/s)", attention, keys),
        Reading(
            "kv_compact_",
            clock.median(lambda: ops.kv_compact_(*slots, None, path, moved, start)),
            2 * 2 * 4 * B * sizes.layers * Hk * D * half.itemsize,
        ),
    ]


def measure(device: torch.device, sizes: Sizes, dtype: torch.dtype) -> tuple[float, list[Reading]]:
    """The copy bandwidth in bytes per second, and all readings."""
    clock = Clock(device, sizes.runs)
    bandwidth = clock.bandwidth()
    return bandwidth, [*_rows(clock, sizes, dtype), *_chain(clock, sizes, dtype), *_trees(clock, sizes, dtype)]


def report(bandwidth: float, readings: list[Reading]) -> str:
    """A Markdown table: times as multiples of the floor, or of row_norm where there is no floor."""
    unit = next(reading.seconds for reading in readings if reading.name == "row_norm")
    lines = ["| what | time / floor | time / time of row_norm |", "|---|---|---|"]
    for reading in readings:
        floor = "-" if reading.floor_bytes is None else f"{reading.seconds * bandwidth / reading.floor_bytes:.2f}"
        lines.append(f"| {reading.name} | {floor} | {reading.seconds / unit:.2f} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Print one table per type of logits. Exit code 3 without a GPU."""
    parser = argparse.ArgumentParser(prog="python -m specref.cuda.bench", description="Time the kernels on a GPU.")
    parser.add_argument("--small", action="store_true", help="tiny sizes, on the CPU where there is no GPU: shows that it runs")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available() and not options.small:
        print("no GPU: not run")
        return 3
    device = GPU if torch.cuda.is_available() else CPU
    print(f"device: {torch.cuda.get_device_name() if device == GPU else 'CPU, emulated: says nothing of speed'}")
    for dtype in (torch.bfloat16, torch.float32):
        sizes = SMALL if options.small else Sizes()
        bandwidth, readings = measure(device, sizes, dtype)
        print(f"\n{dtype}, {sizes}; a copy moves {bandwidth / 1e12:.2f} TB/s\n\n{report(bandwidth, readings)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
