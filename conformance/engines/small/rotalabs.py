"""rotalabs-accel's decoding functions: draft model, EAGLE, Medusa, token trees.

They take a text and give a text: the tokenizer that the adapter hands over takes token ids for a text and gives them back.
Heads are as the package makes them, untrained, which may cost speed and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Any

import rotalabs_accel.speculative as rotalabs
import torch

from conformance.engines.adapting import refuse_others
from conformance.engines.small.rounds import both_models, transformers_alone
from conformance.protocols import Engine, Mode, Models, Output, Request, Tokens, Unsupported

CPU = torch.device("cpu")
ALWAYS = ("max_tokens", "temperature", "eos", "seed")
ALSO = {
    "EAGLE": ("top_k", "top_p", "repetition_penalty", "min_tokens"),
    "draft model": ("top_k", "top_p"),
    "off": ("top_k", "top_p"),
}
"""Settings that a mode's own configuration has beside those of all."""


class Ids:
    """A tokenizer whose texts are token ids. end: the one id that ends an output; -1, which is no token, for none."""

    def __init__(self, ends: Sequence[int]) -> None:
        if len(ends) > 1:
            raise Unsupported(f"eos: rotalabs-accel looks for the tokenizer's one end, got {len(ends)}")
        self.eos_token_id = ends[0] if ends else -1

    def encode(self, prompt: Tokens, return_tensors: str) -> torch.Tensor:
        """Ids `[1, n]`."""
        return torch.tensor([prompt])

    def decode(self, ids: torch.Tensor, skip_special_tokens: bool) -> Tokens:
        """The ids themselves: whether they are shown is not the audit's concern."""
        return tuple(ids.tolist())


class Rotalabs(Engine):
    """One request at a time, each with torch's generator set to its seed."""

    name = "rotalabs-accel"
    version = version("rotalabs-accel")

    def __init__(self, models: Models) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self._target, self._draft = both_models(models)
        self._eagle = rotalabs.EAGLEModel(self._target).eval()
        self._medusa = rotalabs.MedusaModel(self._target).eval()

    def modes(self, k: int) -> Sequence[Mode]:
        """See `Engine.modes`."""
        return (
            Mode("off", rule="target"),
            Mode("draft model", {"k": k}, "ratio", "draft model"),
            Mode("EAGLE", {"k": k}, "ratio"),
            Mode("Medusa", {"k": k}, "greedy"),
            Mode("tree", {"k": k}, "undeclared", "draft model"),
        )

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Engine.generate`."""
        for request in requests:
            refuse_others(request.settings, (*ALWAYS, *ALSO.get(mode.name, ())), "this mode has no such setting")
            torch.manual_seed(request.seed)
            yield Output(self._written(mode, request))

    def close(self) -> None:
        """See `Engine.close`."""

    def _written(self, mode: Mode, request: Request) -> Tokens:
        if not mode.speculates:
            return transformers_alone(self._target, request)
        tokenizer, how = Ids(request.settings.eos), _settings(mode, request)
        models: tuple[Any, ...] = (self._draft, self._target)
        if mode.name == "EAGLE":
            decode, models = rotalabs.eagle_decode, (self._eagle,)
        elif mode.name == "Medusa":
            decode, models = rotalabs.medusa_decode, (self._medusa, self._target)
        else:
            decode = rotalabs.speculative_decode if mode.name == "draft model" else rotalabs.tree_speculative_decode
        text, _ = decode(*models, tokenizer, request.prompt, how, CPU)
        return tuple(text[len(request.prompt) :])


def _settings(mode: Mode, request: Request) -> Any:
    """The configuration of a mode. Those of trees and of Medusa know one way of choosing tokens each."""
    settings, k = request.settings, int(mode.speculation["k"])
    heat = float(settings.temperature)
    if mode.name == "Medusa":
        if heat:
            raise Unsupported(f"temperature: rotalabs-accel's Medusa verifies by the best token, got {heat:g}")
        return rotalabs.MedusaConfig(num_heads=k, max_new_tokens=settings.max_tokens)
    if mode.name == "tree":
        if not heat:
            raise Unsupported("temperature: rotalabs-accel's trees are for sampling, got 0")
        return rotalabs.TreeSpecConfig(max_depth=k, max_new_tokens=settings.max_tokens, temperature=heat)
    way = rotalabs.DecodingMode.SAMPLING if heat else rotalabs.DecodingMode.GREEDY
    common = {"lookahead_k": k, "max_new_tokens": settings.max_tokens, "temperature": heat or 1.0, "mode": way}
    if mode.name == "draft model":
        return rotalabs.SpeculativeConfig(**common, top_p=float(settings.top_p), top_k=settings.top_k or 0)
    return rotalabs.EAGLEConfig(
        **common,
        top_k=settings.top_k,
        top_p=None if settings.top_p == 1 else float(settings.top_p),
        repetition_penalty=settings.repetition_penalty,
        min_new_tokens=settings.min_tokens,
    )
