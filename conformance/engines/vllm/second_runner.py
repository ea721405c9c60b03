"""The verification of vLLM's Model Runner V2 beside that of the first runner. It has Triton kernels only."""

from __future__ import annotations

import numpy as np
import torch
from vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils import rejection_sample

from conformance.components import Floats, Ints, VerifiedBatch
from conformance.engines.vllm.verifiers import Verifiers


class BothRunners(Verifiers):
    """The parts of both runners that verify, by name."""

    def second(
        self, p: Floats, q: Floats | None, drafts: Ints, seed: int, use_block_verification: bool = False
    ) -> VerifiedBatch:
        """Model Runner V2's `rejection_sample`, every row with a seed of its own."""
        B, k = drafts.shape
        rows = torch.arange(B, dtype=torch.int32, device=self._device)
        places = torch.arange(k + 1, device=self._device).repeat(B)
        after_the_last = np.concatenate([np.zeros_like(drafts[:, :1]), drafts], axis=1)
        tokens, number = rejection_sample(
            self._logits(p).flatten(0, 1).contiguous(),
            None if q is None else self._logits(q),
            self._tokens(after_the_last),
            cu_num_logits=torch.arange(B + 1, dtype=torch.int32, device=self._device) * (k + 1),
            pos=places,
            idx_mapping=rows,
            expanded_idx_mapping=rows.repeat_interleave(k + 1),
            expanded_local_pos=places.int(),
            temperature=torch.ones(B, device=self._device),
            seed=torch.randint(2**62, (B,), device=self._device),
            num_speculative_steps=k,
            use_block_verification=use_block_verification,
        )
        accepted = number.cpu().numpy().astype(np.int64) - 1
        return VerifiedBatch(accepted, tokens.cpu().numpy()[np.arange(B), accepted])

    def second_block(self, p: Floats, q: Floats | None, drafts: Ints, seed: int) -> VerifiedBatch:
        """The same, told to verify by blocks."""
        return self.second(p, q, drafts, seed, use_block_verification=True)
