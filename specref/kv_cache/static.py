"""A static cache: a buffer of fixed capacity, addressed by position. Nothing is ever erased.

Rollback only says where the next token goes. The rows behind it are stale and stay, until they are overwritten; what
keeps them out of sight is a causal mask made from **positions**. A mask made from the length once reached shows them.

Attention over a buffer of unchanging shape is what compilers and CUDA graphs want. The pitfall of that: write positions
frozen when the graph was captured.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike, NDArray

from specref.kv_cache.base import CacheFull, RowCache, Rows, at_least, causal_mask


class StaticCache(RowCache):
    """Rows in `buffer` `[capacity, *entry_shape]`: slot s holds position s (gpt-fast, transformers' StaticCache).

    A tree waits in the slots length .. length + N - 1, so it needs room for all its nodes, not for one path only.

    >>> cache = StaticCache(capacity=6, dtype=int)
    >>> cache.append([10, 20, 30, 40])
    >>> cache.rollback(2)
    >>> cache.buffer                                                  # 30 and 40 are stale, and still there
    array([10, 20, 30, 40,  0,  0])
    >>> cache.visible()
    array([10, 20])
    >>> cache.append([31])
    >>> cache.buffer
    array([10, 20, 31, 40,  0,  0])
    >>> cache.append([50, 60, 70, 80])
    Traceback (most recent call last):
    ...
    specref.kv_cache.base.CacheFull: 4 rows after 3 need 7 slots of 6; draft fewer tokens or make a larger cache
    """

    def __init__(self, capacity: int, entry_shape: Sequence[int] = (), dtype: DTypeLike = np.float64) -> None:
        super().__init__(entry_shape, dtype)
        self.buffer = np.zeros((at_least(capacity, 1, "capacity"), *self.entry_shape), self.dtype)

    def mask(self, count: int) -> NDArray[np.bool_]:
        """What the next `count` tokens of a chain may see of the buffer they are written into: `[count, capacity]`.

        >>> cache = StaticCache(capacity=5)
        >>> cache.append([.1, .2, .3])
        >>> cache.rollback(1)
        >>> cache.mask(2).astype(int)                                 # the next tokens stand at positions 1 and 2
        array([[1, 1, 0, 0, 0],
               [1, 1, 1, 0, 0]])
        """
        return causal_mask(np.arange(self.length, self.length + count), np.arange(len(self.buffer)))

    def visible(self) -> Rows:
        """Rows `[length, *entry_shape]`, a copy: the slots that the last token read may see.

        >>> StaticCache(capacity=5).visible()
        array([], dtype=float64)
        """
        seen: Rows = self.buffer[causal_mask([self.length - 1], np.arange(len(self.buffer)))[0]]
        return seen

    def _check_room(self, count: int) -> None:
        end = self.length + count
        if end > len(self.buffer):
            raise CacheFull(
                f"{count} rows after {self.length} need {end} slots of {len(self.buffer)}; "
                "draft fewer tokens or make a larger cache"
            )

    def _write(self, rows: Rows) -> None:
        self.buffer[self.length : self.length + len(rows)] = rows

    def _keep(self, nodes: tuple[int, ...]) -> None:
        accepted = self.buffer[self.length + np.array(nodes)]  # a copy first: source and destination overlap
        self._write(accepted)

    def _drop(self, length: int) -> None:
        """Nothing to do: the rows behind `length` are stale, and out of sight."""
