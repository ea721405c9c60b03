"""A recurrent state: the whole past in one array, which every token replaces.

There is nothing to crop. A state cannot be taken back either (the step is not invertible), so a snapshot is kept after
every position, and rollback selects one. The round's first row, the last committed token, always stays: `depth` k is
enough to reject any of k drafts and keeps k + 1 states; depth k + 1 also lets a round be dropped whole. The alternative
is one checkpoint and a second pass over what was accepted.

Pitfalls: rollback that does nothing ("trim" of a recurrent layer); the state after the whole window kept; a snapshot
read one place off; snapshots numbered from the round's start and not renumbered after a rejection, which only a second
rejection shows; a step without drafts that reads snapshot 0 although the step before accepted some.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from specref.kv_cache.base import RowCache, Rows, at_least


class RecurrentCache(RowCache):
    """The state after `length` tokens, and the `depth` states before it.

    `step(state, row) -> state` is the layer: it takes the state before a token and the token's row `[*entry_shape]`,
    and must return a new array, not change its argument. `initial` is the state before the first token.

    In a tree every node has the state that its own path leaves: its parent's, one step on.

    Source: state selection after verification as in vLLM's Mamba and GDN layers; Mamba (2312.00752) for the step.

    >>> def shift_in(state, row): return 10 * state + row             # the past, written as a number
    >>> cache = RecurrentCache(shift_in, initial=0, depth=4, dtype=int)
    >>> cache.append([1, 2, 3, 4])
    >>> cache.visible()
    array(1234)
    >>> cache.rollback(2)
    >>> cache.append([5, 6, 7], parents=[-1, 0, 0])                   # root 5 with the children 6 and 7
    >>> cache.gather([2])
    >>> cache.visible()
    array(1257)
    """

    def __init__(
        self,
        step: Callable[[Rows, Rows], Rows],
        initial: ArrayLike,
        depth: int,
        entry_shape: Sequence[int] = (),
        dtype: DTypeLike = np.float64,
    ) -> None:
        super().__init__(entry_shape, dtype)
        self._step = step
        # The states after earliest, ..., length - 1, length tokens.
        self._states: deque[Rows] = deque([np.array(initial)], maxlen=at_least(depth, 1, "depth") + 1)
        self._node_states: list[Rows] = []

    @property
    def earliest(self) -> int:
        """The smallest length that `rollback` can restore.

        >>> cache = RecurrentCache(np.add, initial=0., depth=2)
        >>> cache.append([1, 2, 3, 4, 5])
        >>> cache.earliest
        3
        >>> cache.rollback(1)
        Traceback (most recent call last):
        ...
        ValueError: cannot roll back to 1: only 2 positions can be undone; make the cache with depth >= 4 or prefill again
        """
        return self.length - (len(self._states) - 1)

    def visible(self) -> Rows:
        """The state after `length` tokens, a copy, in the shape of `initial`.

        >>> RecurrentCache(np.add, initial=[0., 0.], depth=1).visible()
        array([0., 0.])
        """
        return self._states[-1].copy()

    def _write(self, rows: Rows) -> None:
        chain = tuple(range(-1, len(rows) - 1))
        self._states.extend(self._states_along(rows, chain))

    def _drop(self, length: int) -> None:
        for _ in range(length, self.length):
            self._states.pop()

    def _hold(self, rows: Rows, parents: tuple[int, ...]) -> None:
        self._node_states = self._states_along(rows, parents)

    def _keep(self, nodes: tuple[int, ...]) -> None:
        self._states.extend(self._node_states[node] for node in nodes)

    def _states_along(self, rows: Rows, parents: tuple[int, ...]) -> list[Rows]:
        """The state after every row, each one step on from its parent's; the first from the current state."""
        states: list[Rows] = []
        for row, parent in zip(rows, parents):
            before = self._states[-1] if parent < 0 else states[parent]
            states.append(np.asarray(self._step(before, row)))
        return states
