"""Masks, positions and links from parents, and the cache gather, against `TokenTree` and `ContiguousCache`."""

from __future__ import annotations

import secrets

import numpy as np
import pytest
import torch
from batched_rows import random_trees

from specref.batched import masks
from specref.batched.cache import gather
from specref.kv_cache.contiguous import ContiguousCache
from specref.tree import TokenTree


def check_trees(batches: int, B: int) -> None:
    seed = secrets.randbits(64)
    rng = np.random.default_rng(seed)
    for _ in range(batches):
        N = int(rng.integers(1, 65))
        batch = random_trees(rng, B, N, V=2)
        trees = batch.trees
        root = torch.from_numpy(rng.integers(0, 100, B))
        mask = masks.ancestor_mask(trees.parents, trees.meant).numpy()
        positions = masks.position_ids(trees.parents, root, trees.meant).numpy()
        first_child, next_sibling = (link.numpy() for link in masks.links(trees.parents, trees.meant))
        node = torch.from_numpy(rng.integers(0, batch.count))
        depth, path = trees.path_to(node)
        for b in range(B):
            n = int(batch.count[b])
            tree = TokenTree([0] * n, batch.parents[b, :n].tolist())
            where = f"seed {seed}, {tree}"
            assert (mask[b, :n, :n] == tree.ancestor_mask()).all(), where
            assert not mask[b, n:].any(), where
            assert not mask[b, :, n:].any(), where
            assert tuple(positions[b, :n]) == tree.position_ids(int(root[b])), where
            for parent in range(n):
                children, child = [], first_child[b, parent]
                while child >= 0:
                    children.append(child)
                    child = next_sibling[b, child]
                assert tuple(children) == tree.children(parent), where
            wanted = tree.path(int(node[b]))
            assert int(depth[b]) == len(wanted), where
            assert tuple(path[b, : len(wanted)].tolist()) == wanted, where
            assert (path[b, len(wanted) :] == -1).all(), where


def test_masks_positions_links_and_paths() -> None:
    check_trees(batches=15, B=20)


@pytest.mark.long
def test_masks_positions_links_and_paths_of_ten_thousand_trees() -> None:
    check_trees(batches=100, B=100)


def test_gather_keeps_what_the_plain_cache_keeps() -> None:
    rng = np.random.default_rng(secrets.randbits(64))
    B, N, S, L = 50, 12, 40, 3
    batch = random_trees(rng, B, N, V=2)
    length = rng.integers(0, S - N + 1, B)
    cache = torch.from_numpy(rng.integers(0, 10**6, (L, B, S, 2, 4)))
    before = cache.clone()
    depth, path = batch.trees.path_to(torch.from_numpy(rng.integers(0, batch.count)))
    new_length = gather(cache, path, depth, torch.from_numpy(length))
    for b in range(B):
        n, count = int(batch.count[b]), int(depth[b])
        for layer in range(L):
            plain = ContiguousCache(entry_shape=(2, 4), dtype=int)
            rows = before[layer, b].numpy()
            plain.append(rows[: length[b]])
            plain.append(rows[length[b] : length[b] + n], parents=batch.parents[b, :n].tolist())
            plain.gather(path[b, :count].tolist())
            assert plain.length == new_length[b]
            assert (cache[layer, b, : plain.length].numpy() == plain.visible()).all()


@pytest.mark.parametrize(
    ("path", "accepted", "length"),
    [([2, 1], 2, 0), ([0, 1], 1, 0), ([1, -1], 2, 0), ([1, 2], 3, 0), ([1, 2], 2, 4), ([1, 2], 1, -1)],
)
def test_gather_refuses_a_path_that_is_none(path, accepted, length) -> None:
    cache = torch.zeros(1, 1, 6, 1)
    with pytest.raises(ValueError, match=r"rows \[0\]"):
        gather(cache, torch.tensor([path]), torch.tensor([accepted]), torch.tensor([length]))


def test_gather_refuses_wrong_shapes() -> None:
    with pytest.raises(ValueError, match="are needed; got"):
        gather(torch.zeros(1, 2, 6), torch.ones(1, 1).long(), torch.ones(1).long(), torch.ones(1).long())
