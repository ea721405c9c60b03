"""The reference engine's rounds as seen from within: a run in which every pass, mask, cache and page is written down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from conformance.components import Entries, Floats, Mask, SeenRound, Trace
from conformance.protocols import Mode, Request, Tokens
from specref.draft import Draft
from specref.engine import CachedModel, Engine, RequestState
from specref.engine.models import no_entries, read_text
from specref.engine.request import Request as Running
from specref.engine.rounds import Rounds
from specref.kv_cache.pages import page_names
from specref.processors import SamplingSettings
from specref.processors.rows import Row
from specref.tree import TokenTree

if TYPE_CHECKING:
    from conformance.engines.reference_engine import SpecrefEngine

Fed = tuple[tuple[int, int, int], ...]
LATE = 6
"""The step at which the second half of the requests arrives."""


class EngineRounds:
    """A mode of the reference engine, watched."""

    def __init__(self, engine: SpecrefEngine, mode: Mode, tolerance: float) -> None:
        speculation, asked = engine.speculation(mode), mode.speculation
        self.name, self.rule, self.tolerance = f"rounds, {mode.name}", mode.rule, tolerance
        self.engine, self.mode, self.speculation, self.target = engine, mode, speculation, engine.target
        self.lag = speculation.k if "tree" in asked else 1  # the last draft of a chain, a tree's whole path
        self.draft = engine.draft if asked.get("drafter") == "draft model" else None
        self.grammars = engine.read_grammar is not None

    def watch(self, prompts: Sequence[Tokens], max_tokens: int, temperature: float, seed: int, grammar: str) -> Trace:
        """See `RoundWatcher.watch`. Raises what ended a request that failed."""
        rules = self.engine.grammar(grammar)
        eos = (rules.eos,) if rules is not None else ()
        plain = SamplingSettings(max_tokens=max_tokens, temperature=temperature, eos=eos)
        asked = [Request(prompt, plain, seed + number) for number, prompt in enumerate(prompts)]
        engine = self.engine.start(self.mode, asked, watched(self.engine.engine_type))
        seen: list[SeenRound] = []
        done = [0] * len(prompts)
        for turn in count():
            for one in _arriving(asked, turn):
                engine.submit(one.prompt, replace(one.settings, seed=one.seed), grammar=rules)
            if turn > LATE and not (engine.scheduler.waiting or engine.scheduler.running):
                break
            for state in engine.step():
                if state.error is not None:
                    raise state.error
                if len(state.steps) > done[state.number]:
                    done[state.number] = len(state.steps)
                    seen.append(self.seen(state, cast(_Watching, engine.rounds)))
        return Trace(tuple(seen), tuple(self.pages(engine, seen)))

    def seen(self, state: RequestState, rounds: _Watching) -> SeenRound:
        """The last round of a request. Of settings only the grammar forbids anything, so p shows what it left."""
        step, number, V = state.steps[-1], state.number, self.target.vocabulary
        parents = step.draft.tree.parents if step.draft.tree is not None else None
        drafting = self.draft if state.status == "running" and state.draft_cache is not None else None
        read = state.committed[:-1]
        in_grammar = state.matcher is not None
        return SeenRound(
            number,
            len(state.prompt) + step.round.start,
            state.committed,
            step.round.drafted,
            parents,
            rounds.scores[number],
            np.array([law > 0 for law in step.p]) if in_grammar else None,
            _mask(state.matcher.allowed, V) if state.matcher is not None else None,
            None if state.cache is None else (state.cache, fresh(self.target, read)),
            None if drafting is None or state.draft_cache is None else (state.draft_cache, fresh(drafting, read)),
            rounds.fed.get(number),
        )

    def pages(self, engine: Engine, seen: Sequence[SeenRound]) -> Iterator[tuple[Tokens, Entries, Entries]]:
        """The pages that can be found at the end, of every text that was read, drafts included."""
        size = engine.memory.pool.page_size
        texts: dict[bytes, Tokens] = {}
        for one in seen:
            before = one.committed[: one.start]
            tree = TokenTree.chain(before[-1], one.drafted) if one.parents is None else None
            tree = tree or TokenTree((before[-1], *one.drafted), one.parents or (-1,))
            for text in (one.committed, *(before + tree.spells(node) for node in range(len(tree)))):
                texts.update(zip(page_names(text, size), (text[:end] for end in range(size, len(text) + 1, size))))
        for name, entries in engine.memory.pool.published().items():
            if name in texts:
                yield texts[name], entries, fresh(self.target, texts[name])[-size:]


def _arriving(asked: Sequence[Request], turn: int) -> Sequence[Request]:
    """The requests that arrive at a step: half of them late, so that they find pages of the others."""
    half = len(asked) - len(asked) // 2
    return asked[:half] if turn == 0 else asked[half:] if turn == LATE else ()


def watched(engine_type: type[Engine]) -> type[Engine]:
    """The engine, whose rounds write down what they read."""
    rounds = type("Watched", (_Watching, engine_type.rounds_type), {})
    return type("Watched", (engine_type,), {"rounds_type": rounds})


class _Watching(Rounds):
    """Rounds that keep what their last pass read of each request: the scores, and what a draft net was fed before it."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.scores: dict[int, Floats] = {}
        self.fed: dict[int, Fed] = {}

    def draft(self, request: Running) -> Draft:
        """See `Rounds.draft`."""
        made = super().draft(request)
        fed = getattr(request.proposer, "fed", None)
        if fed is not None:
            self.fed[request.number] = tuple(fed)
        return made

    def read(self, request: Running, tree: TokenTree, draft: Draft) -> Sequence[Row]:
        """See `Rounds.read`."""
        scores = super().read(request, tree, draft)
        self.scores[request.number] = np.array([np.asarray(row, dtype=np.float64) for row in scores])
        return scores


def fresh(model: CachedModel, tokens: Tokens) -> Entries:
    """The entries that reading these tokens from the start leaves."""
    return read_text(model, no_entries(model), tokens).entries if tokens else no_entries(model)


def _mask(allowed: Sequence[int], vocabulary: int) -> Mask:
    mask: Mask = np.isin(np.arange(vocabulary), allowed)
    return mask
