"""Shows that the kernels are right, on a machine without a GPU: `python -m specref.cuda.check [--short]`.

What is done, each with its own lines in the table at the end:

  build       every kernel file for the emulator, without a warning
  equal       every op against its torch reference, bit for bit: sizes, types, block sizes, schedules
  trees       10,000 random trees of up to 64 nodes through every tree kernel, bit for bit
  sanitizers  the same cases under AddressSanitizer with UBSan, and under ThreadSanitizer
  barriers    each `__syncthreads` deleted in turn: ThreadSanitizer or the values must show it
  faults      planted faults, each of which must be caught
  traffic     bytes moved against the floor
  compile     for sm_80, sm_90 and sm_100 with NVRTC or nvcc: registers; spills and local memory fail

--short does less of each, but compiles every kernel for every architecture: two minutes of one core. The whole takes a quarter
of an hour. Exit code 1 if anything failed, 3 if something could not be run here.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

import specref.cuda  # noqa: F401  registers the ops
from specref.cuda.cache import KERNEL_FOLDER, kernel_files
from specref.cuda.emulator import compile_kernels, emulated, emulator_unavailable_reason
from specref.cuda.proof import resources
from specref.cuda.proof.cases import cases
from specref.cuda.proof.faults import planted_faults
from specref.cuda.proof.forest import SETTINGS, forest
from specref.cuda.proof.traffic import measure
from specref.cuda.proof.variants import ALL_OPS, Variant, deleted_barriers
from specref.cuda.proof.worker import Job, run_jobs

PASSED, FAILED, NOT_RUN = "passed", "FAILED", "not run"


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    part: str
    what: str
    outcome: str
    detail: str = ""


def _build(short: bool) -> Iterator[Line]:
    for file in kernel_files():
        compile_kernels(file, extra=() if short else ("-Werror",))
    yield Line("build", f"{len(kernel_files())} kernel files with g++", PASSED)


def _equal(short: bool) -> Iterator[Line]:
    sizes = (1003, 32_000) if short else (1000, 1003, 32_000, 128_256)
    settings = ((64, 0), (96, 1), (512, 777)) if short else [(t, s) for t in (32, 96, 512) for s in (0, 1, 777)]
    for V in sizes:
        wrong, compared = [], 0
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for case in cases(dtype, V, size=2 if short else 4):
                expected = case.expected()
                for threads, schedule in settings:
                    with emulated(threads=threads, schedule=schedule):
                        difference = case.difference(expected)
                    compared += 1
                    if difference:
                        wrong.append(f"{difference} ({dtype}, {threads} threads, schedule {schedule})")
        detail = wrong[0] if wrong else f"{compared} calls, {len(settings)} block sizes and schedules, 3 types"
        yield Line("equal", f"V = {V}", FAILED if wrong else PASSED, detail)


def _trees(short: bool) -> Iterator[Line]:
    seen = forest(400 if short else 10_000, seed=int(torch.initial_seed() % 2**20))
    detail = (
        seen.wrong[0]
        if seen.wrong
        else f"{seen.nodes:,} nodes in {seen.calls} calls, {len(SETTINGS)} block sizes and schedules"
    )
    yield Line("trees", f"{seen.trees:,} random trees", FAILED if seen.wrong else PASSED, detail)


def _sanitizers(short: bool) -> Iterator[Line]:
    for sanitizer, name in (("address", "ASan and UBSan"), ("thread", "TSan")):
        ops = ("verify_chain", "topk_topp_threshold") if short else ALL_OPS
        types, sizes = (("bfloat16",), (1027,)) if short else (("float32", "bfloat16", "float16"), (1003, 2100))
        jobs = [Job(op, str(KERNEL_FOLDER), (op,), types, sizes, ((64, 0), (96, 77)), size=2) for op in ops]
        for result in run_jobs(jobs, sanitizer):
            yield Line(f"sanitizers: {name}", result.name, PASSED if result.clean else FAILED, result.verdict)


def _variants(part: str, variants: Sequence[Variant], sanitizers: Sequence[str]) -> Iterator[Line]:
    """Each variant must be caught by the first of these sanitizers ("none": by value) that sees it."""
    left = list(variants)
    with tempfile.TemporaryDirectory() as folder:
        for sanitizer in sanitizers:
            jobs = [v.job(Path(folder) / sanitizer, "float16" if "fp16" in v.name else "bfloat16") for v in left]
            results = run_jobs(jobs, sanitizer, keep=False)
            for result in results:
                if not result.clean:
                    yield Line(part, result.name, PASSED, f"caught by {result.verdict}")
            clean = {result.name for result in results if result.clean}
            left = [variant for variant in left if variant.name in clean]
    for variant in left:
        yield Line(part, variant.name, FAILED, "not noticed")


def _barriers(short: bool) -> Iterator[Line]:
    variants = deleted_barriers()
    return _variants("barriers", [v for v in variants if v.file == "verify_chain.cu"][:2] if short else variants, ("thread",))


def _faults(short: bool) -> Iterator[Line]:
    variants = planted_faults()
    return _variants("faults", variants[::14] if short else variants, ("none", "address"))


def _traffic(short: bool) -> Iterator[Line]:
    for result in measure(B=2 if short else 8):
        detail = f"{result.moved:,} bytes, {result.ratio:.4f} of the floor"
        yield Line("traffic", result.kernel, PASSED if result.good else FAILED, detail)


def _compile(short: bool) -> Iterator[Line]:
    name = resources.compiler()
    if name is None:
        yield Line("compile", "for GPUs", NOT_RUN, resources.REMEDY)
        return
    for architecture in resources.ARCHITECTURES:
        for kernel in resources.resources(architecture):
            detail = (
                f"{kernel.registers} registers, {kernel.spill_bytes} bytes of spills, {kernel.stack_bytes} of stack ({name})"
            )
            yield Line(f"compile for {architecture}", kernel.kernel, PASSED if kernel.good else FAILED, detail)


PARTS: dict[str, Callable[[bool], Iterator[Line]]] = {
    "build": _build,
    "equal": _equal,
    "trees": _trees,
    "sanitizers": _sanitizers,
    "barriers": _barriers,
    "faults": _faults,
    "traffic": _traffic,
    "compile": _compile,
}


def run(parts: Sequence[str], short: bool) -> list[Line]:
    """Run some parts and return their lines; a part that breaks off gives a failed line."""
    torch.set_num_threads(1)
    reason = emulator_unavailable_reason()
    lines: list[Line] = []
    for part in parts:
        started = time.monotonic()
        if reason is not None and part != "compile":
            lines.append(Line(part, "on the emulator", NOT_RUN, reason))
            continue
        try:
            lines += PARTS[part](short)
        except Exception as error:  # a part that can't be finished has failed; the others go on
            lines.append(Line(part, "broke off", FAILED, f"{type(error).__name__}: {error}"))
        print(f"{part}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return lines


def table(lines: Sequence[Line]) -> str:
    """The lines as text, aligned."""
    widths = [max(len(getattr(line, name)) for line in lines) for name in ("part", "what", "outcome")]
    rows = [
        f"{line.part:<{widths[0]}}  {line.what:<{widths[1]}}  {line.outcome:<{widths[2]}}  {line.detail}".rstrip()
        for line in lines
    ]
    counts = ", ".join(f"{sum(line.outcome == o for line in lines)} {o}" for o in (PASSED, FAILED, NOT_RUN))
    return "\n".join([*rows, "", counts])


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run, print the table; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m specref.cuda.check", description="Show that the kernels are right.")
    parser.add_argument("--short", action="store_true", help="less of everything: two minutes of one core")
    parser.add_argument("--only", action="append", choices=tuple(PARTS), help="one part (may be given several times)")
    options = parser.parse_args(arguments)
    lines = run(options.only or tuple(PARTS), options.short)
    print(table(lines))
    outcomes = {line.outcome for line in lines}
    return 1 if FAILED in outcomes else 3 if NOT_RUN in outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
