"""What must hold after every step, each computed afresh from the committed tokens, without the engine.

A violation raises Broken and says what was found and what was expected.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from conformance.controls.stages.served import fresh
from specref.chance import SampledChance
from specref.engine import Engine, RequestState
from specref.engine.grammar import MatcherState
from specref.generate import Round
from specref.kv_cache.base import Rows
from specref.kv_cache.pages import page_names
from specref.models import Tokens

from .subjects import SMALL, SMALL_TABLE, TABLE, TARGET, plain_output, processed


class Broken(AssertionError):
    """An invariant does not hold."""


def expect(what: str, found: Any, expected: Any) -> None:
    if found != expected:
        raise Broken(f"{what}: found {found}, expected {expected}")


def check(state: RequestState, since: int) -> None:
    """Everything that can be checked of one request after a step; its first `since` rounds were checked before."""
    cache_is_fresh(state)
    if len(state.rounds) > since:
        cache_is_complete(state)
    draft_cache_is_fresh(state)
    matcher_is_fresh(state)
    rounds_add_up(state)
    stops_are_kept(state)
    for index in range(since, len(state.rounds)):
        laws_are_the_targets(state, index)
        draft_laws_are_the_small_models(state, index)
        round_can_be_replayed(state, index)
    log_probabilities_are_the_targets(state)
    metrics_follow_from_the_rounds(state)
    output_is_plain(state)


def cache_is_fresh(state: RequestState) -> None:
    """The cache holds what the committed tokens leave: all but the last once it has begun to write."""
    if state.cache is None:
        return
    expected = fresh(TARGET, state.committed[: len(state.cache)])
    if len(state.cache) >= len(state.committed) or not np.array_equal(state.cache, expected):
        raise Broken(f"the cache holds\n{state.cache}\nafter {state.committed}; a fresh prefill\n{expected}")


def cache_is_complete(state: RequestState) -> None:
    """After a round exactly one committed token is unread."""
    if state.cache is not None:
        expect(f"length of the cache after a round, {state.committed} committed", len(state.cache), len(state.committed) - 1)


def draft_cache_is_fresh(state: RequestState) -> None:
    """The draft's cache lags behind, but holds nothing else."""
    rows = state.draft_cache
    if rows is None:
        return
    expected = fresh(SMALL, state.committed[: len(rows)])
    if len(rows) >= len(state.committed) or not np.array_equal(rows, expected):
        raise Broken(f"the draft's cache holds\n{rows}\nafter {state.committed}; a fresh prefill\n{expected}")


def matcher_is_fresh(state: RequestState) -> None:
    """The matcher has taken in the output, and allows what a fresh one allows after it."""
    if state.grammar is None:
        return
    mask = state.grammar.allowed(state.output)
    expected = MatcherState(state.output, () if mask is None else tuple(np.flatnonzero(mask).tolist()))
    expect("the grammar's matcher", state.matcher, expected)


def rounds_add_up(state: RequestState) -> None:
    output: Tokens = ()
    for done in state.rounds:
        expect("start of a round", done.start, len(output))
        output += done.emitted
    expect("the emitted parts of the rounds together", output, state.output)


def stops_are_kept(state: RequestState) -> None:
    """No token after the first end; and the request has ended exactly if its output has."""
    stops = state.settings.stops()
    for length in range(1, len(state.output)):
        if stops.finished(state.output[:length]):
            raise Broken(f"the output {state.output} goes on after {state.output[:length]}, which ends it ({stops})")
    if state.status in ("running", "waiting", "finished"):
        expect("status finished", state.status == "finished", stops.finished(state.output))


def laws_are_the_targets(state: RequestState, index: int) -> None:
    """p at every position of a round: settings applied to the target with the history of that position."""
    step = state.steps[index]
    model = processed(TABLE, state.prompt, state.settings, state.grammar)
    before = state.prompt + state.output[: step.round.start]
    if step.draft.tree is None:
        paths: Sequence[Tokens] = [step.draft.tokens[:i] for i in range(len(step.draft.tokens) + 1)]
    else:
        paths = [step.draft.tree.spells(node) for node in range(len(step.draft.tree))]
    for law, path in zip(step.p, paths, strict=True):
        expected = model.next_law(before + path)
        if not np.array_equal(law, expected):
            raise Broken(f"p after {before} and the drafts {path} is {law}, expected {expected}")


def draft_laws_are_the_small_models(state: RequestState, index: int) -> None:
    """q of a drawn chain is the small model's law at that position, and gives the drafts that this request's numbers draw."""
    step = state.steps[index]
    if not step.draft.tokens or step.draft.tree is not None or state.draft_cache is None:
        return
    assert state.settings.seed is not None
    model = processed(SMALL_TABLE, state.prompt, state.settings, state.grammar)
    before = state.prompt + state.output[: step.round.start]
    chance = SampledChance(state.settings.seed)
    chance.begin_round(step.round.start)
    for i, (token, q) in enumerate(zip(step.draft.tokens, step.draft.laws, strict=True)):
        expected = model.next_law(before + step.draft.tokens[:i])
        if not np.array_equal(q, expected):
            raise Broken(f"q after {before} and the drafts {step.draft.tokens[:i]} is {q}, expected {expected}")
        expect(f"draft {i} after {before}", token, chance.picks(q, slot=("draft", i)))


def round_can_be_replayed(state: RequestState, index: int) -> None:
    """The rule, on the round's own p and draft and this request's own numbers, decides what the round says it did."""
    step = state.steps[index]
    assert state.settings.seed is not None
    chance = SampledChance(state.settings.seed)
    chance.begin_round(step.round.start)
    verified = state.speculation.rule(step.p, step.draft, chance)
    kept = verified.path or range(1, verified.accepted + 1)
    drafted = step.draft.tokens if step.draft.tree else (-1, *step.draft.tokens)
    tokens = (*(drafted[node] for node in kept), verified.next_token)
    emitted = state.settings.stops().cut(state.output[: step.round.start], tokens)
    name = state.speculation.rule.__name__
    expect("a round", step.round, Round(step.round.start, drafted[1:], verified.accepted, emitted, name))


def log_probabilities_are_the_targets(state: RequestState) -> None:
    expected = tuple(math.log(TABLE.next_law(state.prompt + state.output[:i])[token]) for i, token in enumerate(state.output))
    if len(state.logprobs) != len(expected) or not np.allclose(state.logprobs, expected, rtol=1e-9, atol=0):
        raise Broken(f"log-probabilities {state.logprobs} of the output {state.output}, expected {expected}")


def metrics_follow_from_the_rounds(state: RequestState) -> None:
    rounds = state.rounds
    longest = max((done.accepted for done in rounds), default=0)
    expected = {
        "rounds": len(rounds),
        "drafts": sum(1 for done in rounds if done.drafted),
        "draft_tokens": sum(len(done.drafted) for done in rounds),
        "accepted": sum(done.accepted for done in rounds),
        "accepted_per_position": [sum(done.accepted > i for done in rounds) for i in range(longest)],
        "emitted": len(state.output),
    }
    expect(f"metrics of {rounds}", asdict(state.metrics), expected)


def output_is_plain(state: RequestState) -> None:
    """Token matching writes what plain sampling with this seed writes; temperature 0 what plain greedy decoding writes."""
    greedy = state.settings.temperature == 0
    if greedy or state.speculation.rule.__name__ == "token_matching":
        expected = plain_output(state.prompt, state.settings, greedy, state.grammar)
        expect("the output so far, against plain decoding", state.output, expected[: len(state.output)])
        if state.status == "finished":
            expect("the whole output", state.output, expected)


def same_as_alone(state: RequestState, alone: RequestState) -> None:
    """The request's output, rounds and log-probabilities are those of the same request alone in an engine."""
    for name in ("output", "rounds", "logprobs"):
        found, whole = getattr(state, name), getattr(alone, name)
        expect(f"{name} in this batch and schedule, against the request alone", found, whole[: len(found)])


def published_pages_hold_what_their_names_say(engine: Engine, texts: Iterable[Tokens]) -> None:
    """A page is findable only by committed tokens, and holds what these leave behind."""
    size = engine.memory.pool.page_size
    expected: dict[bytes, Rows] = {}
    for text in texts:
        rows = fresh(TARGET, text)
        expected |= {name: rows[i * size :][:size] for i, name in enumerate(page_names(text, size))}
    for name, rows in engine.memory.pool.published().items():
        if name not in expected or not np.array_equal(rows, expected[name]):
            raise Broken(f"a published page holds\n{rows}\nits name says\n{expected.get(name)}")


def books_balance(engine: Engine) -> None:
    """Each page's users are the running requests that have it in their table."""
    pool = engine.memory.pool
    tables = [request.cache.table for request in engine.requests.values() if request.cache is not None]
    expect("users of the pages", pool.users, [sum(table.count(page) for table in tables) for page in range(len(pool.users))])
