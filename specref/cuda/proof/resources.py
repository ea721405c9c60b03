"""Compilation for real GPUs, without one: registers, shared memory, and spills, which are failures."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from specref.cuda.cache import KERNEL_FOLDER, kernel_files, kernel_source
from specref.cuda.nvrtc import nvrtc_available

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
REMEDY = (
    "neither NVRTC nor nvcc is here; compiling needs no GPU and no driver: pip install cuda-core 'cuda-bindings>=13,<14' "
    "nvidia-cuda-nvrtc (beside a CUDA build of torch, pip install 'specref[cuda]' is enough)"
)
ENTRY = re.compile(
    r"Compiling entry function '(?P<kernel>\w+)'.*?(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads.*?Used (?P<registers>\d+) registers",
    re.DOTALL,
)


@dataclass(frozen=True)
class Resources:
    """What one kernel needs on one architecture."""

    kernel: str
    architecture: str
    registers: int
    stack_bytes: int
    spill_bytes: int

    @property
    def good(self) -> bool:
        """Nothing is kept in local memory."""
        return self.stack_bytes == 0 and self.spill_bytes == 0


def compiler() -> str | None:
    """ "NVRTC" or "nvcc", whichever is here; None when neither is."""
    if nvrtc_available():
        return "NVRTC"
    return "nvcc" if shutil.which("nvcc") else None


def _assembler_report(file: str, architecture: str) -> str:
    if nvrtc_available():
        import cuda.core

        log = io.StringIO()
        options = cuda.core.ProgramOptions(
            name=f"{file}.cu", std="c++17", arch=architecture, fma=False, include_path=[str(KERNEL_FOLDER)], ptxas_options="-v"
        )
        cuda.core.Program(kernel_source(file).read_text(), "c++", options).compile("cubin", logs=log)
        return log.getvalue()
    with tempfile.TemporaryDirectory() as folder:
        command = ["nvcc", "-std=c++17", f"-arch={architecture}", "-fmad=false", "-Xptxas", "-v", "-cubin"]
        target = str(Path(folder) / "kernel.cubin")
        done = subprocess.run([*command, str(kernel_source(file)), "-o", target], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"nvcc could not compile {file}.cu for {architecture}:\n{done.stderr[-3000:]}")
    return done.stderr


def resources(architecture: str) -> list[Resources]:
    """Compile every kernel file and read the assembler's report. Raises RuntimeError if a file doesn't compile."""
    found = []
    for file in kernel_files():
        report = _assembler_report(file, architecture)
        for entry in ENTRY.finditer(report):
            spilled = int(entry["stores"]) + int(entry["loads"])
            found.append(Resources(entry["kernel"], architecture, int(entry["registers"]), int(entry["stack"]), spilled))
        if not ENTRY.search(report):
            raise RuntimeError(f"no report on {file}.cu for {architecture}:\n{report[-2000:]}")
    return found
