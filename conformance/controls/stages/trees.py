"""What is built for a token tree (TREE-1, 2, 5), which path of it is kept (TREE-4), and the tree of width 1 (TREE-6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from conformance.checks.instances import draw_trial, make_laws
from conformance.checks.tree import (
    Built,
    GreedyTree,
    input_findings,
    longest_path_finding,
    node_logits_finding,
    sibling_finding,
    trees,
    width_one_finding,
)
from conformance.components import Floats, Ints, Logits, Mask, MaskBuilder, TreeInputs, VerifiedBatch
from conformance.controls.control import Audit, Look
from conformance.controls.stages.verifiers import ChainUnderTest, TreeUnderTest
from conformance.statistics.greedy import Margin
from specref.engine.models import CachedTableModel, no_entries, read_text
from specref.models import TableModel
from specref.rules import Rule
from specref.tree import TokenTree

CASES = 24
EXACT = Margin(0.0, "float64", 10_000)
MODEL = CachedTableModel(TableModel(12, "tree", exact=False))


class Builder:
    """Builds the inputs of a pass over a tree, from `TokenTree`; the right one."""

    name = "a control"

    def build(self, prefix: int, tokens: Sequence[int], parents: Sequence[int]) -> TreeInputs:
        """See `MaskBuilder.build`."""
        tree = TokenTree(tokens, self.parents(parents))
        mask = np.concatenate([np.ones((len(tree), prefix), dtype=bool), self.mask(tree)], axis=1)
        return TreeInputs(mask, np.array(self.positions(prefix, tree)), np.array(tokens))

    def parents(self, parents: Sequence[int]) -> Sequence[int]:
        """The parents as they are understood."""
        return parents

    def mask(self, tree: TokenTree) -> Mask:
        """Who sees whom in the tree, `[N, N]`."""
        return tree.ancestor_mask()

    def positions(self, prefix: int, tree: TokenTree) -> Sequence[int]:
        """Where each node stands."""
        return tree.position_ids(prefix)


def inputs(make: Callable[[], MaskBuilder]) -> Audit:
    """The audit of a builder: what it makes of trees, and what a model reads through it."""

    def looks(seed: int, n: int) -> Iterator[Look]:
        builder = make()
        built = [Built(prefix, tree, builder.build(prefix, tree.tokens, tree.parents)) for prefix, tree in trees(n, seed)]
        found = input_findings(builder.name, built, n)
        together, alone, names = [], [], []
        for number, one in enumerate(built):
            prefix = tuple(int(token) for token in np.random.default_rng([seed, number]).integers(12, size=one.prefix))
            past = read_text(MODEL, no_entries(MODEL), prefix).entries
            mask, positions = one.inputs.mask[:, one.prefix :], tuple(int(place) for place in one.inputs.positions)
            together += list(MODEL.read(past, one.tree.tokens, positions, mask).scores)
            for node in range(len(one.tree)):
                path = (one.tree.tokens[0], *one.tree.spells(node))
                alone.append(read_text(MODEL, past, path).scores[-1])
                names.append(f"tree {number}, node {node}")
        rows = Logits(np.array(together), np.array(alone))
        found.append(node_logits_finding(builder.name, rows, EXACT, 1, names))
        yield n, found

    return Audit("mask builder", "trees", CASES, looks)


Path: TypeAlias = tuple[int, ...]
Choose: TypeAlias = Callable[[TokenTree, Floats], tuple[Path, int]]
"""Gives the accepted path and the token after it, from a tree and the logits `[N, V]` at its nodes."""


def paths(choose: Choose) -> Audit:
    """The audit of a choice at temperature 0, where the target often agrees with several branches."""

    def looks(seed: int, n: int) -> Iterator[Look]:
        rng = np.random.default_rng([seed, 9])
        verified = []
        for _, tree in trees(n, seed):
            logits = rng.permuted(np.tile(np.arange(float(len(tree))), (len(tree), 1)), axis=1)
            for node in range(1, len(tree)):
                if rng.random() < 0.7:
                    logits[tree.parents[node], tree.tokens[node]] = 100 + rng.random()
            verified.append(GreedyTree(tree, logits, *choose(tree, logits)))
        yield n, [longest_path_finding("a control", verified, n)]

    return Audit("greedy tree", "trees", 30, looks)


def width_one(function: Rule) -> Audit:
    """The audit of a tree rule on trees without branches, beside the ratio rule on the same numbers."""

    def looks(seed: int, n: int) -> Iterator[Look]:
        rng = np.random.default_rng([seed, 10])
        trial = draw_trial(make_laws(2, 4, 8, rng), (-1, 0, 1, 2), n, rng)
        u = rng.random((n, 4))
        parents: Ints = np.tile(np.array(trial.parents), (n, 1))
        under_test = TreeUnderTest("without_replacement", function)
        tree = under_test.verify(trial.p, trial.q, trial.tokens, parents, uniforms=u, seed=0)
        chain = ChainUnderTest("ratio").verify(trial.p, trial.q[:, 1:], trial.tokens[:, 1:], uniforms=u, seed=0)
        answer = VerifiedBatch(tree.accepted, tree.next_token)
        yield n, [width_one_finding("a control", answer, chain, n)]

    return Audit("tree of width 1", "rows", 512, looks)


def siblings(draft: Callable[[np.random.Generator], TokenTree], rule: str) -> Audit:
    """The audit of what drafted trees hold, for a rule that needs distinct siblings."""

    def looks(seed: int, n: int) -> Iterator[Look]:
        rng = np.random.default_rng([seed, 11])
        yield n, [sibling_finding("a control", [draft(rng) for _ in range(n)], rule, n)]

    return Audit("drafted trees", "trees", 64, looks)
