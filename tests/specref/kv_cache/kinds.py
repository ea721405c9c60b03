"""Every kind of cache, with what a fresh prefill of the same tokens leaves in it, computed without any cache.

An entry is `[2]`: its token, and a number that depends on the whole prefix. So an entry at the wrong place, of a
rejected token, or of the right token after another prefix is never equal to the right one by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from specref.kv_cache import ContiguousCache, PagedCache, PagePool, RecurrentCache, RingCache, RowCache, StaticCache
from specref.kv_cache.base import Rows

K = 4  # the most drafts of a round
DEPTH = K + 1  # the round's first row and its drafts


class Mismatch(AssertionError):
    """The cache is not what a fresh prefill of the committed tokens leaves behind."""


def mixed(past: int, token: int) -> int:
    """A number for the past and one token more; for each past different for different tokens, and hard to undo."""
    return (past * 6364136223846793005 + (token + 1) * 1442695040888963407 + 1) % 2**63


def entry_numbers(tokens: Sequence[int]) -> list[int]:
    numbers = [1]
    for token in tokens:
        numbers.append(mixed(numbers[-1], token))
    return numbers[1:]


def entries(tokens: Sequence[int]) -> Rows:
    """Rows `[n, 2]` that reading these tokens from the start leaves behind."""
    return np.array([*zip(tokens, entry_numbers(tokens))], dtype=np.int64).reshape(-1, 2)


def tree_entries(before: Sequence[int], tokens: Sequence[int], parents: Sequence[int]) -> Rows:
    """Rows `[N, 2]` of a tree read after `before`: each node's entry is that of its own path."""
    numbers: list[int] = []
    for token, parent in zip(tokens, parents):
        past = [1, *entry_numbers(before)][-1] if parent < 0 else numbers[parent]
        numbers.append(mixed(past, token))
    return np.array([*zip(tokens, numbers)], dtype=np.int64).reshape(-1, 2)


def step(state: Rows, row: Rows) -> Rows:
    """A recurrent layer that forgets nothing."""
    return np.array([row[0], mixed(int(state[1]), int(row[1]))])


def state_after(tokens: Sequence[int]) -> Rows:
    state = np.array([0, 1])
    for row in entries(tokens):
        state = step(state, row)
    return state


def shuffled_pool(page_size: int, pages: int, cls: type[PagePool] = PagePool) -> PagePool:
    """A pool whose next pages are neighbours nowhere and hold what earlier sequences left."""
    pool = cls(pages, page_size, entry_shape=(2,), dtype=np.int64)
    taken = [pool.take() for _ in range(pages)]
    pool.storage[:] = -1
    for page in taken[1::2] + taken[::2][::-1]:
        pool.release(page)
    return pool


def compare(cache: RowCache, tokens: Sequence[int], expected: Rows, where: str) -> None:
    """Raise Mismatch unless the cache shows what a fresh prefill of the tokens leaves behind."""
    if cache.length != len(tokens):
        raise Mismatch(f"{where}: length {cache.length} for {len(tokens)} tokens")
    found = cache.visible()
    if found.shape != expected.shape or not (found == expected).all():
        raise Mismatch(f"{where}:\n{found}\na fresh prefill of {list(tokens)}:\n{expected}")


@dataclass(frozen=True)
class Kind:
    """A way to make an empty cache, and what it must show after a fresh prefill of some tokens."""

    name: str
    make: Callable[[], RowCache]
    fresh: Callable[[Sequence[int]], Rows]

    def compare(self, cache: RowCache, tokens: Sequence[int], when: str) -> None:
        compare(cache, tokens, self.fresh(tokens), f"{self.name} {when}")


def last(window: int) -> Callable[[Sequence[int]], Rows]:
    return lambda tokens: entries(tokens)[-window:]


def contiguous(cls: type[ContiguousCache] = ContiguousCache) -> Kind:
    return Kind(cls.__name__, lambda: cls(entry_shape=(2,), dtype=np.int64), entries)


def static(cls: type[StaticCache] = StaticCache) -> Kind:
    return Kind(cls.__name__, lambda: cls(capacity=400, entry_shape=(2,), dtype=np.int64), entries)


def ring(window: int, cls: type[RingCache] = RingCache) -> Kind:
    return Kind(
        f"{cls.__name__} window {window}",
        lambda: cls(window, DEPTH, entry_shape=(2,), dtype=np.int64),
        last(window),
    )


def recurrent(cls: type[RecurrentCache] = RecurrentCache) -> Kind:
    return Kind(cls.__name__, lambda: cls(step, np.array([0, 1]), DEPTH, entry_shape=(2,), dtype=np.int64), state_after)


def paged(page_size: int, cls: type[PagedCache] = PagedCache) -> Kind:
    return Kind(f"{cls.__name__} page size {page_size}", lambda: cls(shuffled_pool(page_size, 400)), entries)


KINDS = [
    contiguous(),
    static(),
    *(paged(size) for size in (1, 2, 3, 4)),
    *(ring(window) for window in (1, 2, 3, K, K + 1, 8)),
    recurrent(),
]
