"""Evidence kept while an audit runs: what was asked before is answered from the folder, the rest is stored, then judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Protocol

from conformance.components import Component
from conformance.evidence.files import EvidenceProblem, read_sealed, write_sealed
from conformance.evidence.plan import FILE, plan_of, read_plan, refuse_changes
from conformance.evidence.store import Chunk, Store, WriterLock, key_of
from conformance.harness import EngineInfo, Runner
from conformance.levels import AuditSettings
from conformance.problems import EngineFailed
from conformance.protocols import Mode, Output, Request
from conformance.statistics import Ledger
from conformance.subject import Subject

ENVIRONMENT, LEDGER, SAID = "environment.json", "ledger.json", "said.json"


def own_folder(out: Path) -> Path:
    """Where a run with reports in `out` keeps its samples: a folder of its own, which no earlier run has written to, since
    whoever gives a command again may have changed the engine. Nothing is made.

    >>> own_folder(Path("out")).name
    'evidence'
    """
    names = ("evidence" if number == 1 else f"evidence-{number}" for number in count(1))
    return next(out / name for name in names if not (out / name).exists())


class Evidence(Protocol):
    """What an audit does with its evidence."""

    def recording(self, runner: Runner, pair: int = 0) -> Runner:
        """The runner, which runs an engine on pair number `pair` of models, with what it answers kept."""

    def seal(self, ledgers: Mapping[str, Ledger]) -> None:
        """The plan is complete, and nothing was sampled yet. ledgers: by their part of the verdict ("control", ...)."""

    def finish(self, ledgers: Mapping[str, Ledger]) -> None:
        """The audit has ended."""


class Unkept:
    """Keeps nothing."""

    def recording(self, runner: Runner, pair: int = 0) -> Runner:
        """See `Evidence.recording`."""
        return runner

    def seal(self, ledgers: Mapping[str, Ledger]) -> None:
        """See `Evidence.seal`."""

    def finish(self, ledgers: Mapping[str, Ledger]) -> None:
        """See `Evidence.finish`."""


class Kept:
    """Keeps the evidence of one audit of one engine in a folder, and resumes what lies there.

    subjects: the pairs of models by their names, the first one first. self_draft: whether the engine also runs with the target
    in its draft's place. environment: versions for a reader. Raises EvidenceProblem if another process writes there, if the
    plan is not the one that was sealed (`seal`), if a chunk is damaged, or if it cannot be written. Nothing that was stored is
    ever changed.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        settings: AuditSettings,
        subjects: Mapping[str, Subject],
        *,
        self_draft: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder, self._name, self._settings, self._subjects = folder, name, settings, subjects
        self._self_draft = self_draft
        self._environment = dict(environment or {})
        self._writer = WriterLock(folder)
        self._store, self._lock = Store(folder), Lock()
        self._info: EngineInfo | None = None
        self._places: dict[str, Path] = {}
        self._chunks: dict[str, list[Chunk]] = {}
        self._sizes: dict[str, dict[int, int]] = {}
        self._asked: Counter[str] = Counter()
        self._said: dict[str, dict[str, Any]] = {}
        self._problem: EvidenceProblem | None = None
        self._counts: Counter[str] = Counter()
        self._unheard: set[str] = set()  # of what came from the folder, the engine's own counts know nothing

    def __enter__(self) -> Kept:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let others write to the folder."""
        self._writer.release()

    def recording(self, runner: Runner, pair: int = 0) -> Runner:
        """See `Evidence.recording`."""
        return _Recording(runner, self, pair)

    def described(self, info: EngineInfo) -> None:
        """The engine has said what it is."""
        self._info = info

    def seal(self, ledgers: Mapping[str, Ledger]) -> None:
        """See `Evidence.seal`."""
        assert self._info is not None, "an engine is described before its plan is sealed"
        plan = plan_of(self._name, self._info, self._settings, self._subjects, ledgers, self_draft=self._self_draft)
        if (self.folder / FILE).exists():
            refuse_changes(read_plan(self.folder)[0], plan)
        elif (self.folder / "samples").exists():
            raise EvidenceProblem(
                f"the evidence folder {self.folder.name!r} holds samples but no {FILE}: put it back, or begin in a new folder"
            )
        else:
            write_sealed(self.folder / FILE, plan)
        self._note_start()
        self._said = read_sealed(self.folder / SAID)[0] if (self.folder / SAID).exists() else {}
        for number, mode in enumerate(self._info.modes):
            self._places[mode.name], self._sizes[mode.name] = self._store.mode_folder(number, mode), {}
            for chunk in self._store.chunks(self._places[mode.name]):
                self._sizes[mode.name][chunk.number] = len(chunk.lines())  # damage is found now, before the engine works
                self._chunks.setdefault(chunk.key, []).append(chunk)

    def _note_start(self) -> None:
        path = self.folder / ENVIRONMENT
        before = read_sealed(path)[0] if path.exists() else []
        started = {"started": datetime.now(UTC).isoformat(timespec="seconds"), "versions": self._environment}
        write_sealed(path, [*before, started])

    def finish(self, ledgers: Mapping[str, Ledger]) -> None:
        """See `Evidence.finish`."""
        write_sealed(self.folder / LEDGER, {part: ledger.state() for part, ledger in ledgers.items()})

    def asked(self, mode: Mode, pair: int, requests: Sequence[Request]) -> tuple[str, Chunk | None]:
        """The key of these requests, and the chunk that answers them, if it was stored. Asked again, they are another."""
        key = key_of(mode, pair, requests)
        with self._lock:
            if self._problem is not None:
                raise self._problem
            place = self._asked[key]
            self._asked[key] += 1
            stored = self._chunks.get(key, [])
            if place >= len(stored):
                return key, None
            self._unheard.add(mode.name)
            return key, stored[place]

    def keep(self, key: str, mode: Mode, requests: Sequence[Request], outputs: Sequence[Output]) -> None:
        """Store a chunk."""
        with self._lock:
            sizes = self._sizes[mode.name]
            number = next(n for n in range(len(sizes) + 1) if n not in sizes)  # a chunk that was deleted leaves its place free
            first = sum(size for n, size in sizes.items() if n < number)
            try:
                self._store.append(self._places[mode.name], key, number, first, mode, requests, outputs)
            except EvidenceProblem as problem:
                self._problem = problem  # the other lanes stop too
                raise
            sizes[number] = len(requests)

    def say(self, mode: Mode, what: str, value: Any) -> None:
        """Store something else that the engine said about a mode."""
        with self._lock:
            self._said.setdefault(mode.name, {})[what] = value
            write_sealed(self.folder / SAID, self._said)

    def metrics(self, mode: Mode, pair: int, ask: Callable[[], Mapping[str, float] | None]) -> Mapping[str, float] | None:
        """The engine's counts at this point of the audit, as it gave them then or gives them now.

        None where they are of no use: an engine that was started again counts from there, and not what came from the folder.
        """
        with self._lock:
            number = self._counts[f"{mode.name} {pair}"]
            self._counts[f"{mode.name} {pair}"] += 1
            what = f"metrics {pair} {number}"
            if what in self._said.get(mode.name, {}):
                self._unheard.add(mode.name)
                found: Mapping[str, float] = self._said[mode.name][what]
                return found
            if number and mode.name in self._unheard:
                return None
            self._unheard.discard(mode.name)
        now = ask()
        if now is not None:
            self.say(mode, what, dict(now))
        return now


class _Recording:
    """A runner whose answers are kept."""

    def __init__(self, runner: Runner, evidence: Kept, pair: int) -> None:
        self._runner, self._evidence, self._pair = runner, evidence, pair

    def describe(self, k: int) -> EngineInfo:
        """See `Runner.describe`."""
        info = self._runner.describe(k)
        self._evidence.described(info)
        return info

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Runner.generate`."""
        key, chunk = self._evidence.asked(mode, self._pair, requests)
        if chunk is not None:
            yield from outputs_of(chunk, len(requests))
            return
        outputs: list[Output] = []
        try:
            for output in self._runner.generate(mode, requests):
                yield from outputs[-1:]  # one is held back, so that the last is given only once all are stored
                outputs.append(output)
        except EngineFailed as failed:
            self._evidence.say(mode, f"failed {key}", {"kind": failed.kind, "message": str(failed)})
            raise
        if len(outputs) == len(requests):
            self._evidence.keep(key, mode, requests, outputs)
        yield from outputs[-1:]

    def metrics(self, mode: Mode) -> Mapping[str, float] | None:
        """See `Runner.metrics`."""
        return self._evidence.metrics(mode, self._pair, lambda: self._runner.metrics(mode))

    def components(self) -> Sequence[Component]:
        """See `Runner.components`."""
        return self._runner.components()

    def renew(self) -> bool:
        """See `Runner.renew`."""
        return self._runner.renew()

    def close(self) -> None:
        """See `Runner.close`."""
        self._runner.close()


def outputs_of(chunk: Chunk, number: int) -> list[Output]:
    """The stored outputs of `number` requests. Raises EvidenceProblem."""
    lines = chunk.lines()
    if len(lines) != number:
        raise EvidenceProblem(f"{chunk.path.name} holds {len(lines)} samples where {number} were asked: put back a copy of it")
    return [line.the_output() for line in lines]
