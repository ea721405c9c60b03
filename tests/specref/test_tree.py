"""Token trees: construction, geometry for one pass of the target, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specref import strategies
from specref.laws import BadLaw, checked, rational
from specref.models import TableModel
from specref.tree import BadTree, TokenTree, laws_without_replacement, mask_grid


@pytest.mark.parametrize(
    ("tokens", "parents", "named"),
    [
        ([], [], r"parents\[0\] must be -1, got \(\)"),
        ([1], [0], r"must be -1, got \(0,\)"),
        ([1, 2], [-1], "2 tokens and 1 parents"),
        ([1, 2], [-1, 1], "the parent of node 1 is 1"),  # its own parent
        ([1, 2, 3], [-1, 2, 1], "the parent of node 1 is 2"),  # a cycle
        ([1, 2, 3], [-1, 2, 0], "the parent of node 1 is 2"),  # unordered
        ([1, 2, 3], [-1, 0, -1], "the parent of node 2 is -1"),  # two roots
        ([1, 2], [-1, 7], "the parent of node 1 is 7"),
    ],
)
def test_what_is_no_tree_is_named(tokens, parents, named) -> None:
    with pytest.raises(BadTree, match=named):
        TokenTree(tokens, parents)


@given(strategies.trees(5))
def test_geometry_follows_from_the_paths(tree: TokenTree) -> None:
    mask = tree.ancestor_mask()
    for node in range(len(tree)):
        path = tree.path(node)
        assert tree.depths[node] == len(path)
        assert set(np.flatnonzero(mask[node])) == {0, *path, node}
        assert tree.spells(node) == tuple(tree.tokens[step] for step in path)
        assert tree.position_ids(root=9)[node] == 9 + len(path)
        assert [tree.parents[step] for step in path] == [0, *path][: len(path)]
        assert all(tree.parents[child] == node for child in tree.children(node))
        assert (node in tree.leaves) == (not tree.children(node))
    assert sum(len(tree.children(node)) for node in range(len(tree))) == len(tree) - 1
    assert not np.triu(mask, 1).any()


@given(strategies.trees(9))
def test_every_node_is_drawn_on_a_line_of_its_own(tree: TokenTree) -> None:
    lines = str(tree).split("\n")
    assert len(lines) == len(tree)
    depths = [line.count("│  ") + line.count("   ") + (("├─ " in line) or ("└─ " in line)) for line in lines]
    assert sorted(depths) == sorted(tree.depths)


@given(strategies.trees(5), st.data())
def test_longest_accepted_path(tree: TokenTree, data: st.DataObject) -> None:
    accepted = data.draw(st.lists(st.booleans(), min_size=len(tree), max_size=len(tree)))
    candidates = [node for node in range(len(tree)) if all(accepted[step] for step in tree.path(node))]
    longest = max(candidates, key=lambda node: (tree.depths[node], -node))
    assert tree.longest_accepted(accepted) == tree.path(longest)


def test_a_path_below_a_rejected_node_is_not_accepted() -> None:
    tree = TokenTree([0, 1, 2, 3], [-1, 0, 1, 2])
    assert tree.longest_accepted([True, True, False, True]) == (1,)


@given(st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=6))
def test_from_paths_spells_every_path_once(paths) -> None:
    tree = TokenTree.from_paths(9, paths)
    spelled = [tree.spells(node) for node in range(len(tree))]
    wanted = {tuple(path[:length]) for path in paths for length in range(len(path) + 1)} | {()}
    assert set(spelled) == wanted
    assert len(spelled) == len(wanted)
    assert list(tree.depths) == sorted(tree.depths)  # level by level


def test_from_ranks_flattens_as_medusa_does() -> None:
    """Choices by length, then rank by rank; a node's token is the rank-th candidate of its head."""
    choices = [(0,), (0, 0), (1,), (0, 1), (2,), (0, 0, 0), (1, 0)]
    candidates = [[10 * head + rank for rank in range(10)] for head in range(1, 4)]
    tree = TokenTree.from_ranks(99, reversed(choices), candidates)
    assert tree.tokens == (99, 10, 11, 12, 20, 21, 20, 30)
    assert tree.parents == (-1, 0, 0, 0, 1, 1, 2, 4)


@pytest.mark.parametrize(
    ("choices", "named"),
    [
        ([(0,), (1, 0)], r"choice \(1, 0\) has no parent: \(1,\)"),
        ([(5,)], "rank 5 of head 0"),
        ([(0,), (0, 0), (0, 0, 0)], "rank 0 of head 2"),
        ([(-1,)], "rank -1 of head 0"),
    ],
)
def test_bad_choices_are_named(choices, named) -> None:
    with pytest.raises(BadTree, match=named):
        TokenTree.from_ranks(0, choices, candidates=[[1, 2], [3, 4]])


@given(strategies.trees(5), st.data())
def test_another_order_is_the_same_tree(tree: TokenTree, data: st.DataObject) -> None:
    order, waiting = [0], list(tree.children(0))
    while waiting:
        order.append(waiting.pop(data.draw(st.integers(0, len(waiting) - 1))))
        waiting.extend(tree.children(order[-1]))
    other = tree.reordered(order)
    for new, node in enumerate(order):
        assert other.spells(new) == tree.spells(node)
        assert tuple(order[step] for step in other.path(new)) == tree.path(node)
    assert (other.ancestor_mask() == tree.ancestor_mask()[np.ix_(order, order)]).all()


@pytest.mark.parametrize("order", [[1, 0], [0, 0], [0], [0, 2]])
def test_bad_orders_are_named(order) -> None:
    with pytest.raises(BadTree):
        TokenTree([5, 6], [-1, 0]).reordered(order)


def test_a_child_before_its_parent_is_no_order() -> None:
    with pytest.raises(BadTree, match="does not precede"):
        TokenTree([5, 6, 7], [-1, 0, 1]).reordered([0, 2, 1])


def test_chain_is_the_tree_of_width_one() -> None:
    tree = TokenTree.chain(7, [1, 2, 3])
    assert tree.depths == (0, 1, 2, 3)
    assert (tree.ancestor_mask() == np.tril(np.ones((4, 4), dtype=bool))).all()
    assert mask_grid(tree.ancestor_mask()).splitlines()[1] == "x x . ."


def test_laws_without_replacement_come_from_one_row_per_parent() -> None:
    model = TableModel(4, seed=1)
    tree = TokenTree([0, 2, 0, 3, 1], [-1, 0, 0, 0, 1])
    rows = [model.next_law(tree.spells(node)) for node in range(len(tree))]
    laws = laws_without_replacement(tree, rows)
    for law in laws[1:]:
        checked(law)
    assert (laws[1] == rows[0]).all()
    assert (laws[4] == rows[1]).all()
    assert laws[3][2] == laws[3][0] == 0
    assert laws[3][3] == rows[0][3] / (rows[0][3] + rows[0][1])


@pytest.mark.parametrize(
    ("tokens", "row", "named"),
    [([9, 1, 1], [1, 1], "node 2 cannot hold token 1"), ([9, 0, 1], [1, 0], "node 2 cannot hold token 1")],
)
def test_siblings_that_cannot_have_been_drawn_are_named(tokens, row, named) -> None:
    with pytest.raises(BadLaw, match=named):
        laws_without_replacement(TokenTree(tokens, [-1, 0, 0]), {0: rational(row)})
