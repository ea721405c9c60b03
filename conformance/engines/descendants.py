"""What a process has started, as Linux tells it: to end what outlives it. Elsewhere nothing is found."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

Known = dict[int, str]
"""Process ids, each with when it began: an id may be given again."""


def descendants(ancestor: int) -> Known:
    """All that a process and its children have started and that still runs.

    >>> os.getpid() in descendants(os.getppid()) or not Path("/proc/self/stat").exists()
    True
    """
    running = {int(one.name): fields for one in Path("/proc").glob("[0-9]*") if (fields := _fields(int(one.name)))}
    found: Known = {}
    new = {ancestor}
    while new:
        new = {pid for pid, fields in running.items() if int(fields[1]) in new}
        found |= {pid: running[pid][19] for pid in new}
    return found


def end(those: Known) -> None:
    """By force, those that still run."""
    for pid, began in those.items():
        if (fields := _fields(pid)) and fields[19] == began:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _fields(pid: int) -> list[str]:
    """Of /proc/PID/stat, after the name: state, parent, ...; nothing if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
