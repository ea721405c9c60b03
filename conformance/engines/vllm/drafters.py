"""Drafters of the judge's own, for vLLM's `method="custom_class"`: whatever they draft may change nothing but the speed.

vLLM makes one with its configuration, and asks it once per step for the drafts of every row.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

Ints = npt.NDArray[Any]


class Drafter:
    """What vLLM asks of a drafter; subclasses say what follows one row."""

    def __init__(self, vllm_config: Any) -> None:
        self.k = int(vllm_config.speculative_config.num_speculative_tokens)
        self.vocabulary = int(vllm_config.model_config.get_vocab_size())

    def load_model(self, target: Any) -> None:
        """There is nothing to load."""

    def propose(
        self, sampled: Sequence[Sequence[int]], lengths: Ints, tokens: Ints, slot_mappings: Any = None
    ) -> list[list[int]]:
        """The drafts of every row.

        sampled: what each row emitted in this step, nothing in the middle of its prompt. lengths `[rows]`: tokens of each row
        so far. tokens `[rows, longest]`: these tokens.
        """
        return [
            self.after(row, [int(token) for token in tokens[row, : lengths[row]]]) if new else []
            for row, new in enumerate(sampled)
        ]

    def after(self, row: int, context: list[int]) -> list[int]:
        """Up to `k` drafts after `context`, in row `row` of the batch."""
        raise NotImplementedError


class Constant(Drafter):
    """Always token 0, which in most vocabularies pads and is never written: as good as always wrong."""

    def after(self, row: int, context: list[int]) -> list[int]:
        """See `Drafter.after`."""
        return [0] * self.k


class Random(Drafter):
    """Any tokens of the vocabulary, mostly wrong, the same ones after the same context."""

    def after(self, row: int, context: list[int]) -> list[int]:
        """See `Drafter.after`."""
        rng = random.Random(str(context))
        return [rng.randrange(self.vocabulary) for _ in range(self.k)]


class Ragged(Drafter):
    """As many drafts as the row's number and length give, from none to `k`: no two neighbours in a batch have as many.

    Half of them repeat what stands before, and the others are random.
    """

    def after(self, row: int, context: list[int]) -> list[int]:
        """See `Drafter.after`."""
        count = (row + len(context)) % (self.k + 1)
        rng = random.Random(str(context))
        return [context[-1 - i] if i % 2 and i < len(context) else rng.randrange(self.vocabulary) for i in range(count)]
