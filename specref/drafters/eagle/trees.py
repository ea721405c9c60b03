"""Shapes of drafts, made of a draft model's laws. They look at no random number, so `sequential_one_hot` is lossless on them.

`next_laws(paths) -> laws` answers for several drafted paths below the root at once, as `EagleReader.laws` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from specref.laws import Law
from specref.models import Tokens
from specref.tree import TokenTree

NextLaws: TypeAlias = Callable[[Sequence[Tokens]], Sequence[Law]]


def ranked_tree(root: int, next_laws: NextLaws, choices: Sequence[Sequence[int]]) -> TokenTree:
    """A static tree of ranks: (0, 2) is the third most probable token after the most probable one. Source: 2401.15077, 3.1.

    Where q gives a token no probability it is left out, and so is what lies below it.

    >>> from specref.models import TableModel
    >>> model = TableModel(3, seed=1)
    >>> next_laws = lambda paths: [model.next_law(path) for path in paths]
    >>> tree = ranked_tree(7, next_laws, choices=[(0,), (1,), (0, 0)])
    >>> tree.parents, tree.tokens[1] == int(model.next_law(()).argmax())
    ((-1, 0, 0, 1), True)

    Raises BadTree for a choice whose parent is missing.
    """
    wanted = checked_choices(choices)
    spelled: dict[tuple[int, ...], Tokens] = {(): ()}
    for length in range(1, 1 + max(map(len, wanted), default=0)):
        level = [choice for choice in wanted if len(choice) == length and choice[:-1] in spelled]
        above = list(dict.fromkeys(choice[:-1] for choice in level))
        ranked = dict(zip(above, map(by_probability, next_laws([spelled[choice] for choice in above]))))
        for choice in level:
            if choice[-1] < len(ranked[choice[:-1]]):
                spelled[choice] = (*spelled[choice[:-1]], ranked[choice[:-1]][choice[-1]])
    return TokenTree.from_paths(root, [path for path in spelled.values() if path])


def checked_choices(choices: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """The choices, each once, by length and then rank by rank. Raises BadTree unless the parent of each is among them.

    >>> checked_choices([(0, 1), (1,), (0,), (1,)])
    [(0,), (1,), (0, 1)]
    >>> checked_choices([(0,), (1, 0)])
    Traceback (most recent call last):
    specref.tree.BadTree: choice (1, 0) has no parent: (1,) is not among the choices
    """
    wanted = sorted({tuple(choice) for choice in choices} - {()}, key=lambda choice: (len(choice), choice))
    ranks = 1 + max((rank for choice in wanted for rank in choice), default=0)
    TokenTree.from_ranks(0, wanted, [range(ranks)] * max(map(len, wanted), default=0))
    return wanted


def grown_tree(root: int, next_laws: NextLaws, depth: int, top_k: int, nodes: int) -> TokenTree:
    """A tree that grows where the draft is confident. Source: Li et al. 2406.16858 (EAGLE-2), section 4.

    A node's score is the product of q along its path. Level by level the `top_k` best nodes get `top_k` children each; at the
    end the best `nodes` of all that were made are kept. Scores never rise along a path, and among equal ones the older node
    comes first, so what is kept is a tree.

    >>> from specref.laws import rational
    >>> next_laws = lambda paths: [rational([6, 3, 1])] * len(paths)
    >>> print(grown_tree(7, next_laws, depth=2, top_k=2, nodes=4))    # .6, .3, .6 * .6, .6 * .3; not .3 * .6
    7
    ├─ 0
    │  ├─ 0
    │  └─ 1
    └─ 1
    """
    made: list[tuple[float, Tokens]] = []
    growing: list[tuple[float, Tokens]] = [(0.0, ())]
    for _ in range(depth):
        laws = next_laws([path for _, path in growing])
        level = [
            (score + math.log(law[token]), (*path, token))
            for (score, path), law in zip(growing, laws)
            for token in by_probability(law)[:top_k]
        ]
        made += level
        growing = sorted(level, key=lambda entry: -entry[0])[:top_k]
    best = sorted(made, key=lambda entry: -entry[0])[:nodes]
    return TokenTree.from_paths(root, [path for _, path in best])


def by_probability(law: Law) -> list[int]:
    """The tokens that `law [V]` can draw, the most probable first; among equals the lowest id.

    >>> from specref.laws import rational
    >>> by_probability(rational([1, 0, 2, 1]))
    [2, 0, 3]
    """
    order = np.argsort(-law, kind="stable")
    return [int(token) for token in order if law[token] > 0]


def within(parents: Sequence[int], depth: int) -> list[int]:
    """The parents of the same tree without what lies deeper than `depth`.

    >>> within([-1, 0, 1, 2, 0], depth=1)
    [-1, 0, 0]
    """
    tree = TokenTree([0] * len(parents), parents)
    kept = [node for node in range(len(tree)) if tree.depths[node] <= depth]
    place = {node: new for new, node in enumerate(kept)}
    return [-1, *(place[tree.parents[node]] for node in kept[1:])]
