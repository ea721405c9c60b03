from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.checks.kv import CachedPage, CacheState, cache_finding, draft_cache_finding, prefix_finding, run, schedules
from conformance.controls.faults.caches import NotRolledBack as KeepsTheStateOfAllDrafts
from conformance.controls.faults.caches import Reset as ResetInsteadOfRollback
from conformance.controls.faults.storage import state
from conformance.engines.own_components import TokenCache
from conformance.findings import Finding, Verdict
from specref.kv_cache import (
    ContiguousCache,
    PagedCache,
    PagePool,
    RecurrentCache,
    RingCache,
    RowCache,
    StaticCache,
    settle,
    unread,
)

SCHEDULES = 15
Make = Callable[[], RowCache]


CACHES: dict[str, Make] = {
    "contiguous": ContiguousCache,
    "static": lambda: StaticCache(128),
    "paged": lambda: PagedCache(PagePool(64, 4)),
    "ring": lambda: RingCache(window=8, depth=8),
    "recurrent": lambda: RecurrentCache(state, 0.0, depth=8),
}


def audit(make: Make, wrap: Callable[[RowCache], Any] = TokenCache, seed: int = 0) -> Finding:
    plans = schedules(SCHEDULES, seed)
    states = [one for plan in plans for one in run(lambda: wrap(make()), plan)]
    return cache_finding("m", states, len(states))


@pytest.mark.parametrize("kind", CACHES)
def test_our_caches_conform(kind: str) -> None:
    assert audit(CACHES[kind], seed=int(np.random.default_rng().integers(10**6))).verdict is Verdict.CONFORMS


class OneTooFew(TokenCache):
    """Forgets one entry less than it should."""

    def rollback(self, length: int) -> None:
        kept = min(length + 1, self.length)
        self.rows.rollback(kept)
        self.read = self.read[:length]


class OneTooMany(TokenCache):
    def rollback(self, length: int) -> None:
        super().rollback(length - 1 if length < self.length else length)


class NothingAfterTheWrap(TokenCache):
    """A trim that works before the wrap and does nothing after it."""

    def rollback(self, length: int) -> None:
        if self.length <= 8:
            super().rollback(length)
        else:
            self.read = self.read[:length]


class NotGathered(TokenCache):
    """The first branch of the right length stays, whatever the path."""

    def gather(self, path: Sequence[int]) -> None:
        assert self._tree is not None
        depths = self._tree.depths
        self.rows.gather(self._tree.path(next(node for node in range(len(depths)) if depths[node] == len(path))))
        self.read += [self._tree.tokens[node] for node in (0, *path)]
        self._tree = None


class TreeReadInOrder(TokenCache):
    """Every node is read as if all nodes before it were its ancestors."""

    def append(self, tokens: Sequence[int], parents: Sequence[int] | None = None) -> None:
        super().append(tokens, parents)
        if parents is not None:
            tree, self._tree = self._tree, None
            self.rows.rollback(len(self.read))
            rows = [self._entry((*self.read, *tokens[: i + 1])) for i in range(len(tokens))]
            self.rows.append(rows, parents)
            self._tree = tree


FAULTS: dict[str, tuple[type[TokenCache], str]] = {
    "rollback one too few": (OneTooFew, "contiguous"),
    "rollback one too many": (OneTooMany, "paged"),
    "reset instead of rollback": (ResetInsteadOfRollback, "contiguous"),
    "rollback ignored after ring wrap": (NothingAfterTheWrap, "ring"),
    "recurrent state kept after all drafts": (KeepsTheStateOfAllDrafts, "recurrent"),
    "accepted rows not gathered": (NotGathered, "contiguous"),
    "tree read in chain order": (TreeReadInOrder, "contiguous"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_killed(name: str) -> None:
    wrap, kind = FAULTS[name]
    states: list[CacheState] = []
    for plan in schedules(SCHEDULES, 1):
        try:
            states += run(lambda: wrap(CACHES[kind]()), plan)
        except ValueError:  # some faults leave a cache that refuses the next call: loud, and not what is tested here
            continue
    found = cache_finding("m", states, 1)
    assert found.verdict is Verdict.VIOLATES, found.summary
    assert found.violations[0].startswith("schedule '")
    assert "expected" in found.violations[0]
    assert found.reproduction.count(";") <= 3  # the smallest schedule that shows it
    assert "a prompt of" in found.reproduction


def test_noise_within_the_tolerance_passes() -> None:
    states = [one for plan in schedules(3, 0) for one in run(lambda: TokenCache(ContiguousCache()), plan)]
    noisy = [replace(one, found=one.found + 1e-7) for one in states]
    assert cache_finding("m", noisy, 1, tolerance=1e-6).verdict is Verdict.CONFORMS
    assert cache_finding("m", noisy, 1).verdict is Verdict.VIOLATES
    broken = [replace(one, found=one.found * np.nan) for one in states]
    assert cache_finding("m", broken, 1, tolerance=1e-6).verdict is Verdict.VIOLATES


def test_verdicts_that_are_none() -> None:
    assert cache_finding("m", None, 1).verdict is Verdict.NOT_EXPOSED
    assert cache_finding("m", [], 5).verdict is Verdict.INCONCLUSIVE
    other = CacheState("x", (1, 2), np.zeros((2, 3)), np.zeros((2, 4)))
    assert cache_finding("m", [other], 1).verdict is Verdict.ERROR


def draft_rounds(
    settled: Callable[[Any, Sequence[int]], None], reads: Callable[[Any, Sequence[int]], Sequence[int]]
) -> Finding:
    """A draft's own cache through rounds of 3 drafts, of which 3, 1, 0, 3, 2 are accepted."""
    cache = TokenCache(ContiguousCache())
    committed = [1, 2, 3]
    states = []
    for number, accepted in enumerate((3, 1, 0, 3, 2)):
        drafts = [10 * number + i for i in range(4, 7)]
        cache.append(list(reads(cache, committed)))
        for token in drafts[:-1]:
            cache.append([token])
        committed += [*drafts[:accepted], 90 + number]
        settled(cache, committed)
        fresh = TokenCache(ContiguousCache())
        fresh.append(committed[:-1])
        states.append(CacheState(f"round {number}", tuple(committed[:-1]), cache.visible(), fresh.visible()))
    return draft_cache_finding("m", states, len(states))


def rejected_kept(cache: Any, committed: Sequence[int]) -> None:
    cache.read = cache.read[: len(committed) - 1]  # the entries stay


def drops_one_more_each_round(cache: Any, committed: Sequence[int]) -> None:
    settle(cache, committed)
    cache.rollback(max(0, cache.length - 1))


def only_the_last_token(cache: Any, committed: Sequence[int]) -> Sequence[int]:
    """After full acceptance the last draft was never read, and is left out; the rest moves up one place."""
    if len(committed) - cache.length == 2:
        cache.read.append(committed[-2])
    return committed[-1:]


DRAFT_FAULTS: dict[str, tuple[Any, Any]] = {
    "rejected drafts kept in the draft's cache": (rejected_kept, lambda cache, committed: committed[-1:]),
    "the draft's context shrinks each round": (drops_one_more_each_round, unread),
    "draft cache missing the last token after full acceptance": (settle, only_the_last_token),
}


def test_a_drafts_cache_may_lag_by_one_after_full_acceptance() -> None:
    assert draft_rounds(settle, unread).verdict is Verdict.CONFORMS


@pytest.mark.parametrize("name", DRAFT_FAULTS)
def test_a_fault_of_the_drafts_cache_is_killed(name: str) -> None:
    found = draft_rounds(*DRAFT_FAULTS[name])
    assert found.verdict is Verdict.VIOLATES, found.summary
    assert found.violations[0].startswith("round ")


def page(tokens: Sequence[int], wrong: int | None = None) -> CachedPage:
    entries = np.arange(4.0) + len(tokens)
    found = entries.copy()
    if wrong is not None:
        found[wrong] += 1
    return CachedPage(tuple(tokens), found, entries)


PREFIX_FAULTS = {
    "a page hashed while it holds rejected tokens": page([1, 2, 3, 9]),
    "dummy rows written to real slots": page([1, 2, 3, 4], wrong=2),
}


@pytest.mark.parametrize(
    ("name", "place"),
    list(zip(PREFIX_FAULTS, ("page 3, position 3: expected committed tokens only", "page 3, position 2 (token 3)"))),
)
def test_a_prefix_cache(name: str, place: str) -> None:
    committed = [(1, 2, 3, 4, 5, 6, 7, 8, 9), (4, 3, 2, 1, 5)]
    right = [page([1, 2, 3, 4]), page(range(1, 9)), page([4, 3, 2, 1])]
    assert prefix_finding("m", right, committed, 3).verdict is Verdict.CONFORMS
    assert prefix_finding("m", None, committed, 3).verdict is Verdict.NOT_EXPOSED
    found = prefix_finding("m", [*right, PREFIX_FAULTS[name]], committed, 3)
    assert found.verdict is Verdict.VIOLATES
    assert found.violations[0].startswith(place)
