"""OpenVINO GenAI as an engine under audit, by `ContinuousBatchingPipeline` on a CPU: requests run together, as token ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import openvino
import openvino_genai as genai

from conformance.engines.adapting import Counts, refuse, refuse_others, spelled
from conformance.engines.openvino_genai.convert import converted
from conformance.engines.openvino_genai.modes import all_modes
from conformance.protocols import Engine, Mode, Models, Output, Request, Unsupported

DEVICE = "CPU"
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "INFERENCE_NUM_THREADS": 1}
"""By default a CPU computes in bfloat16 where it can, and its cache holds bytes."""
SAMPLED = (
    *("max_tokens", "temperature", "top_k", "top_p", "min_p", "seed", "eos", "min_tokens", "stop_sequences"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
)
TOWARDS_ZERO = ("presence_penalty", "frequency_penalty")
"""They move a logit towards 0, as is documented ("reduces absolute log prob"): a negative one rises, and ours are others."""
OF_THE_PIPELINE = ("draft_model", "prompt_lookup", "enable_prefix_caching")
"""What of a mode is said when the pipeline is made; the rest is said with each request."""


class OpenVino(Engine):
    """One pipeline at a time, of the mode that was asked last."""

    name = "openvino-genai"
    version = version("openvino-genai")

    def __init__(self, models: Models) -> None:
        self._models = models
        self._running: tuple[set[str], Any] = (set(), None)
        self._counts = Counts()

    def modes(self, k: int) -> Sequence[Mode]:
        """See `Engine.modes`."""
        return all_modes(k)

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Engine.generate`."""
        for request in requests:
            refuse_others(request.settings, SAMPLED, "OpenVINO GenAI has no such setting of token ids")
            refuse(request.settings, TOWARDS_ZERO, "OpenVINO GenAI's setting of that name raises a logit that is negative")
        prompts = [openvino.Tensor(np.array([request.prompt], dtype=np.int64)) for request in requests]
        pipeline = self._pipeline(mode)
        asked = [_config(mode, request, pipeline.get_tokenizer()) for request in requests]
        if mode.logprobs:
            yield from _with_logprobs(pipeline, prompts, asked)
            return
        results = pipeline.generate(prompts, asked)
        self._counts.add(mode, _counted(results[0]))
        for result in results:
            yield Output(tuple(int(token) for token in result.m_generation_ids[0]))

    def metrics(self, mode: Mode) -> Mapping[str, float] | None:
        """See `Engine.metrics`. Of single requests, as log-probabilities are asked for, it tells none."""
        return self._counts.of(mode)

    def close(self) -> None:
        """See `Engine.close`."""
        self._running = (set(), None)

    def _pipeline(self, mode: Mode) -> Any:
        drafts = {name for name in OF_THE_PIPELINE if name in mode.speculation | mode.options}
        if self._running[1] is None or self._running[0] != drafts:
            self.close()  # the last one's memory, before another is taken
            folder = str(converted(self._models.target))
            scheduler = genai.SchedulerConfig()
            scheduler.cache_size = 1  # GB
            scheduler.enable_prefix_caching = "enable_prefix_caching" in drafts
            more: dict[str, Any] = dict(EXACT)
            if "draft_model" in drafts:
                more["draft_model"] = genai.draft_model(str(converted(self._models.draft)), DEVICE, **EXACT)
            if "prompt_lookup" in drafts:
                more["prompt_lookup"] = True
            made = genai.ContinuousBatchingPipeline(folder, genai.Tokenizer(folder), scheduler, DEVICE, **more)
            self._running = (drafts, made)
        return self._running[1]


def _counted(result: Any) -> dict[str, float]:
    """The counts of a whole call, which each of its results has. Those of drafts are told of a draft model only."""
    counts, drafts = {"emitted": float(result.perf_metrics.get_num_generated_tokens())}, result.extended_perf_metrics
    if drafts is not None:
        counts |= {"draft_tokens": float(drafts.get_num_draft_tokens()), "accepted": float(drafts.get_num_accepted_tokens())}
    return counts


def _with_logprobs(pipeline: Any, prompts: Sequence[Any], asked: Sequence[Any]) -> Iterator[Output]:
    """Each token's log-probability is told by the handle of a request alone; `generate` tells their sum."""
    handles = [pipeline.add_request(number, *pair) for number, pair in enumerate(zip(prompts, asked))]
    while pipeline.has_non_finished_requests():
        pipeline.step()
    for handle in handles:
        (output,) = handle.read_all()
        yield Output(tuple(map(int, output.generated_ids)), logprobs=tuple(map(float, output.generated_log_probs)))


def _config(mode: Mode, request: Request, tokenizer: Any) -> genai.GenerationConfig:
    """Everything is said: what is left out would be the model's own, or the engine's."""
    settings, said_here = request.settings, mode.speculation | mode.options
    asked = {name: value for name, value in said_here.items() if name not in OF_THE_PIPELINE}
    asked |= {"max_new_tokens": settings.max_tokens, "min_new_tokens": settings.min_tokens}
    asked |= {name: float(getattr(settings, name)) for name in SAMPLED if name.endswith("_penalty")}
    if settings.temperature:
        asked |= {"do_sample": True, "temperature": float(settings.temperature), "rng_seed": request.seed % 2**32}
        asked |= {"top_p": float(settings.top_p), "min_p": float(settings.min_p)}
        asked |= {"top_k": settings.top_k} if settings.top_k else {}
    else:
        asked["do_sample"] = False
    if settings.eos:
        asked |= {"eos_token_id": settings.eos[0], "stop_token_ids": set(settings.eos)}
    else:
        asked["ignore_eos"] = True
    if settings.stop_sequences:
        asked |= {"stop_strings": _texts(settings.stop_sequences, tokenizer), "include_stop_str_in_output": True}
    config = genai.GenerationConfig(**asked)
    try:
        config.validate()
    except RuntimeError as refusal:  # a check of the setting's range, which names it
        said = str(refusal).strip()
        name = next((one for one in SAMPLED if one in said), "settings")
        raise Unsupported(f"{name}: refused: {said.splitlines()[-1]}") from refusal
    return config


def _texts(sequences: Sequence[Sequence[int]], tokenizer: Any) -> set[str]:
    def read(text: str) -> list[int]:
        return [int(token) for token in tokenizer.encode(text, add_special_tokens=False).input_ids.data.ravel()]

    return {spelled(sequence, "OpenVINO GenAI", tokenizer.decode, read) for sequence in sequences}
