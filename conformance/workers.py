"""Where the processes of an engine run, and how many at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from conformance.problems import UsageProblem

if TYPE_CHECKING:  # the command's --help need not wait for them
    from conformance.harness import EngineProcess, Runner

AT_ONCE = min(2, os.cpu_count() or 1)
"""Processes of an engine that run at once, where nothing else is said."""


class Cluster(Protocol):
    """Other machines."""

    def runner(self, make: Callable[[], EngineProcess]) -> Runner:
        """A lane there. make: makes the process of the engine, on the machine where it runs."""


@dataclass(frozen=True)
class Workers:
    """Where engines run: so many processes of one at once, here or on a Ray cluster with `gpus` for each.

    ray: see `ray_workers.RayWorkers`.
    """

    number: int = AT_ONCE
    ray: str | None = None
    gpus: float = 0.0

    def __post_init__(self) -> None:
        if self.number < 1:
            raise UsageProblem(f"workers is {self.number}; give 1 or more: an engine needs a process")
        if self.gpus < 0 or (self.gpus and self.ray is None):
            raise UsageProblem(f"gpus-per-worker is {self.gpus:g}; it is for workers on Ray: give --ray too, and 0 or more")

    def connected(self) -> AbstractContextManager[Cluster | None]:
        """The cluster, for the time of a run; None here."""
        if self.ray is None:
            return nullcontext()
        from conformance.ray_workers import RayWorkers

        return RayWorkers(self.ray, self.number, self.gpus)
