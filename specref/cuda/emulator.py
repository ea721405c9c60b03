"""Runs the CUDA kernels on a CPU: the same source, compiled by g++ against `emulator/cuda.h`, one fiber per CUDA thread.

This is how every kernel is tested without a GPU, and under the sanitizers. It is no way to be fast.

    with emulated(threads=64, schedule=1):      # any block size, any schedule: the results are the same bits
        torch.ops.specref.row_norm(logits, inv_temp, None)
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch

from specref.cuda.cache import EMULATOR_FOLDER, KERNEL_FOLDER, build_once, cache_folder, fingerprint

Argument = torch.Tensor | int | float | None

ASCENDING, DESCENDING = 0, 1  # any other schedule is the seed of a shuffle

# A sanitized library only loads into a process that preloaded the sanitizer's own library: see `check.py`.
SANITIZERS = {
    "none": [],
    "address": ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"],
    "thread": ["-O1", "-g", "-fsanitize=thread"],
}


class EmulatorError(RuntimeError):
    """The emulator found a fault in a kernel (a deadlock, a bad mask, a bad launch), or a kernel didn't compile."""


@dataclass(frozen=True)
class Emulation:
    """How kernels are run: threads per block (None: each op's choice), schedule, folder of sources, sanitizer, g++ flags."""

    threads: int | None = None
    schedule: int = ASCENDING
    sources: Path = KERNEL_FOLDER
    sanitizer: str = os.environ.get("SPECREF_EMULATOR_SANITIZER", "none")
    flags: tuple[str, ...] = ()


_current = Emulation()
_lock = threading.Lock()  # the emulated machine is one, and ctypes lets other Python threads run meanwhile


def emulation() -> Emulation:
    """The settings in force."""
    return _current


@contextlib.contextmanager
def emulated(
    threads: int | None = None, schedule: int = ASCENDING, sources: Path | None = None, flags: Sequence[str] = ()
) -> Iterator[None]:
    """Run the emulated kernels inside with these settings; `sources` is another kernel folder, for planted faults."""
    global _current
    before = _current
    _current = replace(
        before,
        threads=threads,
        schedule=schedule,
        sources=sources or before.sources,
        flags=tuple(flags),
    )
    try:
        yield
    finally:
        _current = before


@cache
def emulator_unavailable_reason() -> str | None:
    """Why kernels can't be emulated here, with the remedy; None when they can."""
    if platform.system() != "Linux":
        return f"the CUDA emulator needs Linux, this is {platform.system()}: the torch reference is used instead"
    if shutil.which("g++") is None:
        return "the CUDA emulator needs g++ (`apt install g++`), which is not on the PATH: the torch reference is used instead"
    return None


def emulator_available() -> bool:
    """Can kernels be emulated here? If not, `emulator_unavailable_reason()` says why."""
    return emulator_unavailable_reason() is None


@cache
def _machine_flags() -> tuple[str, ...]:
    """-mfma where the processor has it: without it every fused multiply-add is a slow, if equally exact, library call."""
    if platform.machine() == "x86_64" and " fma " in Path("/proc/cpuinfo").read_text():
        return ("-mfma",)
    return ()


@cache
def _compiler() -> str:
    return subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


def compile_command(source: Path, target: Path, sanitizer: str = "none", extra: Sequence[str] = ()) -> list[str]:
    """The g++ command line that makes a shared library of one kernel file."""
    return [
        *("g++", "-x", "c++", "-std=c++17", "-O2", *_machine_flags()),
        *("-ffp-contract=off", "-fno-strict-aliasing", "-Wall", "-Wextra", "-Wno-unknown-pragmas"),
        *("-fPIC", "-shared", "-include", str(EMULATOR_FOLDER / "cuda.h")),
        *SANITIZERS[sanitizer],
        *extra,
        *(str(source), "-o", str(target)),
    ]


def compile_kernels(file: str, sources: Path = KERNEL_FOLDER, sanitizer: str = "none", extra: Sequence[str] = ()) -> Path:
    """Compile one kernel file, or find it compiled; return the shared library. Raises EmulatorError with g++'s words."""
    reason = emulator_unavailable_reason()
    if reason is not None:
        raise EmulatorError(reason)
    source = sources / f"{file}.cu"
    key = fingerprint(sources, _compiler(), *compile_command(Path(file), Path("out"), sanitizer, extra))

    def build(target: Path) -> None:
        result = subprocess.run(compile_command(source, target, sanitizer, extra), capture_output=True, text=True, check=False)
        if result.returncode:
            raise EmulatorError(f"g++ could not compile {source.name}:\n{result.stderr[-4000:]}")

    return build_once(cache_folder() / f"{file}-{sanitizer}-{key}.so", build)


@cache
def _load(file: str, sources: Path, sanitizer: str, flags: tuple[str, ...]) -> ctypes.CDLL:
    library = ctypes.CDLL(str(compile_kernels(file, sources, sanitizer, flags)))
    library.emulator_error.restype = ctypes.c_char_p
    return library


def packed(arguments: Sequence[Argument]) -> list[ctypes._SimpleCData[int] | ctypes._SimpleCData[float] | ctypes.c_void_p]:
    """The arguments as C values: tensors as pointers, None as the null pointer, int as int32, float as float32."""
    values: list[ctypes._SimpleCData[int] | ctypes._SimpleCData[float] | ctypes.c_void_p] = []
    for argument in arguments:
        if argument is None:
            values.append(ctypes.c_void_p(0))
        elif isinstance(argument, torch.Tensor):
            values.append(ctypes.c_void_p(argument.data_ptr()))
        elif isinstance(argument, int):
            values.append(ctypes.c_int32(argument))
        else:
            values.append(ctypes.c_float(argument))
    return values


def launch_emulated(
    file: str, kernel: str, grid: tuple[int, int, int], threads: int, shared_bytes: int, arguments: Sequence[Argument]
) -> None:
    """Run one kernel over a grid of blocks of `threads` threads. Raises EmulatorError."""
    settings = _current
    library = _load(file, settings.sources, settings.sanitizer, settings.flags)
    values = packed(arguments)
    pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
    block = (ctypes.c_uint * 3)(threads, 1, 1)
    with _lock:
        library.emulator_set_schedule(ctypes.c_ulonglong(settings.schedule))
        failed = getattr(library, f"run_{kernel}")((ctypes.c_uint * 3)(*grid), block, ctypes.c_uint(shared_bytes), pointers)
        error = library.emulator_error().decode()
    if failed:
        raise EmulatorError(f"{kernel}: {error}")


def take_bytes(file: str) -> tuple[int, int]:
    """The bytes of global memory that this file's kernels have read and written since the last call."""
    library = _load(file, _current.sources, _current.sanitizer, _current.flags)
    read, written = ctypes.c_ulonglong(), ctypes.c_ulonglong()
    with _lock:
        library.emulator_take_bytes(ctypes.byref(read), ctypes.byref(written))
    return read.value, written.value
