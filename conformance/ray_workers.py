"""Engines on the workers of a Ray cluster: one actor holds one engine, in a process of its own there, and answers the judge.

The judge itself stays where the command was given: it plans, scores and decides, in the order of submission, whatever worker an
answer came from. An actor that is lost with its machine is replaced and asked again; what the engine does wrong is reported as
it is anywhere.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from conformance.components import Component
from conformance.harness import EngineInfo, EngineProcess
from conformance.problems import EngineFailed, UsageProblem
from conformance.protocols import Mode, Output, Request
from conformance.remote import RemoteError, remote_components

MOST_LOST = 2
"""How often the worker of a lane is replaced."""
STORE = 100 * 2**20
"""Bytes of Ray's object store on this machine: what is sent are requests and outputs."""


@dataclass(frozen=True)
class Said:
    """What an actor answers: a value, or why there is none. Exceptions of ours do not survive the way through Ray."""

    value: Any = None
    kind: str = ""
    message: str = ""

    def opened(self) -> Any:
        """The value. Raises what was raised there."""
        if self.kind == "raised":
            raise RemoteError(self.message)
        if self.kind:
            raise EngineFailed(self.kind, self.message)
        return self.value


class Host:
    """Lives on a worker, and holds an engine there. Outputs of a chunk go back together."""

    def __init__(self, make: Callable[[], EngineProcess]) -> None:
        self._engine = make()

    def describe(self, k: int) -> Said:
        """See `Runner.describe`."""
        return _said(lambda: self._engine.describe(k))

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Said:
        """See `Runner.generate`."""
        return _said(lambda: list(self._engine.generate(mode, requests)))

    def metrics(self, mode: Mode) -> Said:
        """See `Runner.metrics`."""
        return _said(lambda: self._engine.metrics(mode))

    def told(self) -> Said:
        """The components, as their engine tells of them."""
        return _said(self._engine.told)

    def call(self, *what: Any) -> Said:
        """See `EngineProcess.call`."""
        return _said(lambda: self._engine.call(*what))

    def renew(self) -> Said:
        """See `Runner.renew`."""
        return _said(self._engine.renew)

    def close(self) -> Said:
        """See `Runner.close`."""
        return _said(self._engine.close)


def _said(ask: Callable[[], Any]) -> Said:
    try:
        return Said(ask())
    except EngineFailed as failed:
        return Said(kind=failed.kind, message=str(failed))
    except RemoteError as error:
        return Said(kind="raised", message=str(error))


class RayRunner:
    """A lane whose engine is on a Ray worker. See `harness.Runner`."""

    def __init__(self, start: Callable[[], Any]) -> None:
        self._start = start
        self._host: Any = None
        self._lost = 0

    def describe(self, k: int) -> EngineInfo:
        """See `Runner.describe`."""
        info: EngineInfo = self._ask("describe", k)
        return info

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Runner.generate`."""
        yield from self._ask("generate", mode, list(requests))

    def metrics(self, mode: Mode) -> Mapping[str, float] | None:
        """See `Runner.metrics`."""
        counts: Mapping[str, float] | None = self._ask("metrics", mode)
        return counts

    def components(self) -> Sequence[Component]:
        """See `Runner.components`."""
        return remote_components(self._ask("told"), lambda *what: self._ask("call", *what))

    def renew(self) -> bool:
        """See `Runner.renew`."""
        return bool(self._ask("renew"))

    def close(self) -> None:
        """See `Runner.close`."""
        import ray

        if self._host is not None:
            with suppress(ray.exceptions.RayError):  # it went before
                ray.get(self._host.close.remote(), timeout=15)
            ray.kill(self._host)
            self._host = None

    def _ask(self, method: str, *what: Any) -> Any:
        """Ask the actor. A lost one is replaced for a question that does not depend on what was asked before."""
        import ray

        while True:
            if self._host is None:
                self._host = self._start()
            try:
                said: Said = ray.get(getattr(self._host, method).remote(*what))
            except ray.exceptions.RayActorError as lost:
                self._host = None
                self._lost += 1
                if self._lost > MOST_LOST or method == "call":
                    last = str(lost).strip().splitlines()[-1]  # what comes before it are Ray's own places
                    raise EngineFailed("crash", f"its Ray worker was lost {self._lost} times, at last with: {last}") from lost
            else:
                return said.opened()


class RayWorkers:
    """A connection to a cluster: `address` of it, "auto" for the one that this machine belongs to, "local" for one that is
    started here for this run with a processor for each of `number` workers. gpus: of each worker, may be a fraction.

    Raises UsageProblem if Ray is not installed, or the cluster cannot be reached or has no
    room for one worker more than `number`, for probes of a fresh engine.
    """

    def __init__(self, address: str, number: int, gpus: float = 0.0) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError:
            raise UsageProblem("Ray is not installed; install it with: pip install 'specref[ray]'") from None
        self._gpus = gpus
        self._folder: str | None = None
        settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
        if address == "local":
            os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # nobody else is on it; the mode would leave a token behind
            self._folder = tempfile.mkdtemp(prefix="specref-ray-")
            settings |= {
                "_temp_dir": self._folder,
                "num_cpus": number + 1,
                "include_dashboard": False,
                "object_store_memory": STORE,
            }
        try:
            ray.init(address, **settings)
        except Exception as error:  # Ray raises a plain one where parts of a local cluster take longer than its 15 to 30 s
            self.close()
            if address == "local":
                raise UsageProblem(
                    f"Ray starts no cluster here ({error}); use a machine that is less busy, or leave out --ray"
                ) from error
            raise UsageProblem(f"no Ray cluster answers at {address!r} ({error}); start one, or give --ray local") from error
        room = ray.cluster_resources()  # type: ignore[no-untyped-call]
        if room.get("CPU", 0) < number + 1 or room.get("GPU", 0) < gpus * (number + 1):
            self.close()
            raise UsageProblem(
                f"the cluster has {room.get('CPU', 0):g} processors and {room.get('GPU', 0):g} GPUs; a worker needs 1 "
                f"and {gpus:g}, and one more than --workers {number} must have room, for probes of a fresh engine: "
                "give fewer of them, or a smaller --gpus-per-worker"
            )

    def __enter__(self) -> RayWorkers:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def runner(self, make: Callable[[], EngineProcess]) -> RayRunner:
        """A lane on a worker. make: makes the process of the engine, on the worker."""
        import ray

        remote = ray.remote(Host).options(num_cpus=1, num_gpus=self._gpus)
        return RayRunner(lambda: remote.remote(make))

    def close(self) -> None:
        """Leave the cluster; a local one ends."""
        import ray

        ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
