"""Tree rules over a batch decide, tree by tree, what the plain reference decides on the same uniforms."""

from __future__ import annotations

import secrets

import numpy as np
import pytest
import torch
from batched_rows import assert_same, random_trees, sizes

from specref.batched import traversal as traversal_module
from specref.batched import tree as batched_tree
from specref.batched import typical as batched_typical
from specref.batched.masks import links
from specref.rules import tree, typical

RULES = [
    ("greedy", batched_tree.greedy, tree.greedy, {}),
    ("sequential_one_hot", batched_tree.sequential_one_hot, tree.sequential_one_hot, {}),
    ("recursive_rejection", batched_tree.recursive_rejection, tree.recursive_rejection, {}),
    ("target_only", batched_tree.target_only, tree.target_only, {}),
    ("target_only with thresholds", batched_tree.target_only, tree.target_only, {"tau_acc": 0.6, "tau_single": 0.3}),
    ("traversal", batched_tree.traversal, tree.traversal, {}),
    ("typical", batched_typical.typical, typical.typical, {}),
    ("typical, sampled", batched_typical.typical, typical.typical, {"sampled": True, "epsilon": 0.2}),
]
each_rule = pytest.mark.parametrize(("batched", "plain", "settings"), [one[1:] for one in RULES], ids=[one[0] for one in RULES])


def trees_agree(batched, plain, settings, trees: int, nodes: list[int], vocabularies: list[int], B: int) -> None:
    seed, done = secrets.randbits(64), 0
    rng = np.random.default_rng(seed)
    while done < trees:
        N, V = sizes(rng, nodes), sizes(rng, vocabularies)
        done += assert_same(
            random_trees(rng, B, N, V), batched, plain, f"seed {seed} after {done} trees, N={N}, V={V}", **settings
        )


@each_rule
def test_random_trees_agree(batched, plain, settings) -> None:
    trees_agree(batched, plain, settings, 400, [1, 2, 4, 8, 16], [2, 5, 17], B=100)
    trees_agree(batched, plain, settings, 20, [64], [33], B=20)


@pytest.mark.long
@each_rule
def test_ten_thousand_random_trees_agree(batched, plain, settings) -> None:
    trees_agree(batched, plain, settings, 9900, [1, 2, 3, 5, 8, 13, 21, 34, 64], [2, 5, 17, 64], B=100)
    trees_agree(batched, plain, settings, 100, [8, 20], [4096], B=20)


# ---- faults that the comparison must see ------------------------------------------------------------------------------------


def only_children(parents, meant=None):
    """Siblings forgotten."""
    first_child, next_sibling = links(parents, meant)
    return first_child, torch.full_like(next_sibling, -1)


def law_kept(r, x, q):
    """A rejected child takes nothing away."""
    return r


@pytest.mark.parametrize(
    ("module", "name", "fault", "batched", "plain"),
    [
        (batched_tree, "_left_if_certain", law_kept, batched_tree.sequential_one_hot, tree.sequential_one_hot),
        (batched_tree, "total", lambda r: torch.ones_like(r[:, 0]), batched_tree.sequential_one_hot, tree.sequential_one_hot),
        (batched_tree, "norm", lambda weights: weights, batched_tree.recursive_rejection, tree.recursive_rejection),
        (batched_tree, "_repeated_siblings", lambda trees: trees.meant & False, batched_tree.target_only, tree.target_only),
        (traversal_module, "links", only_children, batched_tree.traversal, tree.traversal),
        (traversal_module, "residual", lambda p, q: p, batched_tree.traversal, tree.traversal),
        (traversal_module, "positive_part", lambda weights: weights, batched_tree.traversal, tree.traversal),
    ],
)
def test_planted_faults_are_seen(monkeypatch, module, name, fault, batched, plain) -> None:
    monkeypatch.setattr(module, name, fault)
    with pytest.raises(AssertionError, match="the reference decides"):
        trees_agree(batched, plain, {}, 4000, [8, 16], [3, 5], B=200)
