"""The draft model's own cache: what it has read lags behind by one token more after full acceptance.

To draft x_1 .. x_k the draft reads the last committed token and x_1 .. x_(k-1). It never reads x_k: nobody asks for
what follows it. With C committed tokens its cache then holds C + k - 1 entries, and the round decides how many stay:

    accepted a < k     C + a entries, one less than is now committed: one token to read next, the emitted one
    accepted all k     C + k - 1 entries, two less than is now committed: two to read next, x_k **and** the bonus token

Both are one rule: keep what is committed and was read, then read whatever is committed and was not. Feeding only the
last token puts the wrong entry at the position of x_k. The output stays right, since verification does not trust the
draft; acceptance falls.

Works on any cache of this package. Drafting appends one token at a time, so a ring or recurrent state needs depth k or
more. A draft net that must not keep entries of its own making (EAGLE's features) rolls back to C before the round's
accepted tokens are read again.

Source: Leviathan et al. (2211.17192, algorithm 1) for what the draft reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from specref.kv_cache.base import KVCache


def settle(cache: KVCache, committed: Sequence[int]) -> None:
    """Drop from the draft's cache what the round did not commit; call once per round, with the committed tokens.

    `committed` holds all tokens of the sequence, prompt included; its last token was emitted by the target and read by
    no model yet. Raises ValueError for no tokens.

    Here 1 is committed and 2, 3, 4 are drafted; then the target accepts 2 alone and emits 9:

    >>> from specref.kv_cache.contiguous import ContiguousCache
    >>> cache = ContiguousCache(dtype=int)
    >>> for token in [1, 2, 3]:                                       # 4 is drafted from this, and not read
    ...     cache.append([10 * token])
    >>> settle(cache, committed=[1, 2, 9])
    >>> cache.visible(), unread(cache, [1, 2, 9])
    (array([10, 20]), (9,))
    """
    if not committed:
        raise ValueError(f"committed tokens are {committed!r}; settle after a round, which commits at least one token")
    cache.rollback(min(cache.length, len(committed) - 1))


def unread(cache: KVCache, committed: Sequence[int]) -> tuple[int, ...]:
    """The tokens that the draft must read before it can draft again: one, two after full acceptance, more after rounds
    in which it did not draft.

    Raises ValueError for a cache that holds more than the committed tokens, which `settle` prevents.

    Here the target accepts 2, 3, 4 and adds the bonus token 5:

    >>> from specref.kv_cache.contiguous import ContiguousCache
    >>> cache = ContiguousCache(dtype=int)
    >>> cache.append([10, 20, 30])
    >>> settle(cache, committed=[1, 2, 3, 4, 5])
    >>> unread(cache, [1, 2, 3, 4, 5])
    (4, 5)
    """
    if cache.length >= len(committed):
        raise ValueError(
            f"the draft's cache holds {cache.length} entries, {len(committed)} tokens are committed and the last "
            "is read by nobody; call settle(cache, committed) after every round"
        )
    return tuple(committed[cache.length :])
