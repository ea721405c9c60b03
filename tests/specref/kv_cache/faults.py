"""Caches that are wrong in the ways of real engines. Each changes one thing of a correct cache, and nothing crashes.

`FAULTS` names each with the state machine that meets it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine

from conformance.controls.faults.pages import EvictedStillFound as EvictedPagesStillFound
from conformance.controls.faults.pages import PublishedOverwritten as PublishedPagesOverwritten
from conformance.controls.faults.pages import SharedOverwritten as SharedPagesOverwritten
from conformance.controls.faults.storage import FreedBeforeMoved, UnderAllocated
from conformance.controls.faults.storage import NothingAfterTheWrap as RingIgnoresAfterWrap
from conformance.controls.faults.storage import NotRestored as RingNotRestored
from conformance.controls.faults.storage import RestoredOldestFirst as RingRestoredOldestFirst
from conformance.controls.faults.storage import SlicedFlat as RingSlicedFlat
from specref.kv_cache import (
    ContiguousCache,
    KVCache,
    PagedCache,
    PagePool,
    RecurrentCache,
    RingCache,
    RowCache,
    StaticCache,
)
from specref.kv_cache.base import Rows

from .kinds import Kind, contiguous, paged, recurrent, ring, static
from .machines import DraftModel, OneSequence, SharedPages
from .storage_faults import (
    ChainOrder,
    ContiguousSlots,
    FrozenPositions,
    MaskByLength,
    NotGathered,
    OneTooFew,
    OneTooMany,
    OverlapInContiguous,
    OverlapInPages,
    OverlapInStatic,
    PagesNeverFreed,
    ResetInstead,
    RollbackIgnored,
    RootForgotten,
    SnapshotNotRenumbered,
    SnapshotOffByOne,
    TwoTooFew,
)

Machine = type[RuleBasedStateMachine]


# Faults of the prefix cache and of shared pages.


class RowsOfDraftsHashed(PagedCache):
    """A page is published as soon as it is full, drafts and all, and its slots are overwritten after the rejection.

    The tokens that the engine knows are here the first number of each row.
    """

    def append(self, rows: Rows, parents: Sequence[int] | None = None) -> None:
        super().append(rows, parents)
        if parents is None:
            self.publish([int(row[0]) for row in self.visible()])


class PublishedBeforeTheRollback(SharedPages):
    """The engine publishes the emitted tokens while the slot behind the last accepted one holds the rejected draft."""

    def publish_amid_drafts(self, cache: PagedCache, tokens: list[int], drafts: list[int], kept: int) -> None:
        if kept < len(drafts):
            self.publish(cache, [*tokens, *drafts[:kept], drafts[kept] + 1])


# Faults around the draft's own cache.


def settled_one_too_many(cache: KVCache, committed: Sequence[int]) -> None:
    """Rejected drafts are counted as if the draft had read them all."""
    wanted = min(cache.length, len(committed) - 1)
    cache.rollback(wanted - 1 if 0 < wanted < cache.length else wanted)


def settled_for_the_bonus(cache: KVCache, committed: Sequence[int]) -> None:
    """The rejected entry at the place of the emitted token is kept."""
    cache.rollback(min(cache.length, len(committed)))


def only_the_last(cache: KVCache, committed: Sequence[int]) -> tuple[int, ...]:
    """After full acceptance x_k is missing: the bonus token is read at its place."""
    return tuple(committed[-1:])


# Each fault with the machine that meets it.

MAKERS: dict[type[RowCache], Callable[[Any], Kind]] = {
    ContiguousCache: contiguous,
    StaticCache: static,
    PagedCache: partial(paged, 2),
    RingCache: partial(ring, 3),
    RecurrentCache: recurrent,
}


def one(kind: Kind) -> Machine:
    return type("Machine", (OneSequence,), {"kind": kind})


def each(fault: type[RowCache], *caches: type[RowCache]) -> dict[str, Machine]:
    """The fault in every one of these caches, or in all."""
    return {
        f"{fault.__name__} in {cache.__name__}": one(MAKERS[cache](type(fault.__name__, (fault, cache), {})))
        for cache in caches or MAKERS
    }


def shared(cache: type[PagedCache] = PagedCache, pool: type[PagePool] = PagePool, of: Machine = SharedPages) -> Machine:
    return type("Machine", (of,), {"page_size": 2, "cache_class": cache, "pool_class": pool})


def drafting(**wrong: Callable[..., Any]) -> Machine:
    return type("Machine", (DraftModel,), {"kind": contiguous()} | {name: staticmethod(f) for name, f in wrong.items()})


FAULTS: dict[str, Machine] = {
    **each(OneTooMany),
    **each(OneTooFew),
    **each(TwoTooFew),
    **each(ResetInstead, ContiguousCache, StaticCache, PagedCache),
    **each(RollbackIgnored, ContiguousCache, RingCache, RecurrentCache),
    **each(NotGathered),
    **each(RootForgotten),
    "ChainOrder in RecurrentCache": one(recurrent(type("ChainOrder", (ChainOrder, RecurrentCache), {}))),
    "OverlapInContiguous": one(contiguous(OverlapInContiguous)),
    "OverlapInStatic": one(static(OverlapInStatic)),
    "OverlapInPages": one(paged(2, OverlapInPages)),
    "MaskByLength": one(static(MaskByLength)),
    "FrozenPositions": one(static(FrozenPositions)),
    "RingNotRestored": one(ring(3, RingNotRestored)),
    "RingIgnoresAfterWrap": one(ring(3, RingIgnoresAfterWrap)),
    "RingRestoredOldestFirst": one(ring(3, RingRestoredOldestFirst)),
    "RingSlicedFlat": one(ring(3, RingSlicedFlat)),
    "SnapshotOffByOne": one(recurrent(SnapshotOffByOne)),
    "SnapshotNotRenumbered": one(recurrent(SnapshotNotRenumbered)),
    "FreedBeforeMoved": one(paged(2, FreedBeforeMoved)),
    "ContiguousSlots": one(paged(2, ContiguousSlots)),
    "UnderAllocated": one(paged(2, UnderAllocated)),
    "PagesNeverFreed": shared(PagesNeverFreed),
    "RowsOfDraftsHashed": shared(RowsOfDraftsHashed, PublishedPagesOverwritten),
    "PublishedPagesOverwritten": shared(pool=PublishedPagesOverwritten),
    "EvictedPagesStillFound": shared(pool=EvictedPagesStillFound),
    "SharedPagesOverwritten": shared(pool=SharedPagesOverwritten),
    "PublishedBeforeTheRollback": shared(of=PublishedBeforeTheRollback),
    "draft settled one too many": drafting(settle=settled_one_too_many),
    "draft settled for the bonus": drafting(settle=settled_for_the_bonus),
    "draft cache missing its last token": drafting(unread=only_the_last),
}
