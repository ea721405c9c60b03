"""A paged cache: one sequence whose entries lie in pages of a shared pool, found through a **block table**.

Position i lies in slot i mod page_size of page `table[i // page_size]`; the pages of a table are neighbours in no other
sense. After a round the pages wholly past the end go back to the pool. A tree's accepted rows are first moved to the
front and the rest freed after that; with page size 1 no row moves, the table just keeps the accepted slots.

Pitfalls: slots taken as start + arange; pages counted for one new token where k + 1 come; pages freed before the
accepted rows were moved out of them; a shared page written in place; a page hashed while it holds tokens that may be
rejected.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specref.kv_cache.base import CacheFull, RowCache, Rows
from specref.kv_cache.pages import PagePool, page_names


class PagedCache(RowCache):
    """One sequence in a `PagePool`: `table[j]` is the page of positions j * page_size to (j + 1) * page_size - 1.

    Source: PagedAttention (2309.06180); page size 1 with freed slots, and moving before freeing, as in SGLang.

    >>> pool = PagePool(pages=6, page_size=2, dtype=int)
    >>> cache = PagedCache(pool)
    >>> cache.append([10, 20, 30, 40, 50])
    >>> cache.table, pool.free
    ([0, 1, 2], 3)
    >>> cache.rollback(3)                                             # page 2 goes back; 40 is stale in page 1
    >>> cache.table, cache.visible(), pool.free
    ([0, 1], array([10, 20, 30]), 4)
    >>> cache.append([40, 51, 52, 60], parents=[-1, 0, 0, 2])
    >>> cache.gather([2, 3])
    >>> cache.visible()
    array([10, 20, 30, 40, 52, 60])
    """

    def __init__(self, pool: PagePool) -> None:
        super().__init__(pool.storage.shape[2:], pool.storage.dtype)
        self.pool = pool
        self.table: list[int] = []

    @classmethod
    def reuse(cls, pool: PagePool, tokens: Sequence[int]) -> PagedCache:
        """A new sequence that starts with the published pages of `tokens`, as far as there are any.

        `length` says how many tokens need not be read again. The model must still read the last token of a prompt to
        say what comes next, so pass the prompt without it.

        >>> pool = PagePool(pages=6, page_size=2, dtype=int)
        >>> cache = PagedCache(pool)
        >>> cache.append([10, 20, 30, 40, 50])
        >>> cache.publish([1, 2, 3])                                  # tokens 4 and 5 are drafts: page 1 is not hashed
        >>> PagedCache.reuse(pool, [1, 2, 3, 4, 5]).visible()
        array([10, 20])
        """
        cache = cls(pool)
        for name in page_names(tokens, pool.page_size):
            page = pool.find(name)
            if page is None:
                break
            pool.share(page)
            cache.table.append(page)
        cache._length = len(cache.table) * pool.page_size
        return cache

    def publish(self, committed: Sequence[int]) -> None:
        """Make the full pages of the committed tokens, the first `len(committed)` entries, findable for others.

        Raises ValueError for more tokens than entries.

        >>> cache = PagedCache(PagePool(pages=6, page_size=2))
        >>> cache.append([.1])
        >>> cache.publish([1, 2])
        Traceback (most recent call last):
        ...
        ValueError: 2 committed tokens for 1 entries; leave out what the model has not read
        """
        if len(committed) > self.length:
            raise ValueError(
                f"{len(committed)} committed tokens for {self.length} entries; leave out what the model has not read"
            )
        for page, name in zip(self.table, page_names(committed, self.pool.page_size), strict=False):
            self.pool.publish(page, name)

    def fork(self) -> PagedCache:
        """A second sequence with the same past, sharing every page until one of the two writes into it.

        Raises ValueError while a tree waits.

        >>> pool = PagePool(pages=6, page_size=2, dtype=int)
        >>> cache = PagedCache(pool)
        >>> cache.append([10, 20, 30])
        >>> other = cache.fork()
        >>> other.append([41])                                        # into a copy of the half-full page
        >>> cache.append([40])
        >>> cache.visible(), other.visible(), pool.free
        (array([10, 20, 30, 40]), array([10, 20, 30, 41]), 3)
        """
        if self._tree is not None:
            raise ValueError(f"a tree of {len(self._tree)} nodes waits; gather(path) or rollback before a fork")
        twin = type(self)(self.pool)
        twin.table, twin._length = list(self.table), self.length
        for page in twin.table:
            self.pool.share(page)
        return twin

    def visible(self) -> Rows:
        """Rows `[length, *entry_shape]`, a copy.

        >>> PagedCache(PagePool(pages=1, page_size=2)).visible()
        array([], dtype=float64)
        """
        return self._read(np.arange(self.length))

    def _check_room(self, count: int) -> None:
        wanted = self._pages_for(self.length + count) - len(self.table)
        if count and self._last_must_be_copied():
            wanted += 1
        if wanted > self.pool.free:
            raise CacheFull(
                f"{count} rows after {self.length} need {wanted} more pages, {self.pool.free} are free; "
                "draft fewer tokens, roll back another sequence to 0 or make a larger pool"
            )

    def _write(self, rows: Rows) -> None:
        if len(rows) and self._last_must_be_copied():
            shared, own = self.table[-1], self.pool.take()
            self.pool.storage[own] = self.pool.storage[shared]
            self.pool.release(shared)
            self.table[-1] = own
        while len(self.table) < self._pages_for(self.length + len(rows)):
            self.table.append(self.pool.take())
        self._store(rows)

    def _keep(self, nodes: tuple[int, ...]) -> None:
        if self.pool.page_size == 1:
            held = self.table[self.length :]
            self.table[self.length :] = [held[node] for node in nodes]
            for node, page in enumerate(held):
                if node not in nodes:
                    self.pool.release(page)
        else:
            self._store(self._read(self.length + np.array(nodes)))  # reading copies, so nothing can overlap
            self._drop(self.length + len(nodes))

    def _drop(self, length: int) -> None:
        while len(self.table) > self._pages_for(length):
            self.pool.release(self.table.pop())

    def _pages_for(self, length: int) -> int:
        return -(-length // self.pool.page_size)

    def _last_must_be_copied(self) -> bool:
        """Whether the next position lies in a page that is begun and not ours to write."""
        return self.length % self.pool.page_size > 0 and self.pool.must_copy(self.table[-1])

    def _read(self, positions: Rows) -> Rows:
        page, slot = np.divmod(positions, self.pool.page_size)
        rows: Rows = self.pool.storage[np.array(self.table, dtype=int)[page], slot]
        return rows

    def _store(self, rows: Rows) -> None:
        """Rows into the positions length, length + 1, ..., whose pages are there and ours."""
        page, slot = np.divmod(np.arange(self.length, self.length + len(rows)), self.pool.page_size)
        self.pool.storage[np.array(self.table, dtype=int)[page], slot] = rows
