"""economize as an engine under audit, by `decode_batch` with its own selectors.

Its `generate` is not asked: called as its documentation has it, 0.3.2 refuses what transformers 5.24.0 hands it ("cannot
forward the model inputs ['cache']"); told `use_cache=False` it answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import economize
import torch
from economize.decoding import GreedySelector, TopPSampler
from economize.techniques.draft_model import DraftModelConfig
from economize.techniques.early_exit import EarlyExitConfig
from economize.techniques.lookup import LookupConfig
from economize.techniques.medusa import MedusaConfig
from transformers import AutoModelForCausalLM

from conformance.engines.adapting import Counts, refuse
from conformance.engines.economize.modes import all_modes
from conformance.protocols import Engine, Mode, Models, Output, Request

ROWS = 16
"""Requests that are decoded together."""
UNKNOWN = (
    *("top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"),
    *("logit_bias", "bad_words", "min_tokens"),
)
"""Settings that economize's own selectors have no counterpart for."""


class EconomizeEngine(Engine):
    """One model for each technique, made when it is first asked for."""

    name = "economize"
    version = version("economize")

    def __init__(self, models: Models) -> None:
        torch.set_num_threads(1)
        self._folders = models
        self._made: dict[tuple[Any, ...], Any] = {}
        self._counts = Counts()

    def modes(self, k: int) -> Sequence[Mode]:
        """See `Engine.modes`."""
        return all_modes(k)

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Engine.generate`."""
        for request in requests:
            refuse(request.settings, UNKNOWN, "economize's own selectors have no such setting")
        for first in range(0, len(requests), ROWS):
            yield from self._decoded(mode, requests[first : first + ROWS])

    def metrics(self, mode: Mode) -> Mapping[str, float] | None:
        """See `Engine.metrics`."""
        return self._counts.of(mode)

    def close(self) -> None:
        """See `Engine.close`."""
        self._made.clear()

    def _decoded(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        results = self._model(mode).decode_batch(
            [torch.tensor(request.prompt) for request in requests],
            [request.settings.max_tokens for request in requests],
            decoding=_decoding(mode, requests),
            selectors=[_selector(request) for request in requests],
            stops=[_stop(request) for request in requests],
        )
        for result in results:
            tokens = tuple(result.tokens.tolist())
            self._count(mode, result.acceptance, len(tokens))
            yield Output(tokens)

    def _model(self, mode: Mode) -> Any:
        asked = mode.speculation
        key = (asked.get("technique"), asked.get("k"), "tree" in asked)
        if key not in self._made:
            base = AutoModelForCausalLM.from_pretrained(str(self._folders.target), dtype=torch.float32).eval()
            self._made[key] = economize.apply(base, *self._technique(asked, base))
        return self._made[key]

    def _technique(self, asked: Mapping[str, Any], base: Any) -> tuple[Any, ...]:
        kind = asked.get("technique")
        if kind == "draft_model":
            return (DraftModelConfig(model=str(self._folders.draft)),)
        if kind == "lookup":
            return (LookupConfig(),)
        if kind == "early_exit":
            return (EarlyExitConfig(exit_layer=max(1, base.config.num_hidden_layers // 2), head="shared"),)
        if kind == "medusa":  # heads as they are made, untrained: they repeat the target's own logits
            return (MedusaConfig(num_heads=int(asked["k"]), tree=_paths(asked.get("tree"))),)
        return ()

    def _count(self, mode: Mode, acceptance: Sequence[tuple[int, int]], emitted: int) -> None:
        counts = {
            "drafts": sum(drafted > 0 for drafted, _ in acceptance),
            "draft_tokens": sum(drafted for drafted, _ in acceptance),
            "accepted": sum(accepted for _, accepted in acceptance),
            "emitted": emitted,
        }
        self._counts.add(mode, counts)


def _paths(tree: Any) -> Any:
    return None if tree is None else tuple(tuple(path) for path in tree)


def _decoding(mode: Mode, requests: Sequence[Request]) -> Any:
    """A cycle is an exact pass and k drafts; drawn tokens need the verifier that rejects."""
    if not mode.speculates:
        return economize.DecodeConfig(cycle_length=1)
    sampled = any(request.settings.temperature > 0 for request in requests)
    verifier = str(mode.speculation.get("verifier", "rejection" if sampled else "greedy"))
    return economize.DecodeConfig(cycle_length=int(mode.speculation["k"]) + 1, verifier=verifier)


def _selector(request: Request) -> Any:
    settings = request.settings
    if settings.temperature == 0:
        return GreedySelector()
    return TopPSampler(float(settings.temperature), float(settings.top_p), seed=request.seed)


def _stop(request: Request) -> Any:
    """Its ends as a set, or, with sequences, a predicate of all tokens so far, the prompt's among them."""
    settings = request.settings
    if not settings.stop_sequences:
        return set(settings.eos) or None
    return _ends_with([*((end,) for end in settings.eos), *settings.stop_sequences], len(request.prompt))


def _ends_with(sequences: Sequence[Sequence[int]], start: int) -> Callable[[torch.Tensor], bool]:
    def ended(tokens: torch.Tensor) -> bool:
        written = tokens[start:].tolist()
        return any(written[-len(one) :] == list(one) for one in sequences)

    return ended
