from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from conformance.checks.instances import draw_trial, make_laws
from conformance.checks.tree import (
    GreedyTree,
    build_all,
    input_findings,
    longest_path_finding,
    node_logits_finding,
    sibling_finding,
    trees,
    width_one_finding,
)
from conformance.components import Logits, TreeInputs, VerifiedBatch
from conformance.controls.faults.trees import LevelsOfTwo as ParentsFromTheLastLevel
from conformance.controls.faults.trees import PositionsByOrder, unaccepted_leaf
from conformance.controls.faults.trees import longest as reference
from conformance.engines.own_components import BatchedChain, BatchedTree
from conformance.findings import Finding, Verdict
from conformance.statistics.greedy import Margin
from specref.tree import TokenTree

CASES = 24


class Builder:
    """Builds from `TokenTree`; the right one."""

    name = "reference"

    def build(self, prefix: int, tokens: Sequence[int], parents: Sequence[int]) -> TreeInputs:
        tree = TokenTree(tokens, parents)
        return TreeInputs(self.mask(prefix, tree), np.array(self.positions(prefix, tree)), np.array(tokens))

    def mask(self, prefix: int, tree: TokenTree) -> np.ndarray:
        return np.concatenate([np.ones((len(tree), prefix), bool), tree.ancestor_mask()], axis=1)

    def positions(self, prefix: int, tree: TokenTree) -> Sequence[int]:
        return tree.position_ids(prefix)


class SiblingsVisible(Builder):
    def mask(self, prefix: int, tree: TokenTree) -> np.ndarray:
        mask = super().mask(prefix, tree)
        for node, parent in enumerate(tree.parents):
            mask[node, [prefix + other for other in range(1, node) if tree.parents[other] == parent]] = True
        return mask


class BelowTheDiagonal(Builder):
    def mask(self, prefix: int, tree: TokenTree) -> np.ndarray:
        return np.tril(np.ones((len(tree), prefix + len(tree)), bool), prefix)


class BitsNotCleared(Builder):
    """One buffer for all calls, into which bits are only ever set."""

    def __init__(self) -> None:
        self.buffer = np.zeros((32, 32), bool)

    def mask(self, prefix: int, tree: TokenTree) -> np.ndarray:
        N = len(tree)
        self.buffer[:N, :N] |= tree.ancestor_mask()
        return np.concatenate([np.ones((N, prefix), bool), self.buffer[:N, :N]], axis=1)


class RootHidden(Builder):
    def mask(self, prefix: int, tree: TokenTree) -> np.ndarray:
        mask = super().mask(prefix, tree)
        mask[1:, prefix] = False
        return mask


def inputs(builder: Builder, seed: int = 3) -> list[Finding]:
    return input_findings(builder.name, build_all(builder, trees(CASES, seed)), CASES)


def test_the_reference_conforms() -> None:
    assert [one.verdict for one in inputs(Builder())] == [Verdict.CONFORMS] * 2


FAULTS: dict[str, tuple[type[Builder], str]] = {
    "positions by order, not depth": (PositionsByOrder, "TREE-2"),
    "parents taken from the last level": (ParentsFromTheLastLevel, "TREE-2"),
    "siblings visible": (SiblingsVisible, "TREE-1"),
    "everything below the diagonal visible": (BelowTheDiagonal, "TREE-1"),
    "mask bits not cleared between calls": (BitsNotCleared, "TREE-1"),
    "the root hidden": (RootHidden, "TREE-1"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_inputs_is_killed(name: str) -> None:
    builder, requirement = FAULTS[name]
    found = {one.requirement: one for one in inputs(builder())}
    assert {key for key, one in found.items() if one.verdict is Verdict.VIOLATES} == {requirement}
    assert "node" in found[requirement].violations[0]
    assert "expected" in found[requirement].violations[0]


def test_a_mask_of_another_width_is_nonsense() -> None:
    class Narrow(Builder):
        def mask(self, prefix: int, tree: TokenTree) -> np.ndarray:
            return super().mask(prefix, tree)[:, 1:]

    assert {one.verdict for one in inputs(Narrow())} == {Verdict.ERROR}


SIBLING_FAULTS = {"duplicate siblings in target-only sampling": TokenTree([7, 1, 1], [-1, 0, 0])}


@pytest.mark.parametrize("name", SIBLING_FAULTS)
def test_repeated_siblings_are_named(name: str) -> None:
    right, wrong = TokenTree([7, 1, 2], [-1, 0, 0]), SIBLING_FAULTS[name]
    assert sibling_finding("m", [right], "target_only", 1).verdict is Verdict.CONFORMS
    found = sibling_finding("m", [right, wrong], "target_only", 1)
    assert found.violations == ("tree 1, node 2: expected another token than its sibling 1, found token 1 again",)
    assert sibling_finding("m", [wrong], "one_hot", 1).verdict is Verdict.NOT_EXPOSED  # a repeated sibling is harmless there


def greedy_trees(number: int, choose: Any, seed: int = 1) -> list[GreedyTree]:
    rng = np.random.default_rng(seed)
    found = []
    for _, tree in trees(number, seed):
        logits = rng.permuted(np.tile(np.arange(float(len(tree))), (len(tree), 1)), axis=1)
        for node in range(1, len(tree)):  # the target often agrees with the draft
            if rng.random() < 0.7:
                logits[tree.parents[node], tree.tokens[node]] = 100 + rng.random()
        found.append(GreedyTree(tree, logits, *choose(tree, logits)))
    return found


def first_child_only(tree: TokenTree, logits: np.ndarray) -> tuple[tuple[int, ...], int]:
    path: tuple[int, ...] = ()
    node = 0
    while tree.children(node) and tree.tokens[tree.children(node)[0]] == logits[node].argmax():
        node = tree.children(node)[0]
        path += (node,)
    return path, int(logits[node].argmax())


def bonus_of_the_root(tree: TokenTree, logits: np.ndarray) -> tuple[tuple[int, ...], int]:
    return reference(tree, logits)[0], int(logits[0].argmax())


def padding_accepted(tree: TokenTree, logits: np.ndarray) -> tuple[tuple[int, ...], int]:
    path, token = reference(tree, logits)
    return (*path, len(tree)), token


PATHS = {
    "only the first child of a node looked at": first_child_only,
    "the bonus of another node": bonus_of_the_root,
    "path of an unaccepted node": unaccepted_leaf,
    "padding node counted as a draft": padding_accepted,
}


def test_the_longest_path_conforms() -> None:
    assert longest_path_finding("m", greedy_trees(30, reference), 30).verdict is Verdict.CONFORMS


@pytest.mark.parametrize("name", PATHS)
def test_a_wrong_path_is_killed(name: str) -> None:
    found = longest_path_finding("m", greedy_trees(30, PATHS[name]), 30)
    assert found.verdict is Verdict.VIOLATES
    assert "tokens" in found.violations[0] or "no branch" in found.violations[0]


ALONE = np.where(np.arange(9) == 3, -np.inf, np.random.default_rng(0).normal(size=(20, 9)))
NOISY = ALONE + 1e-7
"""An ulp or two of another kernel: lawful."""
LOGIT_FAULTS = {
    "logits of two nodes swapped": NOISY[[0, 1, 2, 3, 5, 4, *range(6, 20)]],
    "NaN at a node": np.where(np.arange(20)[:, None] == 4, np.nan, NOISY),
}


@pytest.mark.parametrize("name", LOGIT_FAULTS)
def test_logits_of_a_node_are_those_of_its_path_alone(name: str) -> None:
    margin = Margin(1e-6, "float32", 10_000)
    assert node_logits_finding("m", Logits(NOISY, ALONE), margin, 20).verdict is Verdict.CONFORMS
    nodes = [f"tree 0, node {i}" for i in range(20)]
    found = node_logits_finding("m", Logits(LOGIT_FAULTS[name], ALONE), margin, 20, nodes)
    assert found.verdict is Verdict.VIOLATES
    assert found.violations[0].startswith("tree 0, node 4, token")
    assert node_logits_finding("m", Logits(NOISY[:5], ALONE), margin, 20).verdict is Verdict.ERROR


def drops_the_last(answer: VerifiedBatch) -> VerifiedBatch:
    return VerifiedBatch(np.minimum(answer.accepted, 2), answer.next_token)


def other_token(answer: VerifiedBatch) -> VerifiedBatch:
    return VerifiedBatch(answer.accepted, np.where(answer.accepted == 0, (answer.next_token + 1) % 8, answer.next_token))


WIDTH_ONE_FAULTS = {
    "the tree's verification drops the last draft": drops_the_last,
    "the tree's verification emits another token after a rejection": other_token,
}


@pytest.mark.parametrize("name", WIDTH_ONE_FAULTS)
def test_a_tree_of_width_one_is_a_chain(name: str) -> None:
    rng = np.random.default_rng(0)
    trial = draw_trial(make_laws(2, 4, 8, rng), (-1, 0, 1, 2), 500, rng)
    u = rng.random((500, 4))
    parents = np.tile(np.array(trial.parents), (500, 1))
    tree = BatchedTree("without_replacement").verify(trial.p, trial.q, trial.tokens, parents, uniforms=u, seed=0)
    chain = BatchedChain("ratio").verify(trial.p, trial.q[:, 1:], trial.tokens[:, 1:], uniforms=u, seed=0)
    assert width_one_finding("m", tree, chain, 500).verdict is Verdict.CONFORMS
    found = width_one_finding("m", WIDTH_ONE_FAULTS[name](tree), chain, 500)
    assert found.verdict is Verdict.VIOLATES
    assert found.violations[0].startswith("row ")
