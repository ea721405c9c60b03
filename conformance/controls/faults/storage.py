"""Caches whose storage is wrong: a static buffer, a ring, pages, or a recurrent state."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from specref.kv_cache import (
    ContiguousCache,
    PagedCache,
    PagePool,
    RecurrentCache,
    RingCache,
    RowCache,
    StaticCache,
)
from specref.kv_cache.base import Rows, causal_mask


def state(old: Rows, row: Rows) -> Rows:
    """A recurrent state: the past, fading."""
    return np.asarray(0.5 * old + row)


def paged(kind: type[PagedCache] = PagedCache, page_size: int = 4) -> Callable[[], RowCache]:
    """A sequence in a pool of its own."""
    return lambda: kind(PagePool(64, page_size))


def ring(kind: type[RingCache] = RingCache, window: int = 8) -> Callable[[], RowCache]:
    """A ring deep enough for the schedules' rounds."""
    return lambda: kind(window=window, depth=8)


def recurrent(kind: type[RecurrentCache] = RecurrentCache) -> Callable[[], RowCache]:
    """A recurrent state with snapshots."""
    return lambda: kind(state, 0.0, depth=8)


class MaskByLength(StaticCache):
    """The mask is as wide as the cache ever was: stale rows are seen."""

    written = 0

    def _write(self, rows: Rows) -> None:
        super()._write(rows)
        self.written = max(self.written, self.length + len(rows))

    def visible(self) -> Rows:
        """See `StaticCache.visible`."""
        return np.asarray(self.buffer[causal_mask([self.written - 1], np.arange(len(self.buffer)))[0]])


class FrozenSlots(StaticCache):
    """Drafts are written where those of the first round were."""

    frozen: int | None = None

    def _write(self, rows: Rows) -> None:
        if self.frozen is None and self.length:
            self.frozen = self.length
        start = self.length if self.frozen is None or len(rows) == 1 else self.frozen
        self.buffer[start : start + len(rows)] = rows


class PadRowsWritten(StaticCache):
    """A round is padded to five rows, and the padding is written behind it, wrapped around to the front of the buffer."""

    def _write(self, rows: Rows) -> None:
        super()._write(rows)
        self.buffer[: max(0, 5 - len(rows))] = 0.0


class NothingAfterTheWrap(RingCache):
    """Right until the ring has wrapped; then nothing is trimmed and nobody notices."""

    def _drop(self, length: int) -> None:
        if self.length <= self.window:
            super()._drop(length)


class NotRestored(RingCache):
    """The length goes back, what was overwritten does not."""

    def _drop(self, length: int) -> None:
        for _ in range(length, self.length):
            self._overwritten.pop()


class RestoredOldestFirst(RingCache):
    """Wrong only where one slot was overwritten twice in a round: drafts longer than the window."""

    def _drop(self, length: int) -> None:
        undone = [self._overwritten.pop() for _ in range(length, self.length)][::-1]
        for position, row in zip(range(length, self.length), undone):
            self.slots[position % self.window] = row


class SlicedFlat(RingCache):
    """A ring is read from its slot 0 on."""

    def visible(self) -> Rows:
        """See `RingCache.visible`."""
        return self.slots[: self.length].copy()


class SnapshotOffByOne(RecurrentCache):
    """The state of one position earlier, after any rejection."""

    def _drop(self, length: int) -> None:
        shifted = length < self.length and len(self._states) > self.length - length + 1
        super()._drop(length)
        if shifted:
            self._states[-1] = self._states[-2]


class SecondRollbackShifted(RecurrentCache):
    """Snapshots are counted from the last round's rollback: right once, shifted when two rejections follow each other."""

    shift = 0

    def _drop(self, length: int) -> None:
        wanted = max(-1 - (self.length - length) - self.shift, -len(self._states))
        restored = self._states[wanted]
        self.shift = min(self.length - length, 1)
        super()._drop(length)
        self._states[-1] = restored


class StateOfColumnZero(RecurrentCache):
    """After a round with accepted drafts, a round without any goes on from the state before they were read."""

    began = 0

    def _write(self, rows: Rows) -> None:
        accepted = self.length - self.began - 1
        self.began = self.length
        if len(rows) == 1 and 0 < accepted < len(self._states):
            self._states.append(state(self._states[-1 - accepted], rows[0]))
        else:
            super()._write(rows)


class ContiguousSlots(PagedCache):
    """A sequence's pages are taken to follow its first one."""

    def __init__(self, pool: PagePool) -> None:
        super().__init__(pool)
        pool.take()  # another sequence came first, and lies in between
        self.gap = True

    def _write(self, rows: Rows) -> None:
        super()._write(rows)
        if self.gap and len(self.table) == 1:
            self.pool.take()
            self.gap = False

    def _read(self, positions: Rows) -> Rows:
        page, slot = np.divmod(positions, self.pool.page_size)
        first = self.table[0] if self.table else 0
        return np.asarray(self.pool.storage[(first + page) % len(self.pool.storage), slot])


class UnderAllocated(PagedCache):
    """Pages for one new token; the rows that find no page go to the last one."""

    def _write(self, rows: Rows) -> None:
        for row in rows[:1]:
            super()._write(row[None])
        for position, row in enumerate(rows[1:], start=self.length + 1):
            page, slot = divmod(position, self.pool.page_size)
            self.pool.storage[self.table[min(page, len(self.table) - 1)], slot] = row
        while len(self.table) < self._pages_for(self.length + len(rows)):
            self.table.append(self.pool.take())


class CopiedBackAtTheBoundary(PagedCache):
    """Where the length lands on a page boundary, the last entry is copied to the page before."""

    def _drop(self, length: int) -> None:
        super()._drop(length)
        if length and length % self.pool.page_size == 0 and len(self.table) > 1:
            self.pool.storage[self.table[-2], -1] = self.pool.storage[self.table[-1], -1]


class RootForgotten(ContiguousCache):
    """The path is counted from the root's child, so every row comes one node early."""

    def _keep(self, nodes: tuple[int, ...]) -> None:
        super()._keep(tuple(max(node - 1, 0) for node in nodes))


class StateOfTheSlotBefore(RecurrentCache):
    """In a tree every node continues the node before it, not its parent."""

    def _hold(self, rows: Rows, parents: tuple[int, ...]) -> None:
        super()._hold(rows, tuple(range(-1, len(rows) - 1)))


class Overlap(StaticCache):
    """Rows are moved to the front one by one, the last first: some are overwritten before they are read."""

    def _keep(self, nodes: tuple[int, ...]) -> None:
        for to, node in reversed([*enumerate(nodes)]):
            self.buffer[self.length + to] = self.buffer[self.length + node]


class FreedBeforeMoved(PagedCache):
    """Pages past the new end go back, and another sequence may write into them, before the rows are taken out."""

    def _keep(self, nodes: tuple[int, ...]) -> None:
        places = [divmod(self.length + node, self.pool.page_size) for node in nodes]
        old = [(self.table[page], slot) for page, slot in places]
        for page in self.table[self._pages_for(self.length + len(nodes)) :]:
            self.pool.storage[page] = -7.0
        self._drop(self.length + len(nodes))
        self._store(np.array([self.pool.storage[page, slot] for page, slot in old]))
