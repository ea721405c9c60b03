"""vLLM's verification alone: the function `rejection_sample`, and the module around it that a runner calls.

The function is handed laws; the module (`RejectionSampler`) is handed logits and each request's temperature, as in a run. Both
draw their random numbers from torch's generator. Each lives in a process of its own: the native kernels trust what they are
given, and a draft that is no token ends theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal, cast

import numpy as np
import torch
from vllm.platforms import current_platform
from vllm.v1.sample.logits_processor import LogitsProcessors
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.rejection_sampler import RejectionSampler, rejection_sample
from vllm.v1.sample.sampler import Sampler
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

from conformance.components import Component, Floats, Ints, VerifiedBatch
from conformance.engines.vllm.forked import Forked


class Isolated:
    """A verifier in a process of its own. Handed no draft laws, vLLM's rule is the one-hot one."""

    trees: Literal[False] = False
    takes_uniforms = False

    def __init__(self, name: str, rule: str, make: Callable[[], _Verifier]) -> None:
        self.name, self.rule = name, rule
        self._forked = Forked(make)

    def verify(self, p: Floats, q: Floats | None, drafts: Ints, *, uniforms: Floats | None, seed: int) -> VerifiedBatch:
        """See `ChainVerifier.verify`. Raises RuntimeError, saying how, if the process ends."""
        return cast(VerifiedBatch, self._forked.ask("verify", p, q, drafts, seed))


class _Verifier:
    """What function and module have in common. method: the `rejection_sample_method` that the module is told."""

    def __init__(self, method: str = "standard") -> None:
        current_platform.import_kernels()
        if hasattr(current_platform, "register_triton_kernel_overrides"):
            current_platform.register_triton_kernel_overrides()
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._sampler = Sampler()
        self._module = RejectionSampler(self._sampler, SimpleNamespace(rejection_sample_method=method), self._device)

    def verify(self, p: Floats, q: Floats | None, drafts: Ints, seed: int) -> VerifiedBatch:
        """See `ChainVerifier.verify`."""
        torch.manual_seed(seed)
        with np.errstate(divide="ignore"):
            logits = torch.tensor(np.log(p), dtype=torch.float32, device=self._device)
        laws = None
        if q is not None:
            laws = torch.tensor(q, dtype=torch.float32, device=self._device).flatten(0, 1).contiguous()
        tokens = torch.tensor(drafts, dtype=torch.int32, device=self._device)
        emitted = self._verified(logits, laws, tokens, _settings(len(drafts), self._device))
        return answer(emitted.cpu().numpy())

    def _verified(self, logits: Any, laws: Any, drafts: Any, settings: SamplingMetadata) -> Any:
        """Tokens `[B, k+1]`, -1 after the last one. logits `[B, k+1, V]`, laws `[B * k, V]` or None, drafts `[B, k]`."""
        raise NotImplementedError


class Function(_Verifier):
    """`rejection_sample`; the bonus token, which the caller hands it, comes from vLLM's own sampler."""

    def _verified(self, logits: Any, laws: Any, drafts: Any, settings: SamplingMetadata) -> Any:
        B, k = drafts.shape
        bonus = self._sampler(logits=logits[:, k].contiguous(), sampling_metadata=settings, predict_bonus_token=True)
        ends = torch.arange(1, B + 1, dtype=torch.int32, device=drafts.device) * k
        before = logits[:, :k].flatten(0, 1).contiguous()
        return rejection_sample(drafts.flatten(), [k] * B, k, ends, laws, before, bonus.sampled_token_ids, settings)


class Module(_Verifier):
    """`RejectionSampler` as a runner calls it, with requests at temperature 1."""

    def _verified(self, logits: Any, laws: Any, drafts: Any, settings: SamplingMetadata) -> Any:
        B, k = drafts.shape
        places = torch.arange(B * (k + 1), dtype=torch.int32, device=drafts.device).view(B, k + 1)
        ends = torch.arange(1, B + 1, dtype=torch.int32, device=drafts.device)
        asked = SpecDecodeMetadata(
            draft_token_ids=drafts.flatten(),
            num_draft_tokens=[k] * B,
            cu_num_draft_tokens=ends * k,
            cu_num_sampled_tokens=ends * (k + 1),
            target_logits_indices=places[:, :k].flatten(),
            bonus_logits_indices=places[:, k].contiguous(),
            logits_indices=places.flatten(),
        )
        return self._module(asked, laws, logits.flatten(0, 1).contiguous(), settings).sampled_token_ids


def _settings(B: int, device: torch.device) -> SamplingMetadata:
    """B requests at temperature 1 that ask for nothing else."""
    zeros = torch.zeros(B, device=device)
    return SamplingMetadata(
        temperature=torch.ones(B, device=device),
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
        repetition_penalties=torch.ones(B, device=device),
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


def all_components() -> Sequence[Component]:
    """The function and the module under each rule, and the module told to verify by blocks."""
    return (
        Isolated("rejection_sample, drawn drafts", "ratio", Function),
        Isolated("rejection_sample, chosen drafts", "one_hot", Function),
        Isolated("RejectionSampler, drawn drafts", "ratio", Module),
        Isolated("RejectionSampler, chosen drafts", "one_hot", Module),
        Isolated('RejectionSampler, rejection_sample_method="block"', "block", partial(Module, "block")),
    )
