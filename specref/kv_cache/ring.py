"""A sliding-window cache: a ring of `window` slots, in which position i lives in slot i mod window.

Once the ring has wrapped, every write destroys the entry `window` places before it. A rejected draft has then destroyed
an entry that is visible again after the rollback. So the cache records what it overwrites, and rollback puts it back,
the newest first. `depth` says for how many positions: k is enough to reject any of k drafts (the round's first row, the
last committed token, always stays), k + 1 also lets a round be dropped whole.

Pitfalls: a trim that works before the wrap and silently does nothing after it; a ring sliced by length as if it were
flat; a mask as wide as the window while the keys are the window **and** the new rows; eviction that assumes one token
per step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike, NDArray

from specref.kv_cache.base import RowCache, Rows, at_least, causal_mask


class RingCache(RowCache):
    """The last `window` rows, in `slots` `[window, *entry_shape]`, able to roll back `depth` positions.

    A token sees `window` positions, its own among them. The tokens of one pass must see entries that later ones of the
    same pass overwrite, so a pass attends to `visible()` as it was before, followed by its own rows, under `mask`.

    Two siblings share a position and so a slot: a tree waits beside the ring, and only its accepted path enters.

    Source: rolling buffer cache, Mistral 7B (2310.06825, section 2).

    >>> cache = RingCache(window=3, depth=4, dtype=int)
    >>> cache.append([0, 10, 20, 30])
    >>> cache.slots                                                   # 30 took the place of 0
    array([30, 10, 20])
    >>> cache.append([40, 50])
    >>> cache.visible()
    array([30, 40, 50])
    >>> cache.rollback(4)                                             # 10 and 20 come back
    >>> cache.visible()
    array([10, 20, 30])
    """

    def __init__(self, window: int, depth: int, entry_shape: Sequence[int] = (), dtype: DTypeLike = np.float64) -> None:
        super().__init__(entry_shape, dtype)
        self.window = at_least(window, 1, "window")
        self.slots = np.zeros((window, *self.entry_shape), self.dtype)
        # What each of the last positions found in its slot, the newest on the right.
        self._overwritten: deque[Rows] = deque(maxlen=at_least(depth, 1, "depth"))
        self._tree_rows = np.empty((0, *self.entry_shape), self.dtype)

    @property
    def earliest(self) -> int:
        """The smallest length that `rollback` can restore.

        >>> cache = RingCache(window=3, depth=2)
        >>> cache.append([.1, .2, .3, .4, .5])
        >>> cache.earliest
        3
        """
        return self.length - len(self._overwritten)

    def mask(self, count: int) -> NDArray[np.bool_]:
        """What the next `count` tokens of a chain see of `visible()` and then their own rows: `[count, visible + count]`.

        >>> cache = RingCache(window=3, depth=4)
        >>> cache.append([.0, .1, .2, .3])
        >>> cache.mask(2).astype(int)                                 # keys stand at positions 1 2 3, then 4 5
        array([[0, 1, 1, 1, 0],
               [0, 0, 1, 1, 1]])
        """
        keys = np.arange(self._first_visible(), self.length + count)
        return causal_mask(keys[len(keys) - count :], keys, self.window)

    def visible(self) -> Rows:
        """Rows `[min(length, window), *entry_shape]` in order of position, a copy.

        >>> RingCache(window=3, depth=1).visible()
        array([], dtype=float64)
        """
        return self.slots[np.arange(self._first_visible(), self.length) % self.window]

    def _first_visible(self) -> int:
        return max(0, self.length - self.window)

    def _write(self, rows: Rows) -> None:
        for position, row in enumerate(rows, start=self.length):
            slot = position % self.window
            self._overwritten.append(self.slots[slot].copy())
            self.slots[slot] = row

    def _drop(self, length: int) -> None:
        for position in reversed(range(length, self.length)):
            self.slots[position % self.window] = self._overwritten.pop()

    def _hold(self, rows: Rows, parents: tuple[int, ...]) -> None:
        self._tree_rows = rows

    def _keep(self, nodes: tuple[int, ...]) -> None:
        self._write(self._tree_rows[list(nodes)])
