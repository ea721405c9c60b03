"""A component of an engine in a process of its own: a kernel that fails leaves its process's device unusable.

Whatever is raised there ends the process, so that the next question finds a healthy one, and the other components go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from conformance.components import Component, facts_of, kind_of
from conformance.engines.forked import Forked
from conformance.remote import RemoteComponent


class Isolated:
    """made: the class of the component, which says what it is. make: makes it, in a new process when it is first asked."""

    def __init__(self, made: type, make: Callable[[], Any]) -> None:
        self.kind = kind_of(made)
        self._process = Forked(make, afresh=True)
        self.component = cast(Component, RemoteComponent(self.kind, 0, facts_of(made, self.kind), self._ask))

    def _ask(self, number: int, method: str, arguments: Sequence[Any], named: dict[str, Any], dropped: list[int]) -> Any:
        try:
            return self._process.ask(method, *arguments, **named)
        except RuntimeError:
            self._process.close()
            raise

    def close(self) -> None:
        """End its process; the next question starts another."""
        self._process.close()
