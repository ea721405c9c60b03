"""Bad calls raise, name the offending value and the remedy, and change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from specref.kv_cache import (
    CacheFull,
    ContiguousCache,
    PagedCache,
    PagePool,
    RecurrentCache,
    RingCache,
    StaticCache,
    settle,
    unread,
)
from specref.tree import BadTree

from .kinds import DEPTH, KINDS, Kind, entries, recurrent, ring, tree_entries

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)

# Node 0 is the root, 1 and 2 its children, 3 below 1.
PARENTS = (-1, 0, 0, 1)


@every_kind
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda cache: cache.rollback(-1), "cannot roll back to -1: give the length to keep"),
        (lambda cache: cache.rollback(4), "cannot roll back forward, from 3 to 4; append"),
        (lambda cache: cache.gather([1]), r"no tree waits for path \(1,\); append\(rows, parents\) first"),
        (lambda cache: cache.append(np.zeros((2, 5))), r"rows have shape \(2, 5\); this cache stores \[n, 2\]"),
        (lambda cache: cache.append(np.zeros((2, 2))), "rows are float64, the cache holds int64; make the cache with"),
        (lambda cache: cache.append(entries([7])[0]), r"rows have shape \(2,\)"),
        (lambda cache: cache.append(entries([7, 8]), [-1]), "got 2 tokens and 1 parents"),
        (lambda cache: cache.append(entries([7, 8]), [-1, 1]), "parent of node 1 is 1"),
        (lambda cache: cache.append(entries([7, 8]), [0, 0]), r"parents\[0\] must be -1"),
        (lambda cache: cache.append(entries([]), []), r"parents\[0\] must be -1"),
    ],
)
def test_bad_call_on_a_sequence(kind: Kind, call: Callable[[Any], None], message: str) -> None:
    cache = kind.make()
    cache.append(entries([1, 2, 3]))
    with pytest.raises(ValueError, match=message):
        call(cache)
    kind.compare(cache, [1, 2, 3], "after a bad call")


@every_kind
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ((2, 3), r"path \(2, 3\) is not in the tree: node 3 is reached by \(1, 3\); give one branch"),
        ((3,), r"path \(3,\) is not in the tree: node 3 is reached by \(1, 3\)"),
        ((3, 1), r"path \(3, 1\) is not in the tree: node 1 is reached by \(1,\)"),
        ((1, 1), r"path \(1, 1\) is not in the tree"),
        ((0, 1), r"path \(0, 1\): node 0 is outside 1..3; leave out the root"),
        ((1, 4), r"path \(1, 4\): node 4 is outside 1..3"),
        ((1, 3, -1), r"path \(1, 3, -1\): node -1 is outside 1..3; .* any padding"),
    ],
)
def test_path_that_is_not_in_the_tree(kind: Kind, path: tuple[int, ...], message: str) -> None:
    cache = kind.make()
    cache.append(entries([1, 2, 3]))
    cache.append(tree_entries([1, 2, 3], [4, 5, 6, 7], PARENTS), PARENTS)
    with pytest.raises(ValueError, match=message):
        cache.gather(path)
    cache.gather([1, 3])  # the tree still waits
    kind.compare(cache, [1, 2, 3, 4, 5, 7], "after a bad path and a good one")


@every_kind
def test_calls_while_a_tree_waits(kind: Kind) -> None:
    cache = kind.make()
    cache.append(entries([1, 2, 3]))
    cache.append(tree_entries([1, 2, 3], [4, 5, 6, 7], PARENTS), PARENTS)
    with pytest.raises(ValueError, match=r"a tree of 4 nodes waits at length 3; gather\(path\) or rollback first"):
        cache.append(entries([1, 2, 3, 4])[3:])
    with pytest.raises(ValueError, match="forward, from 3 to 4"):
        cache.rollback(4)
    if isinstance(cache, PagedCache):
        with pytest.raises(ValueError, match="a tree of 4 nodes waits; gather"):
            cache.fork()
    cache.rollback(2)
    kind.compare(cache, [1, 2], "after the tree was dropped")
    with pytest.raises(ValueError, match="no tree waits"):
        cache.gather([1])


def test_a_tree_must_be_numbered_parents_first() -> None:
    with pytest.raises(BadTree, match="parent of node 1 is 2"):
        ContiguousCache().append([1.0, 2.0, 3.0], [-1, 2, 0])


@pytest.mark.parametrize("kind", [ring(2), ring(3), ring(8), recurrent()], ids=lambda kind: kind.name)
def test_rollback_further_than_a_cache_can_undo(kind: Kind) -> None:
    cache = kind.make()
    cache.append(entries(range(9)))
    with pytest.raises(ValueError, match=r"cannot roll back to 3: only 5 positions can be undone; .* depth >= 6 or"):
        cache.rollback(9 - DEPTH - 1)
    kind.compare(cache, range(9), "after a bad rollback")
    cache.rollback(9 - DEPTH)
    kind.compare(cache, range(9 - DEPTH), "after the longest rollback")
    with pytest.raises(ValueError, match="cannot roll back to 3: only 0 positions can be undone"):
        cache.rollback(3)


def test_append_past_the_capacity_of_a_static_cache() -> None:
    cache = StaticCache(capacity=5, dtype=int)
    cache.append([1, 2, 3])
    with pytest.raises(CacheFull, match="3 rows after 3 need 6 slots of 5; draft fewer tokens or make a larger cache"):
        cache.append([4, 5, 6])
    with pytest.raises(CacheFull, match="need 6 slots of 5"):
        cache.append([4, 5, 6], [-1, 0, 0])  # a tree needs room for all its nodes
    assert cache.visible().tolist() == [1, 2, 3]
    cache.append([4, 5])
    assert cache.visible().tolist() == [1, 2, 3, 4, 5]


def test_append_past_the_pages_of_the_pool() -> None:
    pool = PagePool(pages=3, page_size=2, dtype=int)
    cache = PagedCache(pool)
    cache.append([1, 2, 3])
    twin = cache.fork()
    with pytest.raises(CacheFull, match=r"2 rows after 3 need 2 more pages, 1 are free; .* roll back another sequence"):
        cache.append([4, 5])  # one new page, and a copy of the page that the twin shares
    assert (cache.visible().tolist(), pool.free) == ([1, 2, 3], 1)
    twin.rollback(0)
    cache.append([4, 5])
    assert (cache.visible().tolist(), pool.free) == ([1, 2, 3, 4, 5], 0)
    with pytest.raises(CacheFull, match="2 rows after 5 need 1 more pages, 0 are free"):
        cache.append([6, 7])


def test_pages_are_not_published_before_they_are_read() -> None:
    cache = PagedCache(PagePool(pages=3, page_size=2, dtype=int))
    cache.append([1])
    with pytest.raises(ValueError, match="2 committed tokens for 1 entries; leave out what the model has not read"):
        cache.publish([1, 2])
    assert cache.pool.published() == {}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StaticCache(capacity=0), "capacity is 0; it must be at least 1"),
        (lambda: RingCache(window=0, depth=1), "window is 0"),
        (lambda: RingCache(window=1, depth=-2), "depth is -2"),
        (lambda: RecurrentCache(np.add, 0.0, depth=0), "depth is 0"),
        (lambda: PagePool(pages=0, page_size=1), "pages is 0"),
        (lambda: PagePool(pages=1, page_size=0), "page_size is 0"),
        (lambda: PagePool(pages=1, page_size=1).release(0), "page 0 has no user; it was released once too often"),
        (lambda: settle(ContiguousCache(), []), r"committed tokens are \[\]"),
    ],
)
def test_bad_settings(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_draft_that_was_not_settled() -> None:
    cache = ContiguousCache(dtype=int)
    cache.append([1, 2, 3])
    with pytest.raises(ValueError, match=r"holds 3 entries, 3 tokens are committed .* call settle"):
        unread(cache, [1, 2, 3])


def test_the_caller_keeps_their_arrays() -> None:
    """Neither what was appended nor what was shown is a window into the cache."""
    for kind in [*KINDS, ring(3)]:
        cache, rows = kind.make(), entries([1, 2, 3])
        cache.append(rows)
        rows[:] = 0
        cache.visible()[...] = 0
        kind.compare(cache, [1, 2, 3], "after its caller changed their arrays")
