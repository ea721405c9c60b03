"""An engine that runs in one mode at a time, and whose own counts end with what it runs: they are read before that."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.protocols import Engine, Mode, Models


class OneMode(Engine):
    """mode: in which something runs now. Subclasses say how its counts are read (`counted`), and how it ends (`close`)."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._mode: Mode | None = None
        self._counts: dict[str, Mapping[str, float]] = {}

    def metrics(self, mode: Mode) -> Mapping[str, float] | None:
        """See `Engine.metrics`: as they are now, or as they were when the mode was last left."""
        if self._mode == mode:
            self._remember_counts()
        return self._counts.get(mode.name)

    def renew(self) -> bool:
        """See `Engine.renew`: what was asked anything is a process that ends now."""
        self.close()
        return True

    def counted(self) -> Mapping[str, float] | None:
        """The counts of what runs now; None if it gives none."""
        raise NotImplementedError

    def _remember_counts(self) -> None:
        counts = self.counted() if self._mode is not None else None
        if self._mode is not None and counts is not None:
            self._counts[self._mode.name] = counts
