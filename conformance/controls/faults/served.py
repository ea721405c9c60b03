"""What faults of a serving engine have in common."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.controls.control import Control
from conformance.controls.stages.served import REQUESTS, Server
from conformance.controls.stages.serving import serving


def fault(
    id: str,
    kind: str,
    requirements: str | Sequence[str],
    server: Server,
    *reports: str,
    replaces: str = "",
    sees: bool = False,
    n: int = REQUESTS,
) -> Control:
    """A fault of a server."""
    parts = [part for part in vars(server).values() if isinstance(part, type)]
    changed = next((part for part in parts if part.__module__.startswith(FAULTS)), None)
    names = (requirements,) if isinstance(requirements, str) else tuple(requirements)
    part = replaces or (changed.__mro__[1].__name__ if changed else server.declared)
    return Control(id, kind, part, names, serving(server, n), reports, acceptance_sees=sees)


FAULTS = "conformance.controls.faults"
