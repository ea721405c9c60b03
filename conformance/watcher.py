"""Who is told how an audit goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Watcher(Protocol):
    """Is told how an audit goes on, for a progress display."""

    def plan(self, engine: str, said: Callable[[], str]) -> None:
        """What is planned for an engine, and what that can catch: it takes a second to say, so only who shows it asks."""

    def begin(self, engine: str, total: int) -> None:
        """An engine's audit begins; `total` tokens, prompts and parts are planned."""

    def advance(self, engine: str, amount: int, doing: str) -> None:
        """Some more were judged, in the mode that `doing` names."""

    def silent(self, engine: str, waited: float, patience: float) -> None:
        """The engine has not answered for `waited` seconds; it is ended once that is more than `patience`."""

    def end(self, engine: str) -> None:
        """The engine's audit has ended."""


class Silent:
    """Watches without showing anything."""

    def plan(self, engine: str, said: Callable[[], str]) -> None:
        """See `Watcher.plan`."""

    def begin(self, engine: str, total: int) -> None:
        """See `Watcher.begin`."""

    def advance(self, engine: str, amount: int, doing: str) -> None:
        """See `Watcher.advance`."""

    def silent(self, engine: str, waited: float, patience: float) -> None:
        """See `Watcher.silent`."""

    def end(self, engine: str) -> None:
        """See `Watcher.end`."""
