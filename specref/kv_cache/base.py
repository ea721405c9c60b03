"""What every cache of this package does, whatever it stores and wherever it stores it.

A model that reads a token leaves an **entry** behind: its key and value in every layer, or a new recurrent state.
Speculation reads tokens that may be taken back, so a cache must be able to forget. One round on the target's cache:

    chain   cache.append(rows)               the last committed token and its k drafts: k + 1 rows
            cache.rollback(start + 1 + a)    a of the k drafts were accepted
    tree    cache.append(rows, parents)      node 0 is the root, the last committed token: N rows
            cache.gather(path)               the root and the accepted path stay, every other node goes

The token emitted at the end of a round was read by nobody yet: it is the first row of the next round. So after a round
`length` is the number of committed tokens less one, and `visible()` must equal, entry for entry, what a fresh prefill
of the committed tokens but the last leaves behind. That is the whole contract.

A tree is not a sequence. Until `gather` names the accepted path, `length` and `visible()` speak of what was there
before the tree; `rollback` drops the tree.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from specref.tree import TokenTree

Rows = NDArray[Any]


class CacheFull(RuntimeError):
    """There is no room for the rows of an `append`; nothing was written."""


class KVCache(Protocol):
    """The protocol. A cache in front of a real model takes token ids `[n]` where the caches here take rows."""

    @property
    def length(self) -> int:
        """Entries in the sequence, a waiting tree not counted."""

    def append(self, rows: Any, parents: Sequence[int] | None = None, /) -> object:
        """Add rows `[n, ...]` to the sequence, or with `parents` `[n]` as a tree that waits for `gather`."""

    def rollback(self, length: int, /) -> object:
        """Forget every entry from position `length` on, and any waiting tree."""

    def gather(self, path: Sequence[int], /) -> object:
        """Keep the waiting tree's root and the nodes of `path`, in this order; forget its other nodes."""

    def visible(self) -> Rows:
        """What the next token can see of the past, in order of position."""


class RowCache(ABC):
    """The common part of the caches here: it checks every call and keeps the count; subclasses store.

    A subclass stores rows of shape `entry_shape` as `dtype`. Its methods are called with checked arguments, **before**
    `length` changes, so in each of them `self.length` is the length that the caller found. A call that raises has
    changed nothing.
    """

    def __init__(self, entry_shape: Sequence[int], dtype: DTypeLike) -> None:
        self.entry_shape = tuple(entry_shape)
        self.dtype = np.dtype(dtype)
        self._length = 0
        self._tree: TokenTree | None = None

    @property
    def length(self) -> int:
        """Entries in the sequence, a waiting tree not counted."""
        return self._length

    def append(self, rows: ArrayLike, parents: Sequence[int] | None = None) -> None:
        """Add rows `[n, *entry_shape]`: to the sequence, or with `parents` `[n]` as a tree that waits for `gather`.

        Raises ValueError for rows of another shape or kind, parents that are no `TokenTree`, or while a tree waits;
        CacheFull when the rows do not fit.

        >>> from specref.kv_cache.contiguous import ContiguousCache
        >>> cache = ContiguousCache(dtype=int)
        >>> cache.append([10, 20])
        >>> cache.append([30, 40, 50], parents=[-1, 0, 0])
        >>> cache.length, cache.visible()
        (2, array([10, 20]))
        """
        if self._tree is not None:
            raise ValueError(f"a tree of {len(self._tree)} nodes waits at length {self.length}; gather(path) or rollback first")
        checked = _checked_rows(rows, self.entry_shape, self.dtype)
        tree = None if parents is None else TokenTree(tokens=range(len(checked)), parents=parents)
        self._check_room(len(checked))
        if tree is None:
            self._write(checked)
            self._length += len(checked)
        else:
            self._hold(checked, tree.parents)
            self._tree = tree

    def rollback(self, length: int) -> None:
        """Forget every entry from position `length` on, and any waiting tree.

        Raises ValueError for a length that was never reached, is negative, or lies further back than this cache can
        restore (`earliest`).

        >>> from specref.kv_cache.contiguous import ContiguousCache
        >>> cache = ContiguousCache(dtype=int)
        >>> cache.append([10, 20, 30])
        >>> cache.rollback(2)
        >>> cache.visible()
        array([10, 20])
        >>> cache.rollback(3)
        Traceback (most recent call last):
        ...
        ValueError: cannot roll back forward, from 2 to 3; append the rows instead
        """
        length = operator.index(length)
        if length > self.length:
            raise ValueError(f"cannot roll back forward, from {self.length} to {length}; append the rows instead")
        if length < 0:
            raise ValueError(f"cannot roll back to {length}: give the length to keep, not the number to drop")
        if length < self.earliest:
            raise ValueError(
                f"cannot roll back to {length}: only {self.length - self.earliest} positions can be undone; "
                f"make the cache with depth >= {self.length - length} or prefill again"
            )
        self._drop(length)
        self._length, self._tree = length, None

    def gather(self, path: Sequence[int]) -> None:
        """Keep the waiting tree's root and the nodes of `path`, in this order; forget its other nodes.

        `path` holds node numbers from the root's child down, as rows of the append that brought the tree; the empty
        path keeps the root alone. Raises ValueError without a waiting tree, or for a path that is not in it.

        >>> from specref.kv_cache.contiguous import ContiguousCache
        >>> cache = ContiguousCache(dtype=int)
        >>> cache.append([30, 40, 50, 60], parents=[-1, 0, 0, 2])
        >>> cache.gather([2, 3])
        >>> cache.visible()
        array([30, 50, 60])
        """
        if self._tree is None:
            raise ValueError(f"no tree waits for path {tuple(path)}; append(rows, parents) first")
        nodes = (0, *checked_path(path, self._tree))
        self._keep(nodes)
        self._length, self._tree = self._length + len(nodes), None

    @property
    def earliest(self) -> int:
        """The smallest length that `rollback` can restore: 0, except where a cache overwrites what it holds."""
        return 0

    @abstractmethod
    def visible(self) -> Rows:
        """What the next token can see of the past, in order of position; a copy."""

    @abstractmethod
    def _write(self, rows: Rows) -> None:
        """Store rows at positions length, length + 1, ..."""

    def _hold(self, rows: Rows, parents: tuple[int, ...]) -> None:
        """Store a tree: unless positions forbid it, row n simply waits in slot length + n."""
        self._write(rows)

    @abstractmethod
    def _keep(self, nodes: tuple[int, ...]) -> None:
        """Make the held nodes, the root first, the entries at positions length, length + 1, ..."""

    @abstractmethod
    def _drop(self, length: int) -> None:
        """Undo every position from `length` on, and forget a held tree."""

    def _check_room(self, count: int) -> None:  # noqa: B027 - a cache that grows always has room
        """Raise CacheFull unless `count` more rows fit."""


def checked_path(path: Sequence[int], tree: TokenTree) -> tuple[int, ...]:
    """`path` as a tuple, if it leads from a child of the root downward, each node the parent of the next.

    Raises ValueError for a node outside the tree and for a path that is not a branch of it.

    >>> tree = TokenTree(tokens=[7, 1, 2, 3], parents=[-1, 0, 0, 1])
    >>> checked_path([1, 3], tree)
    (1, 3)
    >>> checked_path([2, 3], tree)
    Traceback (most recent call last):
    ...
    ValueError: path (2, 3) is not in the tree: node 3 is reached by (1, 3); give one branch from the root's child down
    """
    nodes = tuple(operator.index(node) for node in path)
    for node in nodes:
        if not 1 <= node < len(tree):
            raise ValueError(
                f"path {nodes}: node {node} is outside 1..{len(tree) - 1}; leave out the root, which always stays, "
                "and any padding"
            )
    if nodes and nodes != tree.path(nodes[-1]):
        raise ValueError(
            f"path {nodes} is not in the tree: node {nodes[-1]} is reached by {tree.path(nodes[-1])}; "
            "give one branch from the root's child down"
        )
    return nodes


def causal_mask(queries: ArrayLike, keys: ArrayLike, window: int | None = None) -> NDArray[np.bool_]:
    """Who sees whom, by **position**: `[queries, keys]`, True where the key is not after the query.

    With a `window` a query sees that many positions, its own among them. Masking by position rather than by how much
    was ever written is what hides stale rows after a rollback.

    >>> causal_mask([2, 3], [0, 1, 2, 3], window=2).astype(int)
    array([[0, 1, 1, 0],
           [0, 0, 1, 1]])
    """
    distance = np.asarray(queries)[:, None] - np.asarray(keys)[None, :]
    if window is None:
        window = np.iinfo(np.int64).max
    seen: NDArray[np.bool_] = (distance >= 0) & (distance < window)
    return seen


def at_least(value: int, smallest: int, name: str) -> int:
    """`value` as an int, if it is at least `smallest`; `name` is what the error calls it.

    >>> at_least(0, 1, "page_size")
    Traceback (most recent call last):
    ...
    ValueError: page_size is 0; it must be at least 1
    """
    value = operator.index(value)
    if value < smallest:
        raise ValueError(f"{name} is {value}; it must be at least {smallest}")
    return value


def _checked_rows(rows: ArrayLike, entry_shape: tuple[int, ...], dtype: np.dtype[Any]) -> Rows:
    array = np.asarray(rows)
    if array.size == 0 and array.ndim <= 1:
        array = np.empty((0, *entry_shape), dtype)
    if array.ndim != 1 + len(entry_shape) or array.shape[1:] != entry_shape:
        wanted = ", ".join(["n", *map(str, entry_shape)])
        raise ValueError(f"rows have shape {array.shape}; this cache stores [{wanted}], one row per token")
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise ValueError(f"rows are {array.dtype}, the cache holds {dtype}; make the cache with dtype={array.dtype}")
    return array.astype(dtype)
