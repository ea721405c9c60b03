"""An engine that is a library of kernels: it writes no text, and its parts alone are audited, on a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.components import Component
from conformance.engines.gpu import require_cuda
from conformance.engines.isolated import Isolated
from conformance.protocols import Engine, Mode, Output, Request, Unsupported


class PartsAlone(Engine):
    """parts: what is audited; nothing of them is started before it is asked."""

    def __init__(self, name: str, version: str, parts: Sequence[Isolated]) -> None:
        self.name, self.version, self.parts = name, version, parts

    def modes(self, k: int) -> Sequence[Mode]:
        """See `Engine.modes`."""
        return (Mode("parts alone"),)

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Engine.generate`."""
        raise Unsupported(f"{self.name} writes no text: only its parts are audited")

    def components(self) -> Sequence[Component]:
        """See `Engine.components`. Raises NotHere without a GPU."""
        require_cuda()
        return [part.component for part in self.parts]

    def close(self) -> None:
        """See `Engine.close`."""
        for part in self.parts:
            part.close()
