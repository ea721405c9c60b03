"""The jobs of an audit: which of them one engine does in one turn, in which order, and when it is not asked any more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from conformance.cases import PLAIN
from conformance.harness import Runner
from conformance.problems import EngineFailed
from conformance.protocols import Mode
from conformance.second_turn import WHAT

MOST_IN_A_ROW, MOST_HANGS, MOST_OF_A_KIND = 12, 3, 2
"""Failures after which nothing more is asked: one after the other of an engine, hangs of it, and of one kind in one mode."""
COMPONENTS, GREEDY, FAMILIES = "components", "greedy", "families"


@dataclass
class Job:
    """Something to do with a running engine. what: one of those above, or a setting. reports: (requirement, name) of what it
    may leave unfinished."""

    what: str
    mode: Mode
    do: Callable[[Runner], None]
    size: int
    reports: Sequence[tuple[str, str]] = ()
    pair: int = 0

    @property
    def kind(self) -> str:
        """Failures count for jobs of their kind: one under a setting of its own says nothing about the mode as such."""
        return (
            self.what if self.what in (COMPONENTS, FAMILIES, WHAT) else "itself" if self.what in (PLAIN, GREEDY) else "settings"
        )


def turns(jobs: Sequence[Job]) -> list[list[Job]]:
    """The jobs of one mode on one pair of models are one turn: another mode may mean that the engine starts anew.

    The control comes first, and long turns before short ones, so that the lanes end together. In a turn the families come last,
    which may ask for what an engine refuses.

    >>> modes = [Mode("off"), Mode("fast", {"k": 2})]
    >>> jobs = [Job(what, mode, print, size) for mode in modes for what, size in (("families", 9), ("top-k", 2), ("greedy", 1))]
    >>> [[(job.mode.name, job.what) for job in turn][1:] for turn in turns(jobs)]
    [[('off', 'top-k'), ('off', 'families')], [('fast', 'top-k'), ('fast', 'families')]]
    """
    found: dict[tuple[bool, int, str], list[Job]] = {}
    for job in jobs:
        found.setdefault((job.what != COMPONENTS, job.pair, job.mode.name), []).append(job)
    for turn in found.values():
        turn.sort(key=lambda job: (job.kind == FAMILIES, job.kind != "itself", -job.size))
    first = sorted(found, key=lambda key: (key[:2], found[key][0].mode.speculates, -sum(job.size for job in found[key])))
    return [found[key] for key in first]


@dataclass
class Failures:
    """How an engine failed. by_kind: in a mode, for jobs of a kind on a pair of models. not_here: by mode and pair, what this
    machine lacks for it."""

    by_kind: dict[tuple[str, str, int], list[EngineFailed]] = field(default_factory=lambda: defaultdict(list))
    in_a_row: list[EngineFailed] = field(default_factory=list)
    hangs: list[EngineFailed] = field(default_factory=list)
    not_here: dict[tuple[str, int], str] = field(default_factory=dict)

    def went_well(self) -> None:
        """A job was done."""
        self.in_a_row.clear()

    def note(self, job: Job, failed: EngineFailed) -> None:
        """A job ended in a failure, or was refused."""
        if failed.kind == "not run":
            self.not_here[job.mode.name, job.pair] = str(failed)
        elif failed.kind != "unsupported":
            self.by_kind[job.mode.name, job.kind, job.pair].append(failed)
            self.in_a_row.append(failed)
            if failed.kind == "hang":
                self.hangs.append(failed)

    def against(self, job: Job) -> str | None:
        """Why a job is not begun."""
        if job.kind == COMPONENTS:
            return None
        if (job.mode.name, job.pair) in self.not_here:
            return f"not run: {self.not_here[job.mode.name, job.pair]}"
        kinds = dict.fromkeys((job.kind, "itself"))
        of_mode = [self.by_kind[job.mode.name, kind, job.pair] for kind in kinds]
        of_mode = [some for some in of_mode if len(some) >= MOST_OF_A_KIND]
        whole = [self.in_a_row] * (len(self.in_a_row) >= MOST_IN_A_ROW) + [self.hangs] * (len(self.hangs) >= MOST_HANGS)
        for some in (*of_mode, *whole):
            return f"not judged, because the engine had failed before ({some[-1].kind}: {some[-1]})"
        return None
