"""The verification function of transformers alone: `_speculative_sampling`, handed logits of the judge's making."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch

from conformance.components import Floats, Ints, VerifiedBatch


class SpeculativeSampling:
    """`transformers.generation.utils._speculative_sampling`, one row after the other, as it is called.

    one_hot: drafts that were chosen rather than drawn, handed over as laws that are certain of them.
    """

    trees: Literal[False] = False
    takes_uniforms = False

    def __init__(self, one_hot: bool = False) -> None:
        self.rule = "one_hot" if one_hot else "ratio"
        self.name = "_speculative_sampling" + (", certain drafts" if one_hot else "")

    def verify(self, p: Floats, q: Floats | None, drafts: Ints, *, uniforms: Floats | None, seed: int) -> VerifiedBatch:
        """See `ChainVerifier.verify`."""
        from transformers.generation.utils import _speculative_sampling

        torch.manual_seed(seed)
        k = drafts.shape[1]
        laws = (np.arange(p.shape[2]) == drafts[:, :, None]).astype(float) if q is None else q
        target, draft = _logits(p), _logits(laws)
        tokens = torch.from_numpy(drafts)
        accepted, emitted = [], []
        for row in range(len(drafts)):
            valid, matches = _speculative_sampling(tokens[row : row + 1], draft[row : row + 1], k, target[row : row + 1])
            accepted.append(int(matches))
            emitted.append(int(valid[0, -1]))
        return VerifiedBatch(np.array(accepted), np.array(emitted))


def _logits(laws: Floats) -> torch.Tensor:
    with np.errstate(divide="ignore"):
        return torch.from_numpy(np.log(laws)).float()


def verifiers() -> Sequence[Any]:
    """The verification function, and its use with drafts that were not drawn."""
    return SpeculativeSampling(), SpeculativeSampling(one_hot=True)
