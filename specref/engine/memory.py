"""Who holds which pages: prefix reuse when a request begins, publishing as it goes, release when it ends or is pre-empted.

Two counts must agree: what the engine believes to be in the cache (`request.read`) and what is there (`request.cache.length`).
"""

from __future__ import annotations

from specref.engine.request import Request
from specref.kv_cache import PagedCache, PagePool


class Memory:
    """Pages of one pool for all requests. `pool` must hold entries of the engine's model.

    >>> memory = Memory(PagePool(pages=3, page_size=4))
    >>> memory.check_fits(8)
    >>> memory.check_fits(9)
    Traceback (most recent call last):
    ValueError: up to 9 entries need 4 pages, the pool has 3; ask for fewer tokens or make a larger pool
    """

    def __init__(self, pool: PagePool) -> None:
        self.pool = pool

    def open(self, request: Request) -> None:
        """Give the request a cache that begins with whatever published pages its tokens have; the last token is left to read.

        After a pre-emption the tokens are prompt **and** output.
        """
        request.cache = PagedCache.reuse(self.pool, request.committed[:-1])
        request.read = request.cache.length

    def publish(self, request: Request) -> None:
        """Let others find the request's full pages. Call it when the cache holds committed tokens only."""
        request.entries.publish(request.committed[: request.read])

    def close(self, request: Request) -> None:
        """Take the request's pages back, and its proposer's memory. Published pages stay findable until they are needed."""
        if request.cache is not None:
            request.cache.rollback(0)
        request.cache, request.read = None, 0
        request.proposer.forget()

    def check_fits(self, tokens: int) -> None:
        """Raise ValueError unless one request alone may come to hold this many entries, one of its pages copied."""
        wanted = -(-tokens // self.pool.page_size) + 1
        if wanted > len(self.pool.users):
            raise ValueError(
                f"up to {tokens} entries need {wanted} pages, the pool has {len(self.pool.users)}; "
                "ask for fewer tokens or make a larger pool"
            )
