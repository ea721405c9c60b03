"""`flashinfer.sampling.chain_speculative_sampling` as a verifier of chains.

As documented in flashinfer-python 0.7.4 (`flashinfer/sampling.py`): probabilities of the draft `[B, k, V]` and of the target
`[B, k+1, V]`, drafted ids `[B, k]`; it gives the ids that are emitted, int32 `[B, k+1]` with -1 behind the last, how many
drafts would be accepted if each were looked at alone `[B]`, and how many are emitted `[B]`. Random numbers come from a
generator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch

from conformance.components import Floats, Ints, VerifiedBatch


class ChainSampling:
    """The function on one device. It is handed float32 laws and int32 ids, which is what its kernel reads."""

    trees: Literal[False] = False
    name, rule, takes_uniforms = "chain_speculative_sampling", "ratio", False

    def __init__(self, function: Callable[..., Any], device: str) -> None:
        self._function, self._device = function, device

    def verify(self, p: Floats, q: Floats | None, drafts: Ints, *, uniforms: Floats | None, seed: int) -> VerifiedBatch:
        """See `ChainVerifier.verify`. Raises ValueError where its count and its tokens contradict each other."""
        emitted, _, number = self._function(
            draft_probs=self._laws(q),
            draft_token_ids=torch.tensor(drafts, dtype=torch.int32, device=self._device),
            target_probs=self._laws(p),
            deterministic=True,
            generator=torch.Generator(self._device).manual_seed(seed),
        )
        return answer(emitted.cpu().numpy().astype(np.int64), number.cpu().numpy().astype(np.int64), drafts)

    def _laws(self, laws: Floats | None) -> torch.Tensor:
        return torch.tensor(laws, dtype=torch.float32, device=self._device).contiguous()


def answer(emitted: Ints, number: Ints, drafts: Ints) -> VerifiedBatch:
    """Its answer: emitted `[B, k+1]`, number `[B]` of the drafts `[B, k]` among them.

    >>> answer(np.array([[5, 7, -1]]), np.array([1]), drafts=np.array([[5, 6]]))
    VerifiedBatch(accepted=array([1]), next_token=array([7]), path=None, refused=None)
    >>> answer(np.array([[5, 7, -1]]), np.array([0]), drafts=np.array([[5, 6]]))
    Traceback (most recent call last):
    ValueError: row 0 emitted [5, 7, -1] of the drafts [5, 6], and says that 0 of these are emitted
    """
    B, k = drafts.shape
    place, count = np.arange(k + 1), np.clip(number, 0, k)[:, None]
    kept = np.concatenate([drafts, np.full((B, 1), -1)], axis=1)
    fits = np.where(place < count, emitted == kept, (place == count) | (emitted == -1)).all(axis=1)
    for row in np.flatnonzero(~fits | (number != count[:, 0]))[:1]:
        said = f"row {row} emitted {emitted[row].tolist()} of the drafts {drafts[row].tolist()}"
        raise ValueError(f"{said}, and says that {number[row]} of these are emitted")
    return VerifiedBatch(number, emitted[np.arange(B), count[:, 0]])


def on_a_gpu() -> ChainSampling:
    """FlashInfer's own function; its kernel is compiled when it is first called, for which it needs CUDA's compiler."""
    from flashinfer.sampling import chain_speculative_sampling

    return ChainSampling(chain_speculative_sampling, "cuda")
