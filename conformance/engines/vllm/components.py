"""vLLM's verification alone: its functions handed laws, and the module that a runner calls handed logits and temperatures.

Each native one lives in a process of its own, because these kernels trust what they are given: a draft that is no token ends
theirs. The Triton kernels share a new one, because their interpreter has to be chosen before vLLM is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal, cast

from vllm.platforms import current_platform

from conformance.components import Floats, Ints, VerifiedBatch
from conformance.engines.forked import Forked
from conformance.engines.vllm.interpreted import Kernels
from conformance.engines.vllm.verifiers import Verifiers

PARTS = (
    ("rejection_sample, drawn drafts", "ratio", "function"),
    ("rejection_sample, chosen drafts", "one_hot", "function"),
    ("sample_recovered_tokens, drawn drafts", "ratio", "recovered"),
    ("sample_recovered_tokens, chosen drafts", "one_hot", "recovered"),
    ("expand_batch_to_tokens", "one_hot", "expanded"),
    ("RejectionSampler, drawn drafts", "ratio", "module"),
    ("RejectionSampler, chosen drafts", "one_hot", "module"),
    ('RejectionSampler, rejection_sample_method="block"', "block", "block"),
)
"""Name, declared rule and method of `Verifiers`."""
APPLY_TEMPERATURE = ("expanded", "module", "block")
"""Methods by which logits and the temperatures that rows ask for are handed over; the others are handed laws."""
SECOND = (
    ("rejection_sample, drawn drafts", "ratio", "second"),
    ("rejection_sample, chosen drafts", "one_hot", "second"),
    ("rejection_sample, by blocks", "block", "second_block"),
)
"""The same of Model Runner V2."""


class Isolated:
    """A verifier in another process. Handed no draft laws, vLLM's rule is the one-hot one."""

    trees: Literal[False] = False
    takes_uniforms = False

    def __init__(self, name: str, rule: str, what: str, process: Forked) -> None:
        self.name, self.rule, self._what, self._process = name, rule, what, process
        self.applies = ("temperature",) if what in APPLY_TEMPERATURE else ()

    def verify(self, p: Floats, q: Floats | None, drafts: Ints, *, uniforms: Floats | None, seed: int) -> VerifiedBatch:
        """See `ChainVerifier.verify`. Raises RuntimeError, saying how, if the process ends."""
        return cast(VerifiedBatch, self._process.ask("verify", self._what, p, q, drafts, seed))

    def close(self) -> None:
        """End its process; the next question starts another."""
        self._process.close()


def all_components() -> Sequence[Isolated]:
    """What verifies natively; and the Triton kernels of both runners, by the interpreter where there is no GPU."""
    on_cpu = current_platform.is_cpu()
    kernels = Forked(partial(Kernels, on_cpu), afresh=True)
    native = [Isolated(*part, Forked(Verifiers)) for part in PARTS]
    first = [Isolated(f"Triton {name}", rule, what, kernels) for name, rule, what in PARTS[:-1] if on_cpu]
    second = [Isolated(f"Model Runner V2 {name}", rule, what, kernels) for name, rule, what in SECOND]
    return (*native, *first, *second)
