"""vLLM's Triton kernels of both runners: compiled where there is a GPU, else run line by line by Triton's interpreter.

Nothing here imports triton or vllm before `Kernels` is made, in a new process, because both look at the environment when they
are imported.
"""

from __future__ import annotations

import os
from types import SimpleNamespace

from conformance.components import Floats, Ints, VerifiedBatch
from conformance.engines.forked import Forked


class Kernels:
    """What verifies, in a fork of this process: after a crash vLLM is not imported again. interpreted: without a GPU."""

    def __init__(self, interpreted: bool) -> None:
        if interpreted:
            _interpret()
        from conformance.engines.vllm.second_runner import BothRunners

        self._forked = Forked(BothRunners)

    def verify(self, what: str, p: Floats, q: Floats | None, drafts: Ints, seed: int) -> VerifiedBatch:
        """See `Verifiers.verify`."""
        found: VerifiedBatch = self._forked.ask("verify", what, p, q, drafts, seed)
        return found


def _interpret() -> None:
    os.environ["TRITON_INTERPRET"] = "1"
    import triton.backends

    # vLLM wants to see one active driver, or it does without Triton.
    triton.backends.backends["cpu"] = SimpleNamespace(driver=SimpleNamespace(is_active=lambda: True))
    from vllm.triton_utils import tl, tldevice

    tldevice.log1p = lambda x: tl.log(1.0 + x)  # a device library's function, which the interpreter does not know
