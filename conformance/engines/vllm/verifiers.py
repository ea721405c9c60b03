"""vLLM's verification as functions of laws, in whatever process imports this: natively, or with Triton's interpreter under it.

All draw their random numbers from torch's generator. p `[B, k+1, V]`, q `[B, k, V]` or None, drafts `[B, k]`, as in
`ChainVerifier.verify`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from vllm.platforms import current_platform
from vllm.v1.sample import rejection_sampler as v1
from vllm.v1.sample.logits_processor import LogitsProcessors
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.sampler import Sampler
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

from conformance.components import Floats, Ints, VerifiedBatch
from conformance.engines.own_components import BatchedChain

HEATS = (0.5, 1.0, 2.0)
"""Temperatures that the rows of one batch ask for."""


class Verifiers:
    """vLLM's parts that verify, by name."""

    def __init__(self) -> None:
        current_platform.import_kernels()
        if hasattr(current_platform, "register_triton_kernel_overrides"):
            current_platform.register_triton_kernel_overrides()
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._sampler = Sampler()

    def verify(self, what: str, p: Floats, q: Floats | None, drafts: Ints, seed: int) -> VerifiedBatch:
        """What the part called `what` decides. See `ChainVerifier.verify`."""
        torch.manual_seed(seed)
        found: VerifiedBatch = getattr(self, what)(p, q, drafts, seed)
        return found

    def function(self, p: Floats, q: Floats | None, drafts: Ints, seed: int) -> VerifiedBatch:
        """`rejection_sample`; the bonus token, which its caller hands it, comes from vLLM's own sampler."""
        B, k = drafts.shape
        logits, settings = self._logits(p), _settings(torch.ones(B, device=self._device))
        bonus = self._sampler(logits=logits[:, k].contiguous(), sampling_metadata=settings, predict_bonus_token=True)
        before = logits[:, :k].flatten(0, 1).contiguous()
        told = self._tokens(drafts), [k] * B, k, self._ends(B, k), self._laws(q), before, bonus.sampled_token_ids, settings
        return answer(v1.rejection_sample(*told).cpu().numpy())

    def module(self, p: Floats, q: Floats | None, drafts: Ints, seed: int, method: str = "standard") -> VerifiedBatch:
        """`RejectionSampler` as a runner calls it, with requests at temperature 1."""
        B, k = drafts.shape
        sampler = v1.RejectionSampler(self._sampler, SimpleNamespace(rejection_sample_method=method), self._device)
        places = torch.arange(B * (k + 1), dtype=torch.int32, device=self._device).view(B, k + 1)
        asked = SpecDecodeMetadata(
            draft_token_ids=self._tokens(drafts),
            num_draft_tokens=[k] * B,
            cu_num_draft_tokens=self._ends(B, k),
            cu_num_sampled_tokens=self._ends(B, k + 1),
            target_logits_indices=places[:, :k].flatten(),
            bonus_logits_indices=places[:, k].contiguous(),
            logits_indices=places.flatten(),
        )
        logits = self._logits(p).flatten(0, 1).contiguous()
        settings = _settings(torch.ones(B, device=self._device))
        return answer(sampler(asked, self._laws(q), logits, settings).sampled_token_ids.cpu().numpy())

    def block(self, p: Floats, q: Floats | None, drafts: Ints, seed: int) -> VerifiedBatch:
        """The same module, told to verify by blocks."""
        return self.module(p, q, drafts, seed, "block")

    def expanded(self, p: Floats, q: Floats | None, drafts: Ints, seed: int) -> VerifiedBatch:
        """Our own rule over laws that went through `expand_batch_to_tokens`: logits multiplied by a temperature of the row's
        own, and divided by what that function says is the temperature of each token."""
        B, k = drafts.shape
        asked = torch.tensor(HEATS, device=self._device)[torch.randint(len(HEATS), (B,), device=self._device)]
        of_tokens = v1.expand_batch_to_tokens(asked, self._ends(B, k), B * k, replace_from=0, replace_to=1).view(B, k, 1)
        is_one = (of_tokens > 1e-3) & (of_tokens < 1e3)  # anything else counts as a very wrong temperature: a law is judged
        logits = self._logits(p)[:, :k] * asked[:, None, None] / of_tokens.where(is_one, torch.tensor(1e3))
        laws = np.concatenate([logits.softmax(dim=-1).double().cpu().numpy(), p[:, k:]], axis=1)
        return BatchedChain("one_hot").verify(laws, None, drafts, uniforms=None, seed=seed)

    def recovered(self, p: Floats, q: Floats | None, drafts: Ints, seed: int) -> VerifiedBatch:
        """Our own rule, whose token after a rejection comes from `sample_recovered_tokens`."""
        B, k = drafts.shape
        ours = BatchedChain("one_hot" if q is None else "ratio").verify(p, q, drafts, uniforms=None, seed=seed)
        target = torch.tensor(p[:, :k], dtype=torch.float32, device=self._device).flatten(0, 1).contiguous()
        settings = _settings(torch.ones(B, device=self._device))
        told = self._ends(B, k), self._tokens(drafts), self._laws(q), target, settings, self._device
        theirs = v1.sample_recovered_tokens(k, [k] * B, *told).view(B, k).cpu().numpy().astype(np.int64)
        after = theirs[np.arange(B), np.minimum(ours.accepted, k - 1)]
        return VerifiedBatch(ours.accepted, np.where(ours.accepted < k, after, ours.next_token), refused=ours.refused)

    def _logits(self, p: Floats) -> torch.Tensor:
        with np.errstate(divide="ignore", invalid="ignore"):
            return torch.tensor(np.log(p), dtype=torch.float32, device=self._device)

    def _laws(self, q: Floats | None) -> torch.Tensor | None:
        if q is None:
            return None
        return torch.tensor(q, dtype=torch.float32, device=self._device).flatten(0, 1).contiguous()

    def _tokens(self, drafts: Ints) -> torch.Tensor:
        return torch.tensor(drafts, dtype=torch.int32, device=self._device).flatten()

    def _ends(self, B: int, each: int) -> torch.Tensor:
        """Where each row's tokens end, if all have as many."""
        return torch.arange(1, B + 1, dtype=torch.int32, device=self._device) * each


def _settings(temperature: torch.Tensor) -> SamplingMetadata:
    """Requests that ask for these temperatures `[B]`, and for nothing else."""
    B = len(temperature)
    zeros = torch.zeros_like(temperature)
    return SamplingMetadata(
        temperature=temperature,
        all_greedy=False,
        all_random=True,
        top_p=None,
        top_k=None,
        generators={},
        max_num_logprobs=None,
        no_penalties=True,
        prompt_token_ids=None,
        frequency_penalties=zeros,
        presence_penalties=zeros,
        repetition_penalties=torch.ones_like(temperature),
        output_token_ids=[[] for _ in range(B)],
        allowed_token_ids_mask=None,
        bad_words_token_ids={},
        logitsprocs=LogitsProcessors(),
    )


def answer(emitted: np.ndarray[Any, Any]) -> VerifiedBatch:
    """vLLM's tokens `[B, k+1]` as what was accepted and what came next; as vLLM itself does, -1 is left out wherever it stands.

    >>> answer(np.array([[5, 6, -1], [5, 6, 7]]))
    VerifiedBatch(accepted=array([1, 2]), next_token=array([6, 7]), path=None, refused=None)
    """
    real = emitted != -1
    last = emitted.shape[1] - 1 - real[:, ::-1].argmax(axis=1)
    return VerifiedBatch(real.sum(axis=1) - 1, emitted[np.arange(len(emitted)), last].astype(np.int64))
