"""specdec: the ratio rule at temperature 1, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

import torch
from specdec import SpecDecoder

from conformance.engines.small.rounds import RoundsEngine, Step
from conformance.protocols import Mode, Models, Unsupported


class Specdec(RoundsEngine):
    """A `SpecDecoder` that was handed its models, not their names. Speculation off, it calls transformers' `generate`."""

    name = "specdec"
    version = version("specdec")

    def __init__(self, models: Models) -> None:
        super().__init__(models)
        self._decoder = SpecDecoder.__new__(SpecDecoder)
        self._decoder.small_model, self._decoder.big_model, self._decoder.device = self.draft, self.target, "cpu"

    def modes(self, k: int) -> Sequence[Mode]:
        """See `Engine.modes`."""
        drafted = Mode("draft model", {"num_sample_tok": k}, "ratio", "draft model", exact_draft=True)
        return (Mode("off", rule="target"), drafted)

    def step(self, mode: Mode, ids: torch.Tensor, temperature: float) -> Step:
        """See `RoundsEngine.step`."""
        if temperature != 1:
            raise Unsupported(f"temperature: specdec draws at 1 only, got {temperature:g}")
        if not mode.speculates:
            made = self.target.generate(ids, max_new_tokens=1, do_sample=True, top_k=0, eos_token_id=None, pad_token_id=0)
            return Step((int(made[0, -1]),))
        drafts, laws = self._decoder.generate_small(ids, int(mode.speculation["num_sample_tok"]))
        drafted = len(drafts)
        tokens = self._decoder.verify(ids, drafts, laws)  # it adds to the list of drafts that it is handed
        return Step(tuple(int(token) for token in tokens), len(tokens) - 1, drafted)  # a number that it does not report itself
