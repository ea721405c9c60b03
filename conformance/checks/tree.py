"""TREE: what one pass over a flattened tree is given, and which path of it is kept.

TREE-1 the mask, TREE-2 the positions, TREE-3 distinct siblings where the rule needs them, TREE-4 the longest accepted path at
temperature 0, TREE-5 the logits at a node, TREE-6 the tree of width 1. Pure functions of what was built and answered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from conformance.checks.instances import ContextLaws, draw_trial, make_laws
from conformance.checks.outputs import same_logits
from conformance.checks.places import Place, judged, nonsense, not_exposed
from conformance.checks.seen import mask_picture
from conformance.components import (
    NEEDS_LAWS,
    ChainVerifier,
    Ints,
    Logits,
    MaskBuilder,
    TreeInputs,
    TreeVerifier,
    VerifiedBatch,
)
from conformance.findings import Finding
from conformance.pictures import MaskPicture
from conformance.statistics.greedy import Margin
from specref.chance import SampledChance
from specref.draft import Draft
from specref.rules.tree import greedy
from specref.tree import TokenTree

DISTINCT_RULES = ("target_only", "without_replacement")
"""Rules that are biased where two siblings hold one token."""
PICTURED = 2
"""Masks that a finding carries: the smallest wrong ones."""
KEEP_THE_LONGEST = ("without_replacement", "one_hot", "target_only", "traversal")
"""Rules that, where the target is certain, can do nothing but keep the longest path of its tokens."""
AS_CHAINS = {"without_replacement": "ratio", "one_hot": "one_hot"}
"""Rules of trees that decide a tree of width 1 by the same comparisons as a rule of chains."""
SHAPES = ((-1, 0, 0, 0), (-1, 0, 0, 1, 1, 2), (-1, 0, 1, 2, 0, 4))


@dataclass(frozen=True)
class Built:
    """What a builder made of a tree after `prefix` tokens."""

    prefix: int
    tree: TokenTree
    inputs: TreeInputs


def trees(number: int, seed: int, largest: int = 12) -> Iterator[tuple[int, TokenTree]]:
    """Trees with prefixes to build inputs for: chains, stars and random ones, parents in any lawful order, large before small.

    Large before small, so that a mask not cleared between two calls shows.

    >>> [len(tree) for _, tree in trees(4, seed=0)]
    [12, 12, 4, 4]
    """
    rng = np.random.default_rng([seed, 4])
    for case in range(number):
        size = largest if case < 2 else int(rng.integers(2, largest))
        if case % 4 == 0:
            parents = list(range(-1, size - 1))
        elif case % 4 == 1:
            parents = [-1] + [0] * (size - 1)
        else:
            parents = [-1, *(int(rng.integers(0, node)) for node in range(1, size))]
        yield int(rng.integers(1, 9)), TokenTree(rng.permutation(size).tolist(), parents)


def build_all(builder: MaskBuilder, cases: Iterator[tuple[int, TokenTree]]) -> list[Built]:
    """Ask one builder for every case in turn."""
    return [Built(prefix, tree, builder.build(prefix, tree.tokens, tree.parents)) for prefix, tree in cases]


def input_findings(name: str, built: Sequence[Built], planned: int) -> list[Finding]:
    """TREE-1 and TREE-2: each node sees the prefix, its ancestors and itself, and stands at prefix + depth.

    >>> siblings = TokenTree([7, 1, 2], parents=[-1, 0, 0])
    >>> made = TreeInputs(siblings.ancestor_mask(), np.arange(3), np.array([7, 1, 2]))
    >>> input_findings("by order", [Built(0, siblings, made)], planned=1)[1].violations
    ('tree 0 (parents [-1, 0, 0], prefix 0), node 2: expected position 1, found position 2',)
    """
    masks, positions = [], []
    pictures: list[MaskPicture] = []
    for number, one in enumerate(built):
        N, width = len(one.tree), one.prefix + len(one.tree)
        if one.inputs.mask.shape != (N, width) or one.inputs.positions.shape != (N,):
            problem = f"tree {number} of {N} nodes after {one.prefix} tokens got a mask {list(one.inputs.mask.shape)} and "
            problem += f"positions {list(one.inputs.positions.shape)}; [{N}, {width}] and [{N}] belong to it"
            return [nonsense("TREE-1", name, problem), nonsense("TREE-2", name, problem)]
        where = f"tree {number} (parents {list(one.tree.parents)}, prefix {one.prefix})"
        wanted = np.concatenate([np.ones((N, one.prefix), bool), one.tree.ancestor_mask()], axis=1)
        wrong = np.argwhere(one.inputs.mask.astype(bool) != wanted)
        if len(wrong):
            pictures.append(mask_picture(where, one.prefix, one.tree.parents, wanted, one.inputs.mask))
        for node, column in wrong:
            seen = f"prefix token {column}" if column < one.prefix else f"node {column - one.prefix}"
            words = {True: "seen", False: "not seen"}
            expected, found = words[bool(wanted[node, column])], words[bool(one.inputs.mask[node, column])]
            masks.append(Place(f"{where}, node {node} looking at {seen}", expected, found))
        for node, (depth, found_at) in enumerate(zip(one.tree.position_ids(one.prefix), one.inputs.positions)):
            if depth != found_at:
                positions.append(Place(f"{where}, node {node}", f"position {depth}", f"position {found_at}"))
    sighted, placed = (
        judged(requirement, name, places, n=len(built), planned=planned, unit="trees", claim=claim)
        for requirement, places, claim in (
            ("TREE-1", masks, "every node sees the prefix, its ancestors and itself"),
            ("TREE-2", positions, "every node stands at prefix + depth"),
        )
    )
    smallest = sorted(pictures, key=lambda picture: len(picture.parents))[:PICTURED]
    return [replace(sighted, pictures=tuple(smallest)), placed]


def sibling_finding(mode: str, drafted: Sequence[TokenTree], rule: str, planned: int) -> Finding:
    """TREE-3: under a rule that needs it, no two siblings hold one token.

    >>> sibling_finding("m", [TokenTree([7, 1, 1], [-1, 0, 0])], "target_only", planned=1).violations
    ('tree 0, node 2: expected another token than its sibling 1, found token 1 again',)
    """
    if rule not in DISTINCT_RULES:
        return not_exposed("TREE-3", mode, f"a rule that needs distinct siblings (it declares {rule!r})")
    places = []
    for number, tree in enumerate(drafted):
        first: dict[tuple[int, int], int] = {}
        for node, (token, parent) in enumerate(zip(tree.tokens, tree.parents)):
            elder = first.setdefault((parent, token), node)
            if elder != node:
                where = f"tree {number}, node {node}"
                places.append(Place(where, f"another token than its sibling {elder}", f"token {token} again"))
    claim = "no two siblings hold one token"
    return judged("TREE-3", mode, places, n=len(drafted), planned=planned, unit="trees", claim=claim)


@dataclass(frozen=True)
class GreedyTree:
    """A tree verified at temperature 0: logits or laws `[N, V]`, the accepted path, and the token emitted after it."""

    tree: TokenTree
    logits: np.ndarray
    path: tuple[int, ...]
    next_token: int


def at_temperature_0(verifier: TreeVerifier, number: int, seed: int) -> list[GreedyTree]:
    """`number` trees whose target is certain at every node, as a verification function decided them.

    Siblings are distinct, and half of the draft's weight lies on the target's token, so that several levels are often accepted.
    """
    rng = np.random.default_rng([seed, 6])
    laws = make_laws(1, max(map(len, SHAPES)), 8, rng)
    certain = np.eye(8)[laws.p.argmax(axis=-1)]
    laws = ContextLaws(certain, (certain + laws.q) / 2, laws.kinds)
    found = []
    for place, shape in enumerate(SHAPES):
        rows = len(range(place, number, len(SHAPES)))
        trial = draw_trial(laws, shape, rows, rng, distinct=True)
        q = trial.q if verifier.rule in NEEDS_LAWS else None
        uniforms = rng.random((rows, len(shape))) if verifier.takes_uniforms else None
        parents = np.tile(np.array(shape), (rows, 1))
        answer = verifier.verify(trial.p, q, trial.tokens, parents, uniforms=uniforms, seed=seed + place)
        for row in range(rows):
            path = () if answer.path is None else tuple(node for node in answer.path[row].tolist() if node >= 0)
            tree = TokenTree(trial.tokens[row].tolist(), shape)
            found.append(GreedyTree(tree, trial.p[row], path, int(answer.next_token[row])))
    return found


def longest_path_finding(mode: str, verified: Sequence[GreedyTree], planned: int) -> Finding:
    """TREE-4: the longest path of the target's best tokens is kept. Paths that spell the same tokens are the same path.

    >>> chain = TokenTree([7, 1, 0], parents=[-1, 0, 1])
    >>> one = GreedyTree(chain, np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]]), path=(1,), next_token=0)
    >>> longest_path_finding("m", [one], planned=1).violations
    ('tree 0, path (1,): expected path (1, 2), tokens [1, 0, 0], found tokens [1, 0]',)
    """
    places = []
    for number, one in enumerate(verified):
        wanted = greedy(list(one.logits), Draft.chosen(one.tree.tokens, one.tree), SampledChance(0))
        expected = [one.tree.tokens[node] for node in wanted.path] + [wanted.next_token]
        outside = [node for node in one.path if not 0 < node < len(one.tree)]
        if outside or one.path != one.tree.path(one.path[-1] if one.path else 0):
            places.append(Place(f"tree {number}", f"path {wanted.path}", f"path {one.path}, which is no branch of the tree"))
            continue
        found = [one.tree.tokens[node] for node in one.path] + [one.next_token]
        if found != expected:
            where = f"tree {number}, path {one.path}"
            places.append(Place(where, f"path {wanted.path}, tokens {expected}", f"tokens {found}"))
    claim = "the longest path of the target's best tokens is kept"
    return judged("TREE-4", mode, places, n=len(verified), planned=planned, unit="trees", claim=claim)


def node_logits_finding(mode: str, rows: Logits, margin: Margin, planned: int, names: Sequence[str] = ()) -> Finding:
    """TREE-5: logits `[n, V]` at nodes, computed together, are those of their paths alone. names: as "tree 3, node 5"."""
    return same_logits("TREE-5", mode, rows, margin, planned, names)


def of_width_one(tree: TreeVerifier, chain: ChainVerifier, rows: int, seed: int) -> tuple[VerifiedBatch, VerifiedBatch]:
    """What both decide about the same chains of three drafts from the same numbers, less the rows that stand on an edge.

    On an edge a decision turns where the numbers change by a part in 100,000: a rule computed in float32 may lawfully do so.
    """
    rng = np.random.default_rng([seed, 7])
    trial, u = draw_trial(make_laws(4, 4, 8, rng), (-1, 0, 1, 2), rows, rng), rng.random((rows, 4))
    has_laws = tree.rule in NEEDS_LAWS
    parents: Ints = np.tile(np.array(trial.parents), (rows, 1))
    q, in_chains = (trial.q, trial.q[:, 1:]) if has_laws else (None, None)
    one = tree.verify(trial.p, q, trial.tokens, parents, uniforms=u, seed=seed)
    drafts = trial.tokens[:, 1:]
    decided = [
        chain.verify(trial.p, in_chains, drafts, uniforms=np.minimum(u * nudge, 1 - 1e-12), seed=seed)
        for nudge in (1.0, 1 - 1e-5, 1 + 1e-5)
    ]
    usual = decided[0]
    steady = np.all([(o.accepted == usual.accepted) & (o.next_token == usual.next_token) for o in decided], axis=0)
    return _rows(one, steady), _rows(usual, steady)


def _rows(batch: VerifiedBatch, kept: npt.NDArray[np.bool_]) -> VerifiedBatch:
    return VerifiedBatch(batch.accepted[kept], batch.next_token[kept])


def width_one_finding(name: str, tree: VerifiedBatch, chain: VerifiedBatch, planned: int) -> Finding:
    """TREE-6: from the same numbers, a tree of width 1 is decided as the chain that it is.

    >>> one, other = (VerifiedBatch(np.array([accepted]), np.array([5])) for accepted in (2, 3))
    >>> width_one_finding("m", tree=one, chain=other, planned=1).violations
    ('row 0, accepted: expected 3, found 2',)
    """
    places = []
    for field in ("accepted", "next_token"):
        one: Ints = getattr(chain, field)
        other: Ints = getattr(tree, field)
        if one.shape != other.shape:
            return nonsense("TREE-6", name, f"{field} has {other.shape} rows, not {one.shape}")
        places += [Place(f"row {row}, {field}", one[row], other[row]) for row in np.flatnonzero(one != other)]
    claim = "a tree of width 1 is decided as the chain that it is"
    return judged("TREE-6", name, places, n=len(chain.accepted), planned=planned, unit="rows", claim=claim)
