"""What a token may see through a static buffer or a ring is what it sees in one full pass under the plain causal mask."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from specref.kv_cache import RingCache, StaticCache
from specref.kv_cache.base import causal_mask


@pytest.mark.parametrize("window", [1, 2, 3, 4, 5, 9])
def test_ring_in_rounds_sees_what_a_full_pass_sees(window: int) -> None:
    """Windows below, at and above the k + 1 rows of a round, before and after the wrap."""
    for prompt, count, rejected in itertools.product(range(9), range(1, 6), range(4)):
        cache = RingCache(window, depth=4, dtype=int)
        cache.append(range(prompt))
        cache.append([-1] * rejected)
        cache.rollback(prompt)
        keys = np.concatenate([cache.visible(), np.arange(prompt, prompt + count)])
        mask = cache.mask(count)
        assert mask.shape == (count, len(keys))  # as wide as the keys, not as the window
        for query, seen in enumerate(mask, start=prompt):
            assert keys[seen].tolist() == list(range(max(0, query - window + 1), query + 1))


def test_static_buffer_hides_stale_rows() -> None:
    for prompt, count, rejected in itertools.product(range(6), range(1, 5), range(5)):
        cache = StaticCache(capacity=12, dtype=int)
        cache.append(range(prompt))
        cache.append([-1] * rejected)
        cache.rollback(prompt)
        mask = cache.mask(count)
        cache.append(range(prompt, prompt + count))
        for query, seen in enumerate(mask, start=prompt):
            assert cache.buffer[seen].tolist() == list(range(query + 1))


def test_causal_mask_is_by_position_in_any_order() -> None:
    """Keys may lie in any slots; the mask follows their positions."""
    positions = np.array([6, 7, 3, 4, 5])  # a ring of 5 after 8 tokens
    assert positions[causal_mask([6], positions, window=3)[0]].tolist() == [6, 4, 5]
    assert positions[causal_mask([6], positions)[0]].tolist() == [6, 3, 4, 5]
