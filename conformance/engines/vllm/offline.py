"""One `LLM` in one way of running it: started, asked, counted."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import vllm
from vllm.exceptions import VLLMValidationError

from conformance.engines.model_folders import folder_of
from conformance.engines.vllm.metrics import from_objects
from conformance.engines.vllm.mimo import write_as_mimo
from conformance.engines.vllm.modes import NEEDS_GPU, ROLES
from conformance.engines.vllm.settings import sampling_arguments
from conformance.engines.vllm.trace import Steps, rounds_of
from conformance.protocols import Mode, Models, NotHere, Output, Request, Unsupported, few_rows

KV_BYTES = 64 * 2**20
"""Bytes of key-value cache: thousands of tokens of a small model."""

REFUSALS = (VLLMValidationError, NotImplementedError)
"""How vLLM says that it does not do what a request asks for."""

PLAIN: dict[str, Any] = {
    "dtype": "float32",
    "enforce_eager": True,
    "max_model_len": 512,
    "max_num_seqs": 64,
    "max_logprobs": -1,
    "generation_config": "vllm",  # a model's own defaults must not fill in what a request leaves open
    "enable_prefix_caching": False,
    "async_scheduling": False,  # with it, the scheduler does not know the drafts
    "disable_log_stats": False,
}
"""Arguments of every `LLM`, unless a mode's options say otherwise."""
OURS = ("seed", "written_as")
"""Options that are no arguments of `LLM`."""


class Offline:
    """vLLM's `LLM` for one mode. seed: of the engine's own generator. Raises NotHere for what is not to be had here."""

    def __init__(self, models: Models, mode: Mode, seed: int) -> None:
        self._mode = mode
        self._has_tokenizer = (models.target / "tokenizer_config.json").exists()
        arguments = PLAIN | {name: value for name, value in mode.options.items() if name not in OURS}
        speculation = speculative_config(models, mode)
        if not torch.cuda.is_available():
            arguments["kv_cache_memory_bytes"] = KV_BYTES
        with target_of(models, mode) as target:
            self._llm: Any = vllm.LLM(
                model=str(target),
                skip_tokenizer_init=not self._has_tokenizer,
                seed=seed,
                speculative_config=speculation,
                **arguments,
            )
        core = self._llm.llm_engine.engine_core
        self._steps = Steps(core.engine_core.scheduler) if mode.exposes_rounds else None

    def generate(self, requests: Sequence[Request]) -> list[Output]:
        """One output per request. All requests are one batch, whatever their settings."""
        tokenizer = self._llm.get_tokenizer() if self._has_tokenizer else None
        arguments = [sampling_arguments(self._mode, request, tokenizer) for request in requests]
        prompts = [{"prompt_token_ids": list(request.prompt)} for request in requests]
        try:
            asked = [vllm.SamplingParams(**some) for some in arguments]
            answers = self._llm.generate(prompts, asked, use_tqdm=False)
        except REFUSALS as refusal:
            raise Unsupported(f"vLLM refuses: {refusal}") from refusal
        return [self._output(answer) for answer in answers]

    def counts(self) -> dict[str, float]:
        """vLLM's own counts since it started."""
        return from_objects(self._llm.get_metrics())

    def _output(self, answer: Any) -> Output:
        out = answer.outputs[0]
        tokens = tuple(int(token) for token in out.token_ids)
        rounds = None
        if self._steps is not None:
            rounds = rounds_of(self._steps.take(answer.request_id), tokens, self._mode.rule)
        if out.logprobs is None:
            return Output(tokens, rounds)
        logprobs = tuple(float(entry[token].logprob) for token, entry in zip(tokens, out.logprobs))
        return Output(tokens, rounds, logprobs, _whole_rows(out.logprobs))


def _whole_rows(logprobs: Sequence[Mapping[int, Any]]) -> tuple[tuple[float, ...], ...]:
    """The log-probabilities of the whole vocabulary, in the order of the ids, for the first few tokens."""
    few = logprobs[: few_rows(len(logprobs[0]))] if logprobs else ()
    return tuple(tuple(float(entry[token].logprob) for token in sorted(entry)) for entry in few)


def speculative_config(models: Models, mode: Mode) -> dict[str, Any] | None:
    """vLLM's `speculative_config`, with folders for roles. Raises NotHere for what is not to be had here."""
    asked = {name: value for name, value in mode.speculation.items() if name != "hostile"}  # which vLLM need not know
    method = asked.get("method")
    needs = [name for name in NEEDS_GPU if name in mode.options] + ["ngram_gpu"] * (method == "ngram_gpu")
    if needs and not torch.cuda.is_available():
        raise NotHere(f"{needs[0]}: it needs a GPU and vLLM's GPU build")
    if mode.options.get("tensor_parallel_size", 1) > max(1, torch.cuda.device_count()):
        raise NotHere(f"tensor_parallel_size: it needs {mode.options['tensor_parallel_size']} GPUs")
    if method == "suffix" and importlib.util.find_spec("arctic_inference") is None:
        raise NotHere("suffix: vLLM needs the package arctic-inference for it (pip install --no-deps arctic-inference)")
    if asked.get("model") in ROLES:
        asked["model"] = str(folder_of(models, str(asked["model"])))
    return asked or None


@contextmanager
def target_of(models: Models, mode: Mode) -> Iterator[Path]:
    """The folder of the target, which is there until vLLM has read it: in a mode that wants it, written as a MiMo unless it
    predicts ahead by itself. Raises NotHere for a target that cannot be written so."""
    if "written_as" not in mode.options or _predicts_ahead(models.target):
        yield models.target
        return
    with TemporaryDirectory() as place:
        try:
            made = write_as_mimo(models.target, folder_of(models, "eagle"), Path(place))
        except Unsupported as why:
            raise NotHere(
                f"written_as: the target has no layers that predict ahead, and cannot be written as a MiMo ({why}); "
                "give a --target that has them (num_nextn_predict_layers in its config.json)"
            ) from why
        yield made


def _predicts_ahead(folder: Path) -> bool:
    import transformers

    config = transformers.AutoConfig.from_pretrained(str(folder)).to_dict()
    return any(config.get(name) for name in ("num_nextn_predict_layers", "mtp_num_hidden_layers"))
