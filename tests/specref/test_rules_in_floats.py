"""Every rule on floating-point laws that rounding makes awkward: never an error, never a token that the target forbids."""

from __future__ import annotations

import secrets
from functools import partial

import numpy as np
import pytest

from specref.chance import ReplayedChance, SampledChance
from specref.draft import Draft
from specref.laws import NO_LAW, norm
from specref.rules.block import block
from specref.rules.chain import greedy, one_hot_ratio, ratio, token_matching
from specref.rules.tree import greedy as greedy_on_tree
from specref.rules.tree import recursive_rejection, sequential_one_hot, target_only, traversal
from specref.rules.typical import typical
from specref.tree import TokenTree, laws_without_replacement

CHAIN_RULES = [ratio, token_matching, one_hot_ratio, greedy, block]
TREE_RULES = {
    "greedy": greedy_on_tree,
    "sequential_one_hot": sequential_one_hot,
    "target_only": target_only,
    "recursive_rejection": recursive_rejection,
    "traversal": traversal,
    "typical": partial(typical, sampled=True),
}
EXTREMES = (0.0, 2.0**-53, 0.5, 1 - 2.0**-53)


def nearly_equal(rng: np.random.Generator, V: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Two softmaxes that differ by rounding alone, some entries cut to zero in both: p < q everywhere is common."""
    logits = rng.normal(size=V).astype(np.float32) * rng.choice([0.1, 3.0, 30.0])
    weights = np.exp(logits - logits.max())
    weights[rng.random(V) < 0.2] = 0
    weights[rng.integers(V)] = 1
    p = weights / weights.sum()
    q = (p / p.sum(dtype=np.float32)).astype(np.float32)
    return norm(p.astype(np.float64)), norm(q.astype(np.float64) * (1 + rng.choice([0, 1e-7]) * rng.random(V)))


def chances(rng: np.random.Generator, slots) -> list:
    extreme = [ReplayedChance({slot: float(rng.choice(EXTREMES)) for slot in slots}) for _ in range(4)]
    return [*extreme, SampledChance(int(rng.integers(2**32)))]


@pytest.mark.parametrize("rule", CHAIN_RULES, ids=lambda rule: rule.__name__)
def test_chains(rule) -> None:
    seed = secrets.randbits(32)
    rng = np.random.default_rng(seed)
    slots = [("emit",), *((kind, i) for kind in ("accept", "token") for i in range(4))]
    for _ in range(200):
        rows = [nearly_equal(rng) for _ in range(4)]
        p, q = [row[0] for row in rows], [row[1] for row in rows[:3]]
        draft = Draft.claimed([int(rng.choice(6, p=law)) for law in q], q)
        for chance in chances(rng, slots):
            chance.begin_round(0)
            verdict = rule(p, draft, chance)
            emitted = (*draft.tokens[: verdict.accepted], verdict.next_token)
            assert all(p[i][token] > 0 for i, token in enumerate(emitted)), f"seed {seed}"


@pytest.mark.parametrize("name", TREE_RULES)
def test_trees(name: str) -> None:
    rule = TREE_RULES[name]
    seed = secrets.randbits(32)
    rng = np.random.default_rng(seed)
    parents = [-1, 0, 0, 1, 1, 2]
    slots = [("emit",), *(("accept", node) for node in range(6))]
    for _ in range(150):
        rows = [nearly_equal(rng) for _ in parents]
        p = [row[0] for row in rows]
        tokens = [0] * 6
        for first, second, row in ((1, 2, 0), (3, 4, 1), (5, None, 2)):
            drawn = rng.choice(6, p=rows[row][1], size=2)
            tokens[first] = int(drawn[0])
            if second is not None:
                left = rows[row][1].copy()
                left[drawn[0]] = 0
                if not left.any():
                    break
                tokens[second] = int(rng.choice(6, p=norm(left)))
        else:
            tree = TokenTree(tokens, parents)
            draft = Draft.claimed(tokens, laws_without_replacement(tree, [row[1] for row in rows]), tree)
            assert draft.laws[0] is NO_LAW
            for chance in chances(rng, slots):
                verdict = rule(p, draft, chance)
                at = 0
                for node in verdict.path:
                    assert p[at][tree.tokens[node]] > 0, f"seed {seed}"
                    at = node
                assert p[at][verdict.next_token] > 0, f"seed {seed}"


def test_a_draft_equal_to_the_target_is_kept_whatever_the_number() -> None:
    rng = np.random.default_rng(secrets.randbits(32))
    for _ in range(100):
        rows = [nearly_equal(rng)[0] for _ in range(4)]
        draft = Draft.claimed([int(rng.choice(6, p=row)) for row in rows[:3]], rows[:3])
        for u in EXTREMES:
            chance = ReplayedChance({("accept", i): u for i in range(3)} | {("emit",): u})
            assert ratio(rows, draft, chance).accepted == 3
            chance.begin_round(0)
            assert block(rows, draft, chance).accepted == 3
            tree = TokenTree.chain(0, draft.tokens)
            numbers = {("accept", node): u for node in range(4)} | {("emit",): u}
            assert traversal(rows, Draft.claimed(tree.tokens, [NO_LAW, *rows[:3]], tree), ReplayedChance(numbers)).accepted == 3
