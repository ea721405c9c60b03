"""mini-infer: its engine of paged caches, without speculation; and `speculative_step`, which no part of the engine calls.

Its models are of Qwen2's form, which is Llama's with biases on queries, keys and values: here they are zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Any

import torch
from mini_infer.engine import InferenceEngine
from mini_infer.models.config import Qwen2Config
from mini_infer.models.qwen2 import Qwen2ForCausalLM
from mini_infer.models.sampler import SamplingParams
from mini_infer.speculative import speculative_step

from conformance.engines.adapting import refuse_others
from conformance.engines.small.rounds import RoundsEngine, Step
from conformance.protocols import Mode, Models, Output, Request
from specref import processors

SAMPLED = ("max_tokens", "temperature", "top_p", "top_k", "min_p", "eos", "seed")
"""Settings of its engine."""
ORDER = (*(name for name in processors.ORDER if name not in ("min_p", "top_p")), "min_p", "top_p")
COUNTED = {"ACCEPT-3": "https://github.com/Prajwal7-2002/mini-infer"}
"""`speculative_step` returns the number of accepted drafts, says its docstring."""
CACHED: dict[str, Any] = {"enable_prefix_caching": True}


class MiniInfer(RoundsEngine):
    """Without speculation requests run in its engine, eight at once; with it, in a loop of the adapter's around its rounds."""

    name = "mini-infer"
    version = version("mini-infer")

    def __init__(self, models: Models) -> None:
        super().__init__(models)
        self.target, self.draft = qwen_of(self.target), qwen_of(self.draft)
        self._engines: dict[str, InferenceEngine] = {}

    def modes(self, k: int) -> Sequence[Mode]:
        """See `Engine.modes`."""
        drafted: dict[str, Any] = {"k_draft": k}
        return (
            Mode("off", rule="target", order=ORDER),
            Mode("draft model", drafted, "ratio", "draft model", exact_draft=True, order=ORDER, promises=COUNTED),
            Mode("off, chunked prefill", rule="target", order=ORDER, options={"chunked_prefill_size": 8}),
            Mode("off, small pool", rule="target", order=ORDER, options={"num_blocks": 24}),
            Mode("off, cached prefix", rule="target", order=ORDER, options=CACHED),
        )

    def step(self, mode: Mode, ids: torch.Tensor, temperature: float) -> Step:
        """See `RoundsEngine.step`."""
        k = int(mode.speculation["k_draft"])
        tokens, accepted = speculative_step(self.target, self.draft, ids, k_draft=k, temperature=temperature)
        return Step(tuple(tokens), accepted, k)

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Engine.generate`."""
        if mode.speculates:
            yield from super().generate(mode, requests)
            return
        for request in requests:
            refuse_others(request.settings, SAMPLED, "this engine has no such setting")
        torch.manual_seed(requests[0].seed)
        if mode.options == CACHED:  # every prompt has been asked before
            self._run(mode, [(request, 1) for request in requests])
        for tokens in self._run(mode, [(request, request.settings.max_tokens) for request in requests]):
            yield Output(tokens)

    def _run(self, mode: Mode, asked: Sequence[tuple[Request, int]]) -> list[tuple[int, ...]]:
        """What its engine writes, with a limit for each request."""
        engine = self._engine(mode)
        sequences = [
            engine.add_request(list(request.prompt), sampling_params=_params(request, limit)) for request, limit in asked
        ]
        while engine.scheduler.has_unfinished_sequences():
            engine.step()
        return [tuple(sequence.output_token_ids) for sequence in sequences]

    def _engine(self, mode: Mode) -> InferenceEngine:
        if mode.name not in self._engines:
            options = {"enable_prefix_caching": False, **mode.options}
            self._engines[mode.name] = InferenceEngine(self.target, self.target.config, device=torch.device("cpu"), **options)
        return self._engines[mode.name]


def _params(request: Request, limit: int) -> SamplingParams:
    settings = request.settings
    return SamplingParams(
        max_tokens=limit,
        temperature=float(settings.temperature),
        top_p=float(settings.top_p),
        top_k=settings.top_k or -1,
        min_p=float(settings.min_p),
        stop_token_ids=set(settings.eos),
    )


def qwen_of(llama: Any) -> Qwen2ForCausalLM:
    """The engine's model with a Llama's weights."""
    theirs = llama.config
    config = Qwen2Config(
        vocab_size=theirs.vocab_size,
        hidden_size=theirs.hidden_size,
        intermediate_size=theirs.intermediate_size,
        num_hidden_layers=theirs.num_hidden_layers,
        num_attention_heads=theirs.num_attention_heads,
        num_key_value_heads=theirs.num_key_value_heads,
        head_dim=theirs.head_dim,
        rms_norm_eps=theirs.rms_norm_eps,
        rope_theta=theirs.rope_parameters["rope_theta"],
        tie_word_embeddings=theirs.tie_word_embeddings,
    )
    model = Qwen2ForCausalLM(config).eval()
    biases = {name: torch.zeros_like(value) for name, value in model.state_dict().items() if name.endswith("_proj.bias")}
    model.load_state_dict({**llama.state_dict(), **biases})
    return model
