"""Caches behind token ids, through schedules of rounds (KV-1); a draft's own cache (KV-2); pages of a prefix cache (KV-3)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat
from typing import TypeAlias

import numpy as np

from conformance.checks.kv import (
    CachedPage,
    CacheState,
    cache_finding,
    draft_cache_finding,
    prefix_finding,
    run,
    schedules,
)
from conformance.controls.control import Audit, Look
from conformance.engines.own_components import TokenCache
from specref.kv_cache import ContiguousCache, KVCache, PagedCache, PagePool, RowCache, settle, unread
from specref.kv_cache.pages import page_names

SCHEDULES = 28
"""The named ones, and as many random ones."""
PAGE = 4


def cache(
    make: Callable[[], RowCache],
    wrap: Callable[[RowCache], KVCache] = TokenCache,
    right: Callable[[], RowCache] | None = None,
) -> Audit:
    """The audit of a cache that holds rows. wrap: puts it behind token ids.

    right: makes the fresh caches to compare with, for a fault of reading, which a fresh cache would share.
    """

    def looks(seed: int, n: int) -> Iterator[Look]:
        states: list[CacheState] = []
        for number, plan in enumerate(schedules(SCHEDULES, seed)[:n], start=1):
            makes = chain([make], repeat(right or make))
            with contextlib.suppress(ValueError):  # it refuses the next call: loud, and what it held before was looked at
                states += run(lambda makes=makes: wrap(next(makes)()), plan)  # type: ignore[misc]
            yield number, [cache_finding("a control", states, n)]

    return Audit("cache", "schedules", SCHEDULES, looks)


Settle: TypeAlias = Callable[[KVCache, Sequence[int]], None]
Unread: TypeAlias = Callable[[KVCache, Sequence[int]], Sequence[int]]


def draft_cache(settled: Settle = settle, reads: Unread = unread, wrap: Callable[[RowCache], TokenCache] = TokenCache) -> Audit:
    """The audit of a draft model's cache, three drafts a round. settled: what is done after a round; reads: what before one."""

    def looks(seed: int, n: int) -> Iterator[Look]:
        rng = np.random.default_rng([seed, 12])
        cache = wrap(ContiguousCache())
        committed: list[int] = rng.integers(50, size=3).tolist()
        states = []
        for number in range(n):
            accepted, drafts = int(rng.integers(0, 4)), rng.integers(50, size=3).tolist()
            cache.append(list(reads(cache, committed)))
            for token in drafts[:-1]:
                cache.append([token])
            committed += [*drafts[:accepted], int(rng.integers(50))]
            settled(cache, committed)
            fresh = TokenCache(ContiguousCache())
            fresh.append(committed[:-1])
            states.append(CacheState(f"round {number}", tuple(committed[:-1]), cache.visible(), fresh.visible()))
            yield number + 1, [draft_cache_finding("a control", states, n)]

    return Audit("draft cache", "rounds", 32, looks)


Publish: TypeAlias = Callable[[PagedCache, Sequence[int], Sequence[int]], None]
"""What is published of a cache between reading drafts and forgetting them, from committed tokens and drafts."""


def nothing(cache: PagedCache, committed: Sequence[int], drafts: Sequence[int]) -> None:
    """The right thing to publish amid drafts."""


def pages(
    cache_type: type[PagedCache] = PagedCache,
    pool_type: type[PagePool] = PagePool,
    *,
    amid_drafts: Publish = nothing,
    after_round: Callable[[PagePool], None] = lambda pool: None,
    pool_pages: int = 12,
) -> Audit:
    """The audit of sequences that share a pool: prompts with a common beginning, forks, rounds of drafts, ends.

    after_round: what else the engine does to the pool after each round.
    """

    def looks(seed: int, n: int) -> Iterator[Look]:
        rng = np.random.default_rng([seed, 13])
        pool = pool_type(pool_pages, PAGE)
        texts: dict[bytes, tuple[int, ...]] = {}
        committed_ever: list[tuple[int, ...]] = []
        states: list[CacheState] = []
        shared = rng.integers(9, size=2 * PAGE).tolist()
        for number in range(n):
            committed = [*shared[: int(rng.integers(1, len(shared) + 1))], *rng.integers(9, size=3).tolist()]
            cache = cache_type.reuse(pool, committed)
            held = [(cache, committed)]
            cache.append(entries(committed)[cache.length :])
            if rng.random() < 0.5:
                held.append((cache.fork(), list(committed)))
            for turn in range(4):
                for cache, committed in held:
                    drafts = rng.integers(9, size=3).tolist()
                    accepted = int(rng.integers(0, 4))
                    for text in (committed, [*committed, *drafts]):
                        texts.update(
                            zip(page_names(text, PAGE), (tuple(text[:end]) for end in range(PAGE, len(text) + 1, PAGE)))
                        )
                    cache.append(entries([*committed, *drafts])[len(committed) :])
                    amid_drafts(cache, [*committed, *drafts[:accepted]], drafts[accepted:])
                    committed += drafts[:accepted]
                    cache.rollback(len(committed))
                    cache.publish(committed)
                    after_round(pool)
                    committed_ever.append(tuple(committed))
                for cache, committed in held:
                    where = f"sequence {number}, round {turn}"
                    states.append(CacheState(where, tuple(committed), cache.visible(), entries(committed)))
            for cache, _ in held:
                cache.rollback(0)
            found = [
                CachedPage(texts[name], rows, entries(texts[name])[-PAGE:])
                for name, rows in pool.published().items()
                if name in texts
            ]
            yield (
                number + 1,
                [
                    cache_finding("a control", states, n),
                    prefix_finding("a control", found, committed_ever, 1),
                ],
            )

    return Audit("prefix cache", "sequences", 64, looks)


def entries(tokens: Sequence[int]) -> np.ndarray:
    """What a fresh prefill leaves: one number for each token, which depends on all before it."""
    fresh = TokenCache(ContiguousCache())
    fresh.append(list(tokens))
    return fresh.visible()
