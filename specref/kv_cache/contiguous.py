"""A contiguous cache that grows with the sequence: the simplest one, and the yardstick for the others.

Rollback crops. A tree lies behind the sequence in the order of its nodes, so the accepted rows must be gathered to the
front. Rotary positions need no repair: a node was read at position length + depth, which is where it lands.

Pitfalls: a crop by "how many to drop" with the wrong sign or off by one; a crop to 0 where one row was meant; a gather
that overwrites a row before it is read (source and destination overlap).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike

from specref.kv_cache.base import RowCache, Rows


class ContiguousCache(RowCache):
    """Rows `[length, *entry_shape]` in one array that grows by concatenation (transformers' DynamicCache).

    Source: Leviathan et al. (2211.17192) for the chain; Medusa (2401.10774, section 2.1.2) for the tree.

    A chain of one committed token and two drafts, the second of them rejected:

    >>> cache = ContiguousCache(entry_shape=(2,), dtype=int)         # an entry: one key and one value
    >>> cache.append([[10, 11], [20, 21], [30, 31]])
    >>> cache.rollback(2)
    >>> cache.visible()
    array([[10, 11],
           [20, 21]])

    A tree of root 40 with the children 50 and 60, and 70 below 60; the path 60, 70 is accepted:

    >>> cache.append([[40, 41], [50, 51], [60, 61], [70, 71]], parents=[-1, 0, 0, 2])
    >>> cache.length                                                  # the tree still waits
    2
    >>> cache.gather([2, 3])
    >>> cache.visible()[:, 0]
    array([10, 20, 40, 60, 70])
    """

    def __init__(self, entry_shape: Sequence[int] = (), dtype: DTypeLike = np.float64) -> None:
        super().__init__(entry_shape, dtype)
        self._rows = np.empty((0, *self.entry_shape), self.dtype)

    def visible(self) -> Rows:
        """Rows `[length, *entry_shape]`, a copy.

        >>> ContiguousCache(entry_shape=(2,)).visible().shape
        (0, 2)
        """
        return self._rows[: self.length].copy()

    def _write(self, rows: Rows) -> None:
        self._rows = np.concatenate([self._rows, rows])

    def _keep(self, nodes: tuple[int, ...]) -> None:
        accepted = self._rows[self.length + np.array(nodes)]  # indexing by an array copies, so nothing can overlap
        self._rows = np.concatenate([self._rows[: self.length], accepted])

    def _drop(self, length: int) -> None:
        self._rows = self._rows[:length]
