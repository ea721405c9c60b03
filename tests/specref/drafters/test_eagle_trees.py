"""Shapes of EAGLE's trees, on table models: what they hold, and how many passes they cost."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np

from specref.drafters import eagle
from specref.drafters.eagle.trees import within
from specref.laws import rational
from specref.models import TableModel


def test_a_ranked_tree_holds_the_tokens_of_those_ranks():
    model = TableModel(4, seed=3)
    calls = []

    def next_laws(paths):
        calls.append(list(paths))
        return [model.next_law(path) for path in paths]

    tree = eagle.ranked_tree(9, next_laws, [(0,), (1,), (0, 2), (1, 0)])

    def ranked(path):
        law = model.next_law(path)
        return sorted(range(4), key=lambda token: (-law[token], token))

    a, b = ranked(())[:2]
    assert (tree.tokens, tree.parents) == ((9, a, b, ranked((a,))[2], ranked((b,))[0]), (-1, 0, 0, 1, 2))
    assert calls == [[()], [(a,), (b,)]]  # one pass per level
    sparse = eagle.ranked_tree(9, lambda paths: [rational([0, 1, 1])] * len(paths), [(0,), (1,), (2,), (2, 0), (0, 1)])
    assert sparse.tokens == (9, 1, 2, 2)  # no third token has any probability, so nothing hangs below it
    assert eagle.ranked_tree(9, next_laws, []).tokens == (9,)


def test_a_grown_tree_holds_the_likeliest_paths():
    """With room to grow everywhere it is the best of all trees: the most probable paths, found here by going through all."""
    rng = np.random.default_rng()
    for _ in range(20):
        model = TableModel(3, seed=int(rng.integers(2**32)), kind=str(rng.choice(["plain", "ties", "zeros"])))
        nodes = int(rng.integers(1, 12))
        tree = eagle.grown_tree(9, lambda paths, m=model: [m.next_law(path) for path in paths], depth=3, top_k=27, nodes=nodes)

        def score(path, model=model):
            return math.prod((model.next_law(path[:i])[path[i]] for i in range(len(path))), start=Fraction(1))

        every = [path for length in (1, 2, 3) for path in itertools.product(range(3), repeat=length) if score(path)]
        wanted = sorted(map(score, every), reverse=True)[:nodes]
        assert sorted((score(tree.spells(node)) for node in range(1, len(tree))), reverse=True) == wanted


def test_a_grown_tree_expands_only_the_best_of_each_level():
    calls = []

    def next_laws(paths):
        calls.append(list(paths))
        return [rational([5, 3, 2])] * len(paths)

    tree = eagle.grown_tree(9, next_laws, depth=3, top_k=2, nodes=100)
    assert calls == [[()], [(0,), (1,)], [(0, 0), (0, 1)]]  # of .25, .15, .15, .09 the best two, the older first among equals
    assert len(tree) == 1 + 2 + 4 + 4
    certain = eagle.grown_tree(9, lambda paths: [rational([0, 1])] * len(paths), depth=3, top_k=2, nodes=2)
    assert certain.parents == (-1, 0, 1)  # scores tie along the path: parents come first


def test_shapes_are_cut_at_a_depth():
    assert within([-1, 0, 0, 1, 3, 2], 2) == [-1, 0, 0, 1, 2]
    assert within([-1, 0, 1], 0) == [-1]
