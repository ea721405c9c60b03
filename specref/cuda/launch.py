"""One launch, wherever the tensors are: NVRTC on a GPU, the emulator on a CPU."""

from __future__ import annotations

import torch

from specref.cuda.emulator import Argument, emulation, launch_emulated
from specref.cuda.nvrtc import launch_on_gpu

CHUNK = 1024
TYPE_NAMES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}


def chunks_of(V: int) -> int:
    """How many chunks of 1024 logits a row of V has."""
    return -(-V // CHUNK)


def row_threads(device: torch.device, V: int) -> int:
    """Threads of a block that sweeps rows: a warp per chunk, up to 512; fewer under emulation, where threads only cost."""
    if device.type == "cpu":
        return emulation().threads or (64 if V > 16 * CHUNK else 32)
    return 32 * min(16, chunks_of(V))


def launch(
    device: torch.device, file: str, kernel: str, grid: tuple[int, ...], threads: int, shared_bytes: int, *arguments: Argument
) -> None:
    """Run `kernel` of `file`; the grid may have one to three dimensions, and an empty one does nothing."""
    x, y, z = (*grid, 1, 1)[:3]
    if x * y * z == 0:
        return
    if device.type == "cpu":
        launch_emulated(file, kernel, (x, y, z), threads, shared_bytes, arguments)
    else:
        launch_on_gpu(device, file, kernel, (x, y, z), threads, shared_bytes, arguments)
