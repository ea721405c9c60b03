"""A pool of pages that many sequences share, and the prefix cache over it.

A page is `page_size` slots. It is **used** by the sequences that have it in their block table, and **published** when
it is full of committed entries and findable by what it holds. An entry depends on every token up to its own, so a page
is named by a digest of its tokens *and* of the page before it: equal names mean equal prefixes, not just equal pages.

Three rules keep the prefix cache true:
* only committed tokens are ever hashed: a page holding a draft that is later rejected would serve it to others;
* a page that somebody else uses, or that is published, is never written again: whoever must write copies it first;
* a published page that nobody uses stays findable until its space is needed, the one longest unused going first.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import numpy as np
from numpy.typing import DTypeLike

from specref.kv_cache.base import CacheFull, Rows, at_least


def page_names(tokens: Sequence[int], page_size: int) -> list[bytes]:
    """One name per **full** page of the sequence; each covers all tokens up to the end of its page.

    >>> first, second = page_names([1, 2, 3, 4, 5], page_size=2)
    >>> page_names([1, 2, 9, 9], page_size=2)[0] == first             # the same prefix
    True
    >>> page_names([9, 9, 3, 4], page_size=2)[1] == second            # the same page after another prefix
    False
    """
    names, name = [], b""
    for end in range(page_size, len(tokens) + 1, page_size):
        page = np.asarray(tokens[end - page_size : end], dtype=np.int64)
        name = sha256(name + page.tobytes()).digest()
        names.append(name)
    return names


class PagePool:
    """`storage` `[pages, page_size, *entry_shape]`, and who uses what.

    Source: PagedAttention (2309.06180, sections 4.2 to 4.4) for block tables, sharing and copy-on-write; vLLM for the
    prefix cache over full blocks.

    >>> pool = PagePool(pages=2, page_size=4)
    >>> page = pool.take()
    >>> pool.free, pool.users[page]
    (1, 1)
    >>> pool.release(page)
    >>> pool.free
    2
    """

    def __init__(self, pages: int, page_size: int, entry_shape: Sequence[int] = (), dtype: DTypeLike = np.float64) -> None:
        self.page_size = at_least(page_size, 1, "page_size")
        self.storage = np.zeros((at_least(pages, 1, "pages"), page_size, *entry_shape), dtype)
        self.users = [0] * pages
        self._free: dict[int, None] = dict.fromkeys(range(pages))  # kept in order: the page longest unused is first
        self._page_named: dict[bytes, int] = {}
        self._name_of: dict[int, bytes] = {}

    @property
    def free(self) -> int:
        """How many pages nobody uses, published ones included.

        >>> PagePool(pages=3, page_size=4).free
        3
        """
        return len(self._free)

    def take(self) -> int:
        """A page for one user to write. It may still hold old rows; if it was published, it no longer is.

        >>> pool = PagePool(pages=1, page_size=4)
        >>> pool.take()
        0
        >>> pool.take()
        Traceback (most recent call last):
        ...
        specref.kv_cache.base.CacheFull: none of the 1 pages is free; roll back a sequence to 0 or make a larger pool
        """
        if not self._free:
            raise CacheFull(f"none of the {len(self.users)} pages is free; roll back a sequence to 0 or make a larger pool")
        page = next(iter(self._free))
        if page in self._name_of:
            del self._page_named[self._name_of.pop(page)]
        self.share(page)
        return page

    def share(self, page: int) -> None:
        """One more user of the page.

        >>> pool = PagePool(pages=1, page_size=4)
        >>> pool.share(pool.take())
        >>> pool.users
        [2]
        """
        self._free.pop(page, None)
        self.users[page] += 1

    def release(self, page: int) -> None:
        """One user less; the page is free when the last has gone, and still findable if it was published.

        >>> PagePool(pages=1, page_size=4).release(0)
        Traceback (most recent call last):
        ...
        ValueError: page 0 has no user; it was released once too often
        """
        if self.users[page] < 1:
            raise ValueError(f"page {page} has no user; it was released once too often")
        self.users[page] -= 1
        if self.users[page] == 0:
            self._free[page] = None

    def must_copy(self, page: int) -> bool:
        """Whether a user who wants to write into this page must copy it first: it is shared or published.

        >>> pool = PagePool(pages=1, page_size=4)
        >>> page = pool.take()
        >>> pool.must_copy(page)
        False
        >>> pool.publish(page, b"name")
        >>> pool.must_copy(page)
        True
        """
        return self.users[page] > 1 or page in self._name_of

    def publish(self, page: int, name: bytes) -> None:
        """Make a full page of committed entries findable, unless a page of that name is there already.

        >>> pool = PagePool(pages=2, page_size=4)
        >>> first, second = pool.take(), pool.take()
        >>> pool.publish(first, b"name")
        >>> pool.publish(second, b"name")
        >>> pool.find(b"name") == first, pool.must_copy(second)
        (True, False)
        """
        if name not in self._page_named and page not in self._name_of:
            self._page_named[name] = page
            self._name_of[page] = name

    def find(self, name: bytes) -> int | None:
        """The published page of that name, if there is one.

        >>> PagePool(pages=1, page_size=4).find(b"name") is None
        True
        """
        return self._page_named.get(name)

    def published(self) -> dict[bytes, Rows]:
        """Every findable page's content: name to rows `[page_size, *entry_shape]`, copies.

        >>> PagePool(pages=1, page_size=4).published()
        {}
        """
        return {name: self.storage[page].copy() for name, page in self._page_named.items()}
