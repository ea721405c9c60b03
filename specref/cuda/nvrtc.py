"""Runs the kernels on an NVIDIA GPU: compiled at first use by NVRTC through `cuda.core`, kept on disk, run on torch's stream.

No nvcc, no CUDA headers and no C++ compiler are needed: `pip install "specref[cuda]"` beside a CUDA build of torch is all.
Nothing of CUDA is imported before a kernel is wanted.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from specref.cuda.cache import KERNEL_FOLDER, build_once, cache_folder, fingerprint, kernel_source
from specref.cuda.emulator import Argument, packed


class CudaUnavailable(RuntimeError):
    """The kernels can't be compiled for, or run on, a GPU here; the message says what is missing."""


def _cuda_core() -> Any:
    try:
        import cuda.core
    except ImportError as error:
        raise CudaUnavailable('running the kernels on a GPU needs cuda-core: pip install "specref[cuda]"') from error
    return cuda.core


def nvrtc_available() -> bool:
    """Can kernels be compiled for a GPU here (no GPU or driver is needed for that)?"""
    try:
        _cuda_core()
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (CudaUnavailable, ImportError, RuntimeError):
        return False
    return True


def compile_cubin(file: str, architecture: str, sources: Path = KERNEL_FOLDER) -> bytes:
    """Machine code of one kernel file for `architecture` ("sm_90"), from the disk cache when it is there.

    fma=False: a multiplication and an addition are only fused where the source says so. With it the GPU rounds as the CPU does.
    Raises CudaUnavailable.
    """
    core = _cuda_core()
    from cuda.bindings import nvrtc

    version = str(nvrtc.nvrtcVersion()[1:])
    key = fingerprint(sources, architecture, version)

    def build(target: Path) -> None:
        options = core.ProgramOptions(
            name=f"{file}.cu", std="c++17", arch=architecture, fma=False, lineinfo=True, include_path=[str(sources)]
        )
        code = core.Program((sources / f"{file}.cu").read_text(), "c++", options).compile("cubin").code
        target.write_bytes(code)

    return build_once(cache_folder() / f"{file}-{architecture}-{key}.cubin", build).read_bytes()


@cache
def _module(file: str, device_index: int) -> Any:
    kernel_source(file)
    major, minor = torch.cuda.get_device_capability(device_index)
    code = compile_cubin(file, f"sm_{major}{minor}")
    return _cuda_core().ObjectCode.from_cubin(code)


@cache
def _kernel(file: str, kernel: str, device_index: int) -> Any:
    return _module(file, device_index).get_kernel(kernel)


def _kernel_arguments(arguments: Sequence[Argument]) -> list[Any]:
    """As `cuda.core.launch` takes them: an address is a Python int, every number a ctypes value of its exact type."""
    return [value.value or 0 if isinstance(value, ctypes.c_void_p) else value for value in packed(arguments)]


class _Stream:
    """A torch stream as `cuda.core` wants it (newer torch speaks that protocol itself)."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.handle = int(stream.cuda_stream)

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)


def launch_on_gpu(
    device: torch.device,
    file: str,
    kernel: str,
    grid: tuple[int, int, int],
    threads: int,
    shared_bytes: int,
    arguments: Sequence[Argument],
) -> None:
    """Launch one kernel on torch's current stream: no allocation, no waiting, so CUDA graphs can capture it.

    (Call each op once before a capture: the first call compiles.)
    """
    core = _cuda_core()
    index = device.index if device.index is not None else torch.cuda.current_device()
    with torch.cuda.device(index):
        core.Device(index).set_current()
        config = core.LaunchConfig(grid=grid, block=threads, shmem_size=shared_bytes)
        stream = _Stream(torch.cuda.current_stream(index))
        core.launch(stream, config, _kernel(file, kernel, index), *_kernel_arguments(arguments))
