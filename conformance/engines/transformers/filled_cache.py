"""Assisted generation on a cache that holds the first part of a prompt, as a turn before leaves it, seen round by round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import transformers

from conformance.components import Entries, SeenRound, Trace
from conformance.engines.transformers.architectures import V, tiny
from conformance.engines.transformers.caches import ModelCaches
from conformance.engines.transformers.modes import FILLED
from conformance.engines.transformers.trace import Rounds
from conformance.engines.transformers.turns import cache_of
from conformance.protocols import Tokens

DRAFTS = 4
ARCHITECTURE = "llama"


class FilledCache:
    """The rounds of prompt lookup with a tiny model; ids are taken modulo its vocabulary. Every kind of assistance runs in the
    same loop of transformers. share: how much of a prompt the cache holds before `generate` is given the whole of it.
    """

    name, rule, lag, grammars = FILLED, "token_matching", 0, False

    def __init__(self, share: float = 0.5) -> None:
        self.share = share

    @property
    def tolerance(self) -> float:
        """See `ModelCaches.tolerance`."""
        return ModelCaches(ARCHITECTURE, "dynamic").tolerance

    def watch(self, prompts: Sequence[Tokens], max_tokens: int, temperature: float, seed: int, grammar: str) -> Trace:
        """See `RoundWatcher.watch`."""
        heat = {"do_sample": True, "temperature": temperature} if temperature else {"do_sample": False}
        settings = transformers.GenerationConfig(
            prompt_lookup_num_tokens=DRAFTS, max_new_tokens=max_tokens, pad_token_id=0, **heat
        )
        torch.manual_seed(seed)
        return Trace(tuple(one for number, prompt in enumerate(prompts) for one in self._rounds(number, prompt, settings)))

    def _rounds(self, request: int, prompt: Tokens, settings: Any) -> Iterator[SeenRound]:
        model, ids = tiny(ARCHITECTURE), [token % V for token in prompt]
        seen = WithCache(cache_of(model, ids[: int(self.share * len(ids))]))
        whole = torch.tensor([ids])
        with torch.inference_mode(), seen.of(model):
            out = model.generate(whole, attention_mask=torch.ones_like(whole), generation_config=settings, cache=seen.cache)
        for one, found in zip(seen.found, seen.entries, strict=True):
            start = len(ids) + one.start
            committed = tuple(out[0, : start + len(one.emitted)].tolist())
            yield SeenRound(request, start, committed, one.drafted, cache=(found, entries(cache_of(model, committed[:-1]))))


class WithCache(Rounds):
    """Looks at the cache too, when a round has ended: what was rejected has been taken back by then."""

    def __init__(self, cache: Any) -> None:
        super().__init__(FilledCache.rule)
        self.cache = cache
        self.entries: list[Entries] = []

    def _end_round(self, emitted: Tokens) -> None:
        super()._end_round(emitted)
        self.entries.append(entries(self.cache))


def entries(cache: Any) -> Entries:
    """Keys and values of all layers side by side, `[entries, ...]`."""
    states = [states[0].transpose(0, 1).flatten(1) for layer in cache.layers for states in (layer.keys, layer.values)]
    found: Entries = torch.cat(states, dim=1).numpy()
    return found
