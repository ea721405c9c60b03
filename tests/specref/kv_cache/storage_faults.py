"""Caches whose storage is wrong in the ways of real engines: the count, a tree's rows, or one kind of storage."""

from __future__ import annotations

import numpy as np

from specref.kv_cache import ContiguousCache, PagedCache, RecurrentCache, RowCache, StaticCache
from specref.kv_cache.base import Rows, causal_mask

# Faults of the count: the storage is right, the length handed to it is not.


class OneTooMany(RowCache):
    def rollback(self, length: int) -> None:
        super().rollback(max(length - 1, self.earliest) if length < self.length else length)


class OneTooFew(RowCache):
    def rollback(self, length: int) -> None:
        super().rollback(min(length + 1, self.length))


class TwoTooFew(RowCache):
    def rollback(self, length: int) -> None:
        super().rollback(min(length + 2, self.length))


class ResetInstead(RowCache):
    def rollback(self, length: int) -> None:
        super().rollback(0 if length < self.length else length)


class RollbackIgnored(RowCache):
    """The entries stay; only whoever asks for the length is told what they want to hear."""

    def _drop(self, length: int) -> None:
        pass


# Faults of a tree's rows.


class NotGathered(RowCache):
    """As many rows stay as were accepted, but the first of the tree."""

    def _keep(self, nodes: tuple[int, ...]) -> None:
        super()._keep(tuple(range(len(nodes))))


class RootForgotten(RowCache):
    """The path is counted from the root's child, so every row comes one node early."""

    def _keep(self, nodes: tuple[int, ...]) -> None:
        super()._keep(tuple(max(node - 1, 0) for node in nodes))


class ChainOrder(RowCache):
    """In a recurrent tree every node continues the node before it, not its parent."""

    def _hold(self, rows: Rows, parents: tuple[int, ...]) -> None:
        super()._hold(rows, tuple(range(-1, len(rows) - 1)))


def overlapping(store: Rows, start: int, nodes: tuple[int, ...]) -> None:
    """Move rows to the front one by one, the last first, as threads may: some are overwritten before they are read."""
    for to, node in reversed([*enumerate(nodes)]):
        store[start + to] = store[start + node]


class OverlapInStatic(StaticCache):
    def _keep(self, nodes: tuple[int, ...]) -> None:
        overlapping(self.buffer, self.length, nodes)


class OverlapInContiguous(ContiguousCache):
    def _keep(self, nodes: tuple[int, ...]) -> None:
        overlapping(self._rows, self.length, nodes)
        self._rows = self._rows[: self.length + len(nodes)]


class OverlapInPages(PagedCache):
    def _keep(self, nodes: tuple[int, ...]) -> None:
        for to, node in reversed([*enumerate(nodes)]):
            (page, slot), (old_page, old_slot) = (self._place(self.length + n) for n in (to, node))
            self.pool.storage[page, slot] = self.pool.storage[old_page, old_slot]
        self._drop(self.length + len(nodes))

    def _place(self, position: int) -> tuple[int, int]:
        return self.table[position // self.pool.page_size], position % self.pool.page_size


# Faults of one kind of storage.


class MaskByLength(StaticCache):
    """Every row ever written can be seen, stale ones included."""

    written = 0

    def visible(self) -> Rows:
        self.written = max(self.written, self.length)
        return np.asarray(self.buffer[causal_mask([self.written - 1], np.arange(len(self.buffer)))[0]])


class FrozenPositions(StaticCache):
    """Drafts are written where those of the first round were."""

    frozen: int | None = None

    def _write(self, rows: Rows) -> None:
        if self.frozen is None and len(rows) > 1:
            self.frozen = self.length
        start = self.length if self.frozen is None or len(rows) == 1 else self.frozen
        self.buffer[start : start + len(rows)] = rows


class SnapshotOffByOne(RecurrentCache):
    """The state of one position earlier, after any rejection."""

    def _drop(self, length: int) -> None:
        if length < self.length and len(self._states) > self.length - length + 1:
            super()._drop(length)
            self._states[-1] = self._states[-2]


class SnapshotNotRenumbered(RecurrentCache):
    """Snapshots of the round are found by the number of the append, right for the first rollback of a round alone."""

    def _drop(self, length: int) -> None:
        back, rolled = self.length - length, getattr(self, "_rolled", 0)
        shifted = self._states[max(-1 - back - rolled, -len(self._states))]
        super()._drop(length)
        self._states[-1] = shifted
        self._rolled = rolled + back

    def _write(self, rows: Rows) -> None:
        super()._write(rows)
        self._rolled = 0


class ContiguousSlots(PagedCache):
    """A sequence's pages are taken to follow its first one."""

    def _read(self, positions: Rows) -> Rows:
        page, slot = np.divmod(positions, self.pool.page_size)
        first = self.table[0] if self.table else 0
        return np.asarray(self.pool.storage[(first + page) % len(self.pool.storage), slot])


class PagesNeverFreed(PagedCache):
    def _drop(self, length: int) -> None:
        del self.table[self._pages_for(length) :]
