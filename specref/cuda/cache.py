"""Where compiled kernels are kept: a folder of the user's, keyed by what went into them.

Kernels are compiled at first use on the machine that uses them, so the package holds sources only. A compiled file's name
ends in a hash of every source, the flags and the compiler: a changed kernel never meets an old binary.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

PACKAGE_FOLDER = Path(__file__).parent
KERNEL_FOLDER = PACKAGE_FOLDER / "kernels"
EMULATOR_FOLDER = PACKAGE_FOLDER / "emulator"


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/specref/cuda`, else `~/.cache/specref/cuda`; made when missing."""
    base = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(base) if base else Path.home() / ".cache") / "specref" / "cuda"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@cache
def kernel_files() -> tuple[str, ...]:
    """The names of the kernel files, without their ending, in alphabetical order."""
    return tuple(sorted(path.stem for path in KERNEL_FOLDER.glob("*.cu")))


def kernel_source(file: str) -> Path:
    """The path of one kernel file. Raises ValueError for a name that isn't one."""
    if file not in kernel_files():
        raise ValueError(f"no kernel file {file!r}; there are {', '.join(kernel_files())}")
    return KERNEL_FOLDER / f"{file}.cu"


def fingerprint(folder: Path, *what: str) -> str:
    """A hash over all sources in `folder` and beside it (the emulator), and over `what` else decides the binary."""
    digest = hashlib.sha256()
    paths: Iterable[Path] = [*sorted(folder.glob("*.cu*")), *sorted(EMULATOR_FOLDER.glob("*.h"))]
    for path in paths:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    for text in what:
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:20]


def build_once(target: Path, build: Callable[[Path], None]) -> Path:
    """Return `target`; when it doesn't exist, let `build` write a file beside it and rename that into place.

    The rename is atomic: of several processes that build at the same time each finds a whole file, whoever came last.
    """
    if target.exists():
        return target
    handle, name = tempfile.mkstemp(prefix=target.stem + ".", suffix=target.suffix, dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        build(temporary)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    return target
