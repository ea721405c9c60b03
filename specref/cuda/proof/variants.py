"""Copies of the kernel folder with one change in it: a barrier deleted, or a fault planted."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from specref.cuda.cache import KERNEL_FOLDER, kernel_files
from specref.cuda.proof.worker import Job

# Which ops run the kernels of a file, and which other files a kernel file includes.
OPS_OF_FILE = {
    "row_norm": ("row_norm",),
    "sample_rows": ("sample_rows",),
    "verify_chain": ("verify_chain",),
    "verify_chain_split": ("verify_chain",),
    "topk_topp_threshold": ("topk_topp_threshold",),
    "topk_topp_softmax": ("topk_topp_softmax",),
    "tree_build": ("tree_build",),
    "verify_tree_greedy": ("verify_tree_greedy",),
    "verify_tree_sampled": ("verify_tree_sampled",),
    "tree_attn": ("tree_attn",),
    "kv_compact": ("kv_compact_",),
}
ALL_OPS = tuple(dict.fromkeys(op for file in kernel_files() for op in OPS_OF_FILE[file]))


@dataclass(frozen=True)
class Variant:
    """One change: in `file` (a name in the kernel folder), the text at `start` of length `length` becomes `new`."""

    name: str
    file: str
    start: int
    length: int
    new: str
    op: str | None = None  # the op to try it on; None: the first that contains the text

    def write(self, folder: Path) -> Path:
        """Make the changed copy of the kernel folder."""
        folder.mkdir(exist_ok=True)
        target = folder / re.sub(r"\W+", "-", self.name)
        shutil.copytree(KERNEL_FOLDER, target)
        source = (target / self.file).read_text()
        (target / self.file).write_text(source[: self.start] + self.new + source[self.start + self.length :])
        return target

    @property
    def ops(self) -> tuple[str, ...]:
        """The op whose kernels show the change."""
        return (self.op or ops_of(self.file)[0],)

    def job(self, folder: Path, dtype: str = "bfloat16") -> Job:
        """What runs this variant: small and large vocabularies; compiled for one type only, to be quick."""
        short = {"float32": "f32, float", "bfloat16": "bf16, bf16", "float16": "f16, f16"}[dtype]
        flags = ("-O1", f"-DFOR_EACH_TYPE(DEFINE)=DEFINE(f32, float) DEFINE({short})")
        sources = str(self.write(folder))
        return Job(self.name, sources, self.ops, (dtype,), (8, 2101), ((64, 0), (96, 77)), size=16, flags=flags)


@cache
def ops_of(file: str) -> tuple[str, ...]:
    """The ops that depend on a file of the kernel folder."""
    ops: list[str] = []
    for kernel in kernel_files():
        if file in _included(f"{kernel}.cu"):
            ops += OPS_OF_FILE[kernel]
    return tuple(dict.fromkeys(ops))


def _included(file: str) -> set[str]:
    text = (KERNEL_FOLDER / file).read_text()
    return {file}.union(*(_included(name) for name in re.findall(r'#include "([^"]+)"', text)))


def deleted_barriers() -> list[Variant]:
    """Each `__syncthreads();` of the kernels deleted, one at a time, and the op that needs it."""
    op_of = {"rows.cuh": "sample_rows", "trees.cuh": "verify_tree_greedy"}
    variants = []
    for path in sorted(KERNEL_FOLDER.iterdir()):
        text = path.read_text()
        for match in re.finditer(r"__syncthreads\(\);", text):
            line = text.count("\n", 0, match.start()) + 1
            place = (path.name, match.start(), len(match[0]))
            variants.append(Variant(f"{path.name}:{line} barrier", *place, "/* deleted */", op_of.get(path.name)))
    return variants


def replaced(name: str, file: str, old: str, new: str, op: str | None = None, occurrence: int = 0) -> Variant:
    """`old` (its n-th occurrence in `file`) becomes `new`. Raises ValueError when it isn't there."""
    places = [match.start() for match in re.finditer(re.escape(old), (KERNEL_FOLDER / file).read_text())]
    if occurrence >= len(places):
        raise ValueError(f"{name}: {file} has {len(places)} occurrences of {old!r}, not {occurrence + 1}")
    return Variant(name, file, places[occurrence], len(old), new, op)
