"""ONNX Runtime GenAI's `Generator` as an engine under audit: one request at a time, as it wants it where it speculates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime_genai as og

from conformance.engines.adapting import Counts
from conformance.engines.onnxruntime_genai.models import LoadedModels
from conformance.engines.onnxruntime_genai.modes import NOT_HERE, all_modes
from conformance.engines.onnxruntime_genai.settings import search_options
from conformance.protocols import Engine, Mode, Models, NotHere, Output, Request, Unsupported

COUNTS = {
    "rounds": ("rounds", "standard_fallback_steps"),
    "drafts": ("rounds",),
    "draft_tokens": ("draft_tokens_proposed",),
    "accepted": ("draft_tokens_accepted",),
    "emitted": ("tokens_emitted", "standard_fallback_steps"),
}
"""GenAI's counts, by the names of `Engine.metrics`; its rounds are those with a draft, and a step without emits one token."""
OURS = ("rewound", "logits")
"""Options of a mode that say what the adapter does; the others are GenAI's search options."""
NO_LOGITS = "Speculative decoding logits are not available"
"""How GenAI says that it has no logits after a lookup that found nothing."""


class GenaiEngine(Engine):
    """Target and draft as GenAI reads them."""

    name = "onnxruntime-genai"
    version = og.__version__

    def __init__(self, models: Models) -> None:
        og.disable_telemetry_events()
        self._models = LoadedModels(models)
        self._counts = Counts()

    def modes(self, k: int) -> Sequence[Mode]:
        """See `Engine.modes`."""
        return [replace(mode, not_here=NOT_HERE.get(mode.speculation.get("drafts", ""), "")) for mode in all_modes(k)]

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Engine.generate`."""
        if mode.speculation.get("drafts") in NOT_HERE:
            raise NotHere(NOT_HERE[mode.speculation["drafts"]])
        for request in requests:
            yield self._one(mode, request)

    def metrics(self, mode: Mode) -> Mapping[str, float] | None:
        """See `Engine.metrics`."""
        return self._counts.of(mode)

    def close(self) -> None:
        """See `Engine.close`."""
        self._models.close()

    def _one(self, mode: Mode, request: Request) -> Output:
        asked = dict(mode.speculation)
        model = self._models.load(tuple(request.settings.eos), drafts=asked.pop("model", None) == "draft")
        params = og.GeneratorParams(model)
        own = {name: value for name, value in mode.options.items() if name not in OURS}
        params.set_search_options(**search_options(request), **own)
        if asked:
            params.set_speculative_options(**asked)
        generator = og.Generator(model, params)
        generator.append_tokens(np.array(request.prompt, dtype=np.int32))
        begin = min(int(mode.options.get("rewound", 0)), request.settings.max_tokens - 1)
        if begin > 1:  # GenAI takes back two tokens or more
            begun = _begun(generator, begin)
            if begun[0] in request.settings.eos:  # the first token would be kept
                return Output(begun[:1])
            generator.rewind_to(len(request.prompt))
        streamed, logprobs = self._rest(generator, reads="logits" in mode.options)
        stats = generator.get_speculative_stats()
        self._counts.add(mode, {ours: sum(float(stats[name]) for name in theirs) for ours, theirs in COUNTS.items()})
        return Output(_output(generator, request, streamed), None, logprobs if mode.logprobs else None)

    def _rest(self, generator: Any, *, reads: bool) -> tuple[tuple[int, ...], tuple[float, ...] | None]:
        """All tokens up to the end, the end included, and their log-probabilities if logits are read before each."""
        tokens: list[int] = []
        logprobs: list[float] = []
        while not generator.is_done():
            row = self._logits(generator) if reads else None
            generator.generate_next_token()
            tokens.append(int(generator.get_next_tokens()[0]))
            if row is not None:
                shifted = row - row.max()
                logprobs.append(float(shifted[tokens[-1]] - np.log(np.exp(shifted).sum())))
        return tuple(tokens), tuple(logprobs) if reads else None

    def _logits(self, generator: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
        try:
            return np.asarray(generator.get_logits()[0, -1, : self._models.target.vocabulary], dtype=np.float64)
        except RuntimeError as refusal:
            if str(refusal).startswith(NO_LOGITS):
                raise Unsupported(f"logits: GenAI refuses to give them: {refusal}") from refusal
            raise


def _begun(generator: Any, most: int) -> tuple[int, ...]:
    """Generate a few tokens that will be taken back."""
    tokens: list[int] = []
    while len(tokens) < most and not generator.is_done():
        generator.generate_next_token()
        tokens.append(int(generator.get_next_tokens()[0]))
    return tuple(tokens)


def _output(generator: Any, request: Request, streamed: tuple[int, ...]) -> tuple[int, ...]:
    """The sequence after the prompt, with the end that it leaves out.

    After `rewind_to` the first token behind the kept part is not drawn anew, and is not streamed again. Raises RuntimeError if
    the sequence does not end with what was streamed.
    """
    sequence = tuple(int(token) for token in generator.get_sequence(0))[len(request.prompt) :]
    end = tuple(token for token in streamed[-1:] if token in request.settings.eos)
    written = sequence + end
    if not streamed or written[-len(streamed) :] != streamed:
        raise RuntimeError(f"get_sequence() ends with {sequence[-4:]}, get_next_tokens() gave {streamed[-4:]}")
    return written
