"""Faults of the draft's own cache, and of pages that others may find."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.controls.control import Audit, Control
from conformance.controls.stages.caches import draft_cache, pages
from conformance.engines.own_components import TokenCache
from specref.kv_cache import (
    KVCache,
    PagedCache,
    PagePool,
    settle,
)

KIND = "state"


def rejected_kept(rows: KVCache, committed: Sequence[int]) -> None:
    """The rejected entry at the place of the emitted token stays."""
    rows.rollback(min(rows.length, len(committed)))


def kept_unread(rows: KVCache, committed: Sequence[int]) -> Sequence[int]:
    """What is believed to be unread, where the cache holds too much."""
    return tuple(committed[rows.length :]) or committed[-1:]


def one_more_each_round(rows: KVCache, committed: Sequence[int]) -> None:
    """One entry more is dropped after every rejection, and nobody reads it again."""
    settle(rows, committed)
    rows.rollback(max(0, rows.length - 1))


class LastDraftSkipped(TokenCache):
    """After full acceptance the last draft was never read, and is left out; the rest moves up one place."""

    def append(self, tokens: Sequence[int], parents: Sequence[int] | None = None) -> None:
        """See `KVCache.append`."""
        if len(tokens) == 2:
            self.read.append(tokens[0])
            tokens = tokens[1:]
        super().append(tokens, parents)


class GuessesKept(TokenCache):
    """Entries made from the net's own guesses (marked here) are not replaced by ones from the target's features."""

    def append(self, tokens: Sequence[int], parents: Sequence[int] | None = None) -> None:
        """See `KVCache.append`."""
        if len(tokens) == 1:
            self.rows.append([self._entry((*self.read, *tokens)) + 1e-3])
            self.read += tokens
        else:
            super().append(tokens, parents)


def draft_fault(id: str, audit: Audit, *reports: str) -> Control:
    """A fault of the draft's own cache."""
    return Control(id, KIND, "the draft's cache", ("KV-2",), audit, reports)


DRAFTS = (
    draft_fault(
        "rejected drafts kept in the draft's cache", draft_cache(rejected_kept, kept_unread), "ggml-org/llama.cpp 26478"
    ),
    draft_fault(
        "the draft's context shrinks each round",
        draft_cache(one_more_each_round, lambda rows, committed: committed[-1:]),
        "lablup/mlxcel 994",
    ),
    draft_fault(
        "draft cache missing the last token after full acceptance", draft_cache(wrap=LastDraftSkipped), "vllm-project/vllm 9730"
    ),
    draft_fault(
        "draft cache never refreshed with true features",
        draft_cache(wrap=GuessesKept),
        "vllm-project/vllm 14649",
        "vllm-project/vllm 55055",
    ),
)

# Pages that others may find.


def publish_all(cache: PagedCache, committed: Sequence[int], rejected: Sequence[int]) -> None:
    """Pages are hashed as soon as they are full, with the drafts that are still in them."""
    cache.publish([*committed, *rejected])


def publish_early(cache: PagedCache, committed: Sequence[int], rejected: Sequence[int]) -> None:
    """The emitted tokens are published while the slot behind the last accepted one holds a rejected draft."""
    if rejected:
        cache.publish([*committed, (rejected[0] + 1) % 9])


class PublishedOverwritten(PagePool):
    """A page that is published, but used by one sequence alone, is written in place."""

    def must_copy(self, page: int) -> bool:
        """See `PagePool.must_copy`."""
        return self.users[page] > 1


class SharedOverwritten(PagePool):
    """A page that two sequences use is written in place."""

    def must_copy(self, page: int) -> bool:
        """See `PagePool.must_copy`."""
        return page in self._name_of


class EvictedStillFound(PagePool):
    """A page is handed to a new user, and still found by those who ask for what it held."""

    def take(self) -> int:
        """See `PagePool.take`."""
        names = dict(self._page_named)
        page = super().take()
        self._page_named.update(names)
        return page


def dummy_step(pool: PagePool) -> None:
    """An idle step writes through a block table that is no longer its own."""
    for page in list(pool._page_named.values())[:1]:
        pool.storage[page, 0] = 0.0


def page_fault(id: str, replaces: str, audit: Audit, requirement: str, *reports: str) -> Control:
    """A fault of shared pages."""
    return Control(id, KIND, replaces, (requirement,), audit, reports)


PAGES = (
    page_fault(
        "a page hashed while it holds rejected tokens",
        "publish",
        pages(amid_drafts=publish_all),
        "KV-3",
        "vllm-project/vllm 18668",
    ),
    page_fault(
        "published before the rejected draft is gone",
        "publish",
        pages(amid_drafts=publish_early),
        "KV-3",
        "vllm-project/vllm 12415",
    ),
    page_fault(
        "published pages overwritten",
        "PagePool",
        pages(pool_type=PublishedOverwritten, amid_drafts=publish_all),
        "KV-3",
        "vllm-project/vllm 12415",
    ),
    page_fault("pages in use by two overwritten", "PagePool", pages(pool_type=SharedOverwritten), "KV-1"),
    page_fault("evicted pages still found", "PagePool", pages(pool_type=EvictedStillFound), "KV-3", "sgl-project/sglang 8726"),
    page_fault(
        "dummy rows written to published slots", "PagePool", pages(after_round=dummy_step), "KV-3", "vllm-project/vllm 56734"
    ),
)

FAULTS = (*DRAFTS, *PAGES)
