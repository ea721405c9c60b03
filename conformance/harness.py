"""The judge's side of an engine: what it is asked and what it answers, in a process of its own or in this one.

A crash, a hang or nonsense on the pipe ends that engine's process with `EngineFailed`; the judge itself goes on.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from conformance.components import Component
from conformance.problems import EngineFailed
from conformance.process import WorkerProcess, unheard
from conformance.protocols import LOSSY_RULES, RULES, Engine, Mode, Models, Output, Request
from conformance.remote import RemoteError, remote_components
from conformance.requirements import BY_ID
from specref.processors import ORDER


@dataclasses.dataclass(frozen=True)
class EngineInfo:
    """What an engine says it is, and what its adapter spares it: see `Engine.not_asked`."""

    name: str
    version: str
    modes: tuple[Mode, ...]
    not_asked: tuple[str, ...] = ()


MODE_TYPES = {
    "speculation": dict,
    "exposes_rounds": bool,
    "exact_draft": bool,
    "brief": bool,
    "options": dict,
    "ensemble": float,
    "guidance": float,
    "order": tuple,
    "promises": dict,
    "prefix_block": int,
}
"""Types of a mode's fields that are not strings."""
WORDS = {"draft_law": ("draft model", "n-gram", ""), "logprobs": ("raw", "processed", "")}
"""What fields may say of which the judge reads no other words."""


def check_modes(modes: Sequence[Mode]) -> None:
    """Raise ValueError unless an engine can be audited in these modes: one or more, each with a name of its own, and nothing in
    them that no check would read.

    >>> check_modes([Mode("off"), Mode("off")])
    Traceback (most recent call last):
    ValueError: two modes are called 'off'
    """
    if not modes:
        raise ValueError("it names no mode")
    for number, mode in enumerate(modes):
        for field in dataclasses.fields(Mode):
            kind, value = MODE_TYPES.get(field.name, str), getattr(mode, field.name)
            if type(value) is not kind:
                raise ValueError(f"{field.name} of mode {number} is {str(value)[:60]!r}, not a {kind.__name__}")
        if mode.name in [other.name for other in modes[:number]]:
            raise ValueError(f"two modes are called {mode.name[:60]!r}")
        _check_words(mode)


def _check_words(mode: Mode) -> None:
    """Raise ValueError for a word that would be ignored: what was meant by it would not be judged."""
    called = repr(mode.name[:60])
    for field, allowed in WORDS.items():
        if getattr(mode, field) not in allowed:
            said = f"{field} of mode {called} is {getattr(mode, field)[:60]!r}"
            raise ValueError(f"{said}; give {', '.join(map(repr, allowed))}")
    if mode.rule not in RULES and not any(word in mode.rule for word in LOSSY_RULES):
        known = ", ".join(map(repr, (*RULES, *LOSSY_RULES)))
        raise ValueError(f"rule of mode {called} is {mode.rule[:60]!r}, which no check knows; give one of {known}")
    for promised in mode.promises:
        if promised not in BY_ID:
            raise ValueError(f"mode {called} promises {str(promised)[:60]!r}; what can be promised: {', '.join(BY_ID)}")
    if sorted(map(str, mode.order)) != sorted(ORDER):
        said = f"order of mode {called} is {', '.join(map(str, mode.order))[:200]}"
        raise ValueError(f"{said}; name each of these once: {', '.join(ORDER)}")


class Runner(Protocol):
    """Something that runs an engine for the judge: in a process of its own, or, for planted faults, in this one."""

    def describe(self, k: int) -> EngineInfo:
        """The engine's name, version and modes with `k` drafts per round."""

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """One output per request, in their order. Raises EngineFailed."""

    def metrics(self, mode: Mode) -> Mapping[str, float] | None:
        """See `Engine.metrics`. Raises EngineFailed."""

    def components(self) -> Sequence[Component]:
        """See `Engine.components`; each call of a method may raise EngineFailed, or RemoteError for what the engine raised."""

    def renew(self) -> bool:
        """See `Engine.renew`. False: close it, and start another."""

    def close(self) -> None:
        """End the engine."""


class InProcess:
    """Runs an engine in the judge's own process: for our own engines and the planted faults, which are trusted to return."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def describe(self, k: int) -> EngineInfo:
        """See `Runner.describe`."""
        one = self._engine
        return EngineInfo(one.name, one.version, tuple(one.modes(k)), tuple(one.not_asked()))

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Runner.generate`."""
        return self._engine.generate(mode, requests)

    def metrics(self, mode: Mode) -> Mapping[str, float] | None:
        """See `Runner.metrics`."""
        return self._engine.metrics(mode)

    def components(self) -> Sequence[Component]:
        """See `Runner.components`."""
        return self._engine.components()

    def renew(self) -> bool:
        """See `Runner.renew`."""
        return self._engine.renew()

    def close(self) -> None:
        """See `Runner.close`."""
        self._engine.close()


class EngineProcess:
    """Runs an engine in a process of its own, started on first use.

    factory: "package.module:callable" that takes `Models` and gives an `Engine`. patience: seconds to wait for its next answer
    before it counts as hung (for the first, `STARTING` if that is more). python: the interpreter of the engine's environment.
    What the engine prints goes to `log`. memory: bytes that it and all that it starts may hold together while it is waited for;
    None for no limit. threads: of each of its computations, unless OMP_NUM_THREADS is set already: engines side by side that
    all use every core wait for each other. silent: is told every minute for how many seconds the engine has not answered, and
    how long it is waited for.
    """

    def __init__(
        self,
        factory: str,
        models: Models,
        *,
        patience: float,
        log: Path | None = None,
        python: str = sys.executable,
        memory: int | None = None,
        threads: int | None = None,
        silent: Callable[[float, float], None] = unheard,
    ) -> None:
        named = {field.name: str(getattr(models, field.name)) for field in dataclasses.fields(models)}
        command = (python, "-m", "conformance.worker", factory, json.dumps(named))
        self._start = partial(WorkerProcess, command, patience=patience, log=log, memory=memory, threads=threads, silent=silent)
        self._worker: WorkerProcess | None = None

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def describe(self, k: int) -> EngineInfo:
        """See `Runner.describe`."""
        said = self._ask({"do": "describe", "k": k})
        try:
            engine = said["engine"]
            modes = tuple(Mode(**entry) for entry in engine["modes"])
            check_modes(modes)
            return EngineInfo(str(engine["name"]), str(engine["version"]), modes, tuple(map(str, engine["not_asked"])))
        except (KeyError, TypeError, ValueError) as error:
            raise self._failed("nonsense", f"the engine described itself in a way that cannot be read: {error}") from error

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Runner.generate`."""
        plain = [request.to_json() for request in requests]
        said = self._ask({"do": "generate", "mode": dataclasses.asdict(mode), "requests": plain})
        for number in range(len(requests)):
            if "done" in said:
                raise self._failed("nonsense", f"the engine gave {number} answers to {len(requests)} requests")
            try:
                output = Output.from_json(said["output"])
            except (KeyError, TypeError, ValueError) as error:
                raise self._failed("nonsense", f"the engine's answer cannot be read: {error}") from error
            yield output
            said = self._hear()
        if "done" not in said:
            raise self._failed("nonsense", "the engine answered more often than it was asked")

    def metrics(self, mode: Mode) -> Mapping[str, float] | None:
        """See `Runner.metrics`."""
        counts = self._ask({"do": "metrics", "mode": dataclasses.asdict(mode)}).get("value")
        if counts is None:
            return None
        try:
            return {str(name): float(value) for name, value in counts.items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise self._failed("nonsense", f"the engine's metrics cannot be read: {error}") from error

    def components(self) -> Sequence[Component]:
        """See `Runner.components`."""
        try:
            return remote_components(self.told(), self.call)
        except (KeyError, TypeError, ValueError) as error:
            raise self._failed("nonsense", f"the engine's components cannot be read: {error}") from error

    def told(self) -> Any:
        """What the engine tells of its components, for `remote_components`."""
        return self._ask({"do": "components"}).get("value")

    def call(self, number: int, method: str, arguments: Sequence[Any], named: Mapping[str, Any], dropped: list[int]) -> Any:
        """Call a method of a component by its number. Raises RemoteError with what it raised."""
        question = {"do": "call", "number": number, "method": method, "arguments": arguments, "named": named}
        said = self._ask({**question, "dropped": dropped})
        if "raised" in said:
            raise RemoteError(str(said["raised"]))
        return said.get("value")

    def renew(self) -> bool:
        """See `Runner.renew`. A process that is not there was asked nothing."""
        try:
            return not self._running or self._ask({"do": "renew"}).get("value") is True
        except EngineFailed:
            return not self._running

    @property
    def _running(self) -> bool:
        return self._worker is not None and self._worker.running

    def close(self) -> None:
        """End the engine's process: politely at first, then by force."""
        if self._worker is not None:
            self._worker.close()

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        if self._worker is None or not self._worker.running:
            self._worker = self._start()
        self._worker.tell(message)
        return self._hear()

    def _hear(self) -> dict[str, Any]:
        assert self._worker is not None
        said = self._worker.hear()
        if "error" in said:
            kind, message = str(said["error"]), str(said.get("message", "no message"))
            if kind in ("unsupported", "not run"):  # the engine is well; only this mode or setting is refused
                raise EngineFailed(kind, message)
            if kind == "ended":  # and so is its adapter
                raise EngineFailed("crash", message)
            raise self._failed(kind, message)
        return said

    def _failed(self, kind: str, message: str) -> EngineFailed:
        assert self._worker is not None
        return self._worker.failed(kind, message)
