"""How much memory an engine holds: the resident memory of every process of its session, as Linux counts it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

GIB = 1 << 30


def memory_of_session(leader: int) -> int | None:
    """Bytes resident in the processes of the session that process `leader` began; None where there is no /proc to ask.

    Pages that processes share are counted in each, so the sum is an upper bound.

    >>> found = memory_of_session(os.getsid(0))
    >>> found is None or found > 0
    True
    """
    if not Path("/proc/self/stat").exists():
        return None
    pages = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):  # it has ended meanwhile
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == leader:
                    pages += int(fields[21])
    return pages * os.sysconf("SC_PAGE_SIZE")


def memory_of_machine() -> int | None:
    """Bytes of memory that this process may use: the machine's, or less where a control group limits it; None if unknown.

    >>> found = memory_of_machine()
    >>> found is None or found > 1 << 26
    True
    """
    found = []
    with contextlib.suppress(OSError, ValueError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            found.append(int(Path(limit).read_text()))
    return min(found, default=None)
