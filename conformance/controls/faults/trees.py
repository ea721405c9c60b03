"""Faults of token trees: what a pass over them is given, and which path is kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from conformance.components import Floats, Mask
from conformance.controls.control import Control
from conformance.controls.stages.trees import Builder, Choose, Path, inputs, paths
from specref.chance import SampledChance
from specref.draft import Draft
from specref.rules.tree import (
    greedy,
)
from specref.tree import TokenTree

KIND = "tree"

# What a pass is given.


class PositionsByOrder(Builder):
    """A node stands where it comes in the flattened order."""

    def positions(self, prefix: int, tree: TokenTree) -> Sequence[int]:
        """See `Builder.positions`."""
        return range(prefix, prefix + len(tree))


class LevelsOfTwo(Builder):
    """Every level is taken to hold two nodes, whoever their parents are."""

    def positions(self, prefix: int, tree: TokenTree) -> Sequence[int]:
        """See `Builder.positions`."""
        return [prefix + (node + 1) // 2 for node in range(len(tree))]


class OnePositionForAll(Builder):
    """One position per request, not per node."""

    def positions(self, prefix: int, tree: TokenTree) -> Sequence[int]:
        """See `Builder.positions`."""
        return [prefix] * len(tree)


class PositionsWithoutTheRoot(Builder):
    """The root is counted in the prefix already."""

    def positions(self, prefix: int, tree: TokenTree) -> Sequence[int]:
        """See `Builder.positions`."""
        return [position + 1 for position in tree.position_ids(prefix)]


class LastLevelsParents(Builder):
    """A node's parent is taken to be the node before it wherever it is not the root."""

    def parents(self, parents: Sequence[int]) -> Sequence[int]:
        """See `Builder.parents`."""
        return [parent if parent <= 0 else node - 1 for node, parent in enumerate(parents)]


class OrphansBelowTheRoot(Builder):
    """A parent that is not found among the last three nodes is missing: the node hangs below the root."""

    def parents(self, parents: Sequence[int]) -> Sequence[int]:
        """See `Builder.parents`."""
        return [parent if parent < 0 or node - parent <= 3 else 0 for node, parent in enumerate(parents)]


class SiblingsVisible(Builder):
    """Elder siblings are seen."""

    def mask(self, tree: TokenTree) -> Mask:
        """See `Builder.mask`."""
        mask = tree.ancestor_mask()
        for node, parent in enumerate(tree.parents[1:], start=1):
            mask[node, [other for other in tree.children(parent) if other < node]] = True
        return mask


class BelowTheDiagonal(Builder):
    """The causal mask of a chain."""

    def mask(self, tree: TokenTree) -> Mask:
        """See `Builder.mask`."""
        return np.tri(len(tree), dtype=np.bool_)


class BitsNotCleared(Builder):
    """One buffer for all calls, into which bits are only ever set."""

    def __init__(self) -> None:
        self.buffer = np.zeros((32, 32), dtype=np.bool_)

    def mask(self, tree: TokenTree) -> Mask:
        """See `Builder.mask`."""
        N = len(tree)
        self.buffer[:N, :N] |= tree.ancestor_mask()
        return self.buffer[:N, :N].copy()


class RootHidden(Builder):
    """The last committed token is taken for a part of the prefix."""

    def mask(self, tree: TokenTree) -> Mask:
        """See `Builder.mask`."""
        mask = tree.ancestor_mask()
        mask[1:, 0] = False
        return mask


class GrandparentOnly(Builder):
    """Ancestors are followed two steps at a time."""

    def mask(self, tree: TokenTree) -> Mask:
        """See `Builder.mask`."""
        mask = np.eye(len(tree), dtype=np.bool_)
        for node, parent in enumerate(tree.parents):
            if parent > 0:
                mask[node] |= mask[tree.parents[parent]]
        return mask


class MaskOfTheTreeBefore(Builder):
    """Where two trees in turn have the same size, the mask of the first is used again."""

    def __init__(self) -> None:
        self.kept: dict[int, Mask] = {}

    def mask(self, tree: TokenTree) -> Mask:
        """See `Builder.mask`."""
        return self.kept.setdefault(len(tree), tree.ancestor_mask())


def built(id: str, builder: type[Builder], requirement: str, *reports: str) -> Control:
    """A fault of the inputs of a pass over a tree."""
    return Control(id, KIND, "TokenTree.ancestor_mask, position_ids", (requirement, "TREE-5"), inputs(builder), reports)


INPUTS = (
    built("positions by order, not depth", PositionsByOrder, "TREE-2", "NVIDIA/TensorRT-LLM 12962"),
    built("levels of equal width assumed", LevelsOfTwo, "TREE-2", "NVIDIA/TensorRT-LLM 12962"),
    built("one position for all nodes of a tree", OnePositionForAll, "TREE-2", "sgl-project/sglang 34154"),
    built("positions one too far", PositionsWithoutTheRoot, "TREE-2", "vllm-project/vllm 43820"),
    built("parents taken from the last level", LastLevelsParents, "TREE-1", "NVIDIA/TensorRT-LLM 12962"),
    built("a node whose parent is not found hangs below the root", OrphansBelowTheRoot, "TREE-1", "sgl-project/sglang 36201"),
    built("siblings visible", SiblingsVisible, "TREE-1"),
    built("everything below the diagonal visible", BelowTheDiagonal, "TREE-1", "NVIDIA/TensorRT-LLM 18892"),
    built("mask bits not cleared between calls", BitsNotCleared, "TREE-1", "NVIDIA/TensorRT-LLM 13081"),
    built("the root hidden", RootHidden, "TREE-1", "NVIDIA/TensorRT-LLM 15842"),
    built("the parent skipped, the grandparent seen", GrandparentOnly, "TREE-1"),
    built("the mask of another tree of the same size", MaskOfTheTreeBefore, "TREE-1", "sgl-project/sglang 9687"),
)

# Which path is kept at temperature 0.


def longest(tree: TokenTree, logits: Floats) -> tuple[Path, int]:
    """The right choice."""
    out = greedy(list(logits), Draft.chosen(tree.tokens, tree), SampledChance(0))
    return out.path, out.next_token


def first_child_only(tree: TokenTree, logits: Floats) -> tuple[Path, int]:
    """Only the first child of a node is looked at."""
    path: Path = ()
    node = 0
    while tree.children(node) and tree.tokens[tree.children(node)[0]] == logits[node].argmax():
        node = tree.children(node)[0]
        path += (node,)
    return path, int(logits[node].argmax())


def bonus_of_the_root(tree: TokenTree, logits: Floats) -> tuple[Path, int]:
    """The token after the path is the root's best."""
    return longest(tree, logits)[0], int(logits[0].argmax())


def unaccepted_leaf(tree: TokenTree, logits: Floats) -> tuple[Path, int]:
    """The path of the last node, accepted or not."""
    return tree.path(len(tree) - 1), int(logits[-1].argmax())


def padding_accepted(tree: TokenTree, logits: Floats) -> tuple[Path, int]:
    """A padding node, whose id is 0, counts as a draft where the target's best token is 0."""
    path, token = longest(tree, logits)
    return ((*path, len(tree)), token) if token == 0 else (path, token)


def tie_to_the_last(tree: TokenTree, logits: Floats) -> tuple[Path, int]:
    """Of paths of equal length the last, with the token after the first."""
    path, token = longest(tree, logits)
    as_deep = [node for node in range(1, len(tree)) if tree.depths[node] == len(path)]
    return (tree.path(as_deep[-1]), token) if as_deep else (path, token)


def second_best_accepted(tree: TokenTree, logits: Floats) -> tuple[Path, int]:
    """A child among the target's two best tokens passes."""
    node, path = 0, ()
    while True:
        good = [child for child in tree.children(node) if tree.tokens[child] in np.argsort(-logits[node])[:2]]
        if not good:
            return path, int(logits[node].argmax())
        node = good[0]
        path = (*path, node)  # type: ignore[assignment]


def wrong_stride(tree: TokenTree, logits: Floats) -> tuple[Path, int]:
    """Candidates are looked up with the stride of another top-k: the rows after the second are those of other nodes."""
    shuffled = logits[[min(node + (node > 1), len(tree) - 1) for node in range(len(tree))]]
    return longest(tree, shuffled)


def kept(id: str, choose: Choose, *reports: str) -> Control:
    """A fault of the choice of a path."""
    return Control(id, KIND, "greedy", ("TREE-4",), paths(choose), reports)


PATHS = (
    kept("only the first child of a node looked at", first_child_only, "NVIDIA/TensorRT-LLM 15842"),
    kept("the bonus of another node", bonus_of_the_root),
    kept("path of an unaccepted node", unaccepted_leaf, "SafeAILab/EAGLE 301"),
    kept("padding node counted as a draft", padding_accepted),
    kept("of equally long paths the last, with the first's bonus", tie_to_the_last),
    kept("a child among the target's best two passes", second_best_accepted, "SafeAILab/EAGLE 301"),
    kept("wrong stride over top-k", wrong_stride, "FasterDecoding/Medusa 64"),
)

FAULTS = (*INPUTS, *PATHS)
