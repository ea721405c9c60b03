"""Components that live in an engine's process, seen from the judge's side: each method is a question over the pipe."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from conformance.components import KINDS, MAY_SAY, Component

Ask = Callable[[int, str, Sequence[Any], dict[str, Any], list[int]], Any]
"""Calls a method of the object with a number: (number, method, arguments, named arguments, numbers no longer held)."""


class RemoteError(RuntimeError):
    """A component raised something in the engine's process; the message says what."""


class RemoteComponent:
    """A component in another process: facts as attributes, methods as questions."""

    def __init__(self, kind: str, number: int, facts: dict[str, Any], ask: Ask) -> None:
        for name, value in facts.items():
            setattr(self, name, value)
        dropped: list[int] = []
        for method in KINDS[kind]:
            if method not in facts:
                call = partial(_call, ask, number, method, dropped)
                setattr(self, method, partial(_make, call, ask, dropped) if method == "make" else call)


class RemoteCache:
    """A cache in another process; it is dropped there once it is dropped here."""

    def __init__(self, number: int, ask: Ask, dropped: list[int]) -> None:
        self._ask = partial(_call, ask, number)
        self._dropped = dropped
        weakref.finalize(self, dropped.append, number)

    @property
    def length(self) -> int:
        """See `KVCache.length`."""
        return int(self._ask("length", self._dropped))

    def append(self, rows: Any, parents: Sequence[int] | None = None) -> None:
        """See `KVCache.append`."""
        self._ask("append", self._dropped, rows, parents)

    def rollback(self, length: int) -> None:
        """See `KVCache.rollback`."""
        self._ask("rollback", self._dropped, length)

    def gather(self, path: Sequence[int]) -> None:
        """See `KVCache.gather`."""
        self._ask("gather", self._dropped, path)

    def visible(self) -> Any:
        """See `KVCache.visible`."""
        return self._ask("visible", self._dropped)


def remote_components(told: Any, ask: Ask) -> list[Component]:
    """The components that an engine's process told of. Raises KeyError, TypeError or ValueError if that cannot be read."""
    found = []
    for entry in told:
        kind, facts = entry["kind"], dict(entry["facts"])
        strange = sorted(set(facts) - {*KINDS[kind], *MAY_SAY})
        if strange or not isinstance(facts.get("name"), str):
            raise ValueError(f"a component with facts {strange or 'without a name'}")
        found.append(cast(Component, RemoteComponent(kind, int(entry["number"]), facts, ask)))
    return found


def _call(ask: Ask, number: int, method: str, dropped: list[int], *arguments: Any, **named: Any) -> Any:
    gone = dropped[:]
    del dropped[: len(gone)]
    return ask(number, method, arguments, named, gone)


def _make(call: Callable[[], Any], ask: Ask, dropped: list[int]) -> RemoteCache:
    return RemoteCache(int(call()["object"]), ask, dropped)
