"""vLLM's offline `LLM` as an engine under audit: each mode in a process of its own.

A process of its own, because vLLM keeps global state: at 0.32.0, after one `LLM` with the n-gram proposer no other can be
started in the same process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import vllm

from conformance.components import Component
from conformance.engines.vllm.components import all_components
from conformance.engines.vllm.forked import Forked
from conformance.engines.vllm.modes import all_modes
from conformance.engines.vllm.offline import Offline
from conformance.protocols import Ended, Engine, Mode, Models, Output, Request, Unsupported


class VllmEngine(Engine):
    """One mode at a time: asking for another ends its process."""

    name = "vllm"
    version = vllm.__version__

    def __init__(self, models: Models) -> None:
        self._models = models
        self._mode: Mode | None = None
        self._offline: Forked | None = None
        self._counts: dict[str, dict[str, float]] = {}

    def modes(self, k: int) -> Sequence[Mode]:
        """See `Engine.modes`."""
        return all_modes(k)

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Engine.generate`. All requests are one batch, whatever their settings."""
        if self._mode != mode or self._offline is None:
            self.close()
            self._mode, self._offline = mode, Forked(partial(Offline, self._models, mode, requests[0].seed))
        try:
            yield from self._offline.ask("generate", requests)
        except RuntimeError as error:  # an engine that has failed is not asked again
            self._offline.close()
            self._mode = self._offline = None
            raise Ended(str(error)) from error

    def metrics(self, mode: Mode) -> Mapping[str, float] | None:
        """See `Engine.metrics`."""
        if self._mode == mode:
            self._count()
        return self._counts.get(mode.name)

    def components(self) -> Sequence[Component]:
        """See `Engine.components`."""
        return all_components()

    def renew(self) -> bool:
        """See `Engine.renew`: what was asked anything is a process that ends now."""
        self.close()
        return True

    def close(self) -> None:
        """See `Engine.close`."""
        self._count()
        if self._offline is not None:
            self._offline.close()
            self._mode = self._offline = None

    def _count(self) -> None:
        """Remember what vLLM has counted so far. An engine that refused to start has nothing to count."""
        if self._mode is not None and self._offline is not None and self._offline.running:
            try:
                self._counts[self._mode.name] = self._offline.ask("counts")
            except Unsupported:
                return
