"""vLLM's offline `LLM` as an engine under audit: each mode in a process of its own.

A process of its own, because vLLM keeps global state: at 0.32.0, after one `LLM` with the n-gram proposer no other can be
started in the same process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import vllm

from conformance.components import Component
from conformance.engines.adapting import with_what_it_lacks
from conformance.engines.forked import Forked
from conformance.engines.one_mode import OneMode
from conformance.engines.vllm.components import Isolated, all_components
from conformance.engines.vllm.modes import all_modes
from conformance.engines.vllm.offline import Offline, speculative_config
from conformance.protocols import Ended, Mode, Models, Output, Request, Unsupported

NOT_ASKED = (
    "a second LLM in a process. After one with n-gram lookup none can be started, so each mode has a process of its own "
    "(second_llm.py)",
)
"""See `Engine.not_asked`; the script lies in reports/vllm-0.32.0/reproductions."""


class VllmEngine(OneMode):
    """One mode at a time: asking for another ends its process."""

    name = "vllm"
    version = vllm.__version__

    def __init__(self, models: Models) -> None:
        super().__init__(models)
        self._parts: Sequence[Isolated] = ()
        self._offline: Forked | None = None

    def modes(self, k: int) -> Sequence[Mode]:
        """See `Engine.modes`."""
        return [with_what_it_lacks(mode, partial(speculative_config, self._models)) for mode in all_modes(k)]

    def not_asked(self) -> Sequence[str]:
        """See `Engine.not_asked`."""
        return NOT_ASKED

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

    def components(self) -> Sequence[Component]:
        """See `Engine.components`."""
        self._parts = self._parts or all_components()
        return self._parts

    def close(self) -> None:
        """See `Engine.close`."""
        self._remember_counts()
        for part in self._parts:
            part.close()
        if self._offline is not None:
            self._offline.close()
            self._mode = self._offline = None

    def counted(self) -> Mapping[str, float] | None:
        """See `OneMode.counted`. An engine that refused to start has nothing to count."""
        if self._offline is None or not self._offline.running:
            return None
        try:
            counts: dict[str, float] = self._offline.ask("counts")
        except Unsupported:
            return None
        return counts
