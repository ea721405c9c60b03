"""KV caches that can forget: what each kind must do when drafts are rejected.

`base` states the contract; every other module is one kind of cache. `draft` is about the draft model's own.
"""

from __future__ import annotations

from specref.kv_cache.base import CacheFull, KVCache, RowCache
from specref.kv_cache.contiguous import ContiguousCache
from specref.kv_cache.draft import settle, unread
from specref.kv_cache.paged import PagedCache
from specref.kv_cache.pages import PagePool
from specref.kv_cache.recurrent import RecurrentCache
from specref.kv_cache.ring import RingCache
from specref.kv_cache.static import StaticCache

__all__ = [
    "CacheFull",
    "ContiguousCache",
    "KVCache",
    "PagePool",
    "PagedCache",
    "RecurrentCache",
    "RingCache",
    "RowCache",
    "StaticCache",
    "settle",
    "unread",
]
