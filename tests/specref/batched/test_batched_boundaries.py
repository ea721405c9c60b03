"""Decisions exactly on an edge: they go one stated way, whatever the batch, and the plain reference goes the same way.

u q = p rejects, because u q < p is asked. u total = a cumulative weight picks the next token of positive weight, because the
first cumulative weight that *exceeds* u total is asked for; total is the last cumulative weight in index order.
"""

from __future__ import annotations

import secrets

import numpy as np
import pytest
import torch
from batched_rows import STEP, ChainBatch, TreeBatch, assert_same, random_laws

from specref.batched import block as batched_block
from specref.batched import chain as batched_chain
from specref.batched import laws as batched_laws
from specref.batched import tree as batched_tree
from specref.rules import block, chain, tree

WHOLE = 2**24


@pytest.fixture
def rng():
    return np.random.default_rng(secrets.randbits(64))


def parts(rng, rows: int, V: int, whole: int):
    """`[rows, V]` integers from 0 up that sum to `whole`."""
    cuts = np.sort(rng.integers(0, whole + 1, (rows, V - 1)), axis=1)
    return np.diff(cuts, axis=1, prepend=0, append=whole)


def one_draft(p, q, tokens, u) -> ChainBatch:
    """k = 1, the same p after the draft."""
    return ChainBatch(np.stack([p, p], axis=1), q[:, None], tokens[:, None], np.ones(len(p), int), u)


def test_u_q_equal_to_p_rejects(rng) -> None:
    """p(x) = u q(x) exactly, and a rejection although p/q is a millionth above or below there."""
    B, V = 600, 6
    q = parts(rng, B, V, 2**20) / 2**20
    tokens = q.argmax(axis=1)
    u = rng.integers(1, WHOLE, (B, 2)) * STEP
    rows = np.arange(B)
    p = random_laws(rng, B, V)
    p[rows, tokens] = 0
    p[rows, (tokens + 1) % V] += 0.01
    p *= (1 - u[:, :1] * q[rows, tokens][:, None]) / p.sum(axis=1, keepdims=True)
    p[rows, tokens] = u[:, 0] * q[rows, tokens]  # 24 and 20 bits: no rounding
    batch = one_draft(p, q, tokens, u)
    assert (batch.run(batched_chain.ratio).accepted == 0).all()
    batch.u[:, 0] -= STEP
    assert (batch.run(batched_chain.ratio).accepted == 1).all()
    batch.u[:, 0] += STEP
    for batched, plain in ((batched_chain.ratio, chain.ratio), (batched_block.block, block.block)):
        assert_same(batch, batched, plain, "u q = p")


def test_u_equal_to_p_rejects_a_chosen_token(rng) -> None:
    """p(x) = u exactly, for chains and for trees that try a chosen token."""
    B, V = 400, 6
    weights = parts(rng, B, V, WHOLE)
    tokens = weights.argmax(axis=1)
    u = rng.integers(0, WHOLE, (B, 2)) * STEP
    u[:, 0] = weights[np.arange(B), tokens] * STEP % 1
    batch = one_draft(weights * STEP, weights * STEP, tokens, u)
    assert (batch.run(batched_chain.one_hot_ratio).accepted == (u[:, 0] == 0)).all()
    assert_same(batch, batched_chain.one_hot_ratio, chain.one_hot_ratio, "u = p")
    nodes = np.stack([np.zeros_like(tokens), tokens], axis=1)
    parents = np.tile([-1, 0], (B, 1))
    trees = TreeBatch(batch.p, np.concatenate([batch.q, batch.q], axis=1), nodes, parents, np.full(B, 2), u)
    for name in ("sequential_one_hot", "target_only"):
        assert (trees.run(getattr(batched_tree, name)).accepted == (u[:, 0] == 0)).all()
        assert_same(trees, getattr(batched_tree, name), getattr(tree, name), "u = p")


def test_u_total_equal_to_a_cumulative_weight_picks_the_next_token(rng) -> None:
    """The bonus is drawn from p, at u = p_0 + .. + p_j exactly."""
    B, V = 600, 9
    weights = parts(rng, B, V, WHOLE)
    edges = weights.cumsum(axis=1)
    j = np.array([rng.choice(np.flatnonzero(row < WHOLE)) if row[0] < WHOLE else 0 for row in edges])
    u = np.zeros((B, 2))
    u[:, 1] = edges[np.arange(B), j] * STEP % 1
    batch = one_draft(weights * STEP, weights * STEP, weights.argmax(axis=1), u)  # p = q and u = 0: accepted
    result = batch.run(batched_chain.ratio)
    next_with_weight = [np.flatnonzero(row * STEP > number)[0] for row, number in zip(edges, u[:, 1])]
    assert (result.accepted == 1).all()
    assert result.next_token.tolist() == next_with_weight
    assert_same(batch, batched_chain.ratio, chain.ratio, "u total = c")
    matching = batch.run(batched_chain.token_matching)
    assert_same(batch, batched_chain.token_matching, chain.token_matching, "u total = c")
    assert (matching.status == 0).all()


def test_the_same_in_the_residual(rng) -> None:
    """After a rejection, at u times the residual's mass (a sixteenth, so that the product is exact) = r_0 + .. + r_j."""
    B, V, mass = 600, 12, WHOLE // 16
    more, less, both = parts(rng, B, V // 2, mass), parts(rng, B, V // 2, mass), parts(rng, B, V, WHOLE - mass)
    p, q = both.copy(), both.copy()
    p[:, ::2] += more
    q[:, 1::2] += less
    tokens = 2 * less.argmax(axis=1) + 1  # p < q there
    edges = more.cumsum(axis=1)
    j = rng.integers(0, V // 2, B)
    at = edges[np.arange(B), j] % mass
    u = np.stack([np.full(B, 1 - STEP), at / mass], axis=1)
    batch = one_draft(p * STEP, q * STEP, tokens, u)
    rejected = batch.run(batched_chain.ratio)
    assert_same(batch, batched_chain.ratio, chain.ratio, "u total = c of the residual")
    hit = rejected.accepted.numpy() == 0
    assert hit.mean() > 0.9  # u < 1 cannot reject where p and q differ by less than 2^-24 of q
    wanted = 2 * np.array([np.flatnonzero(row > edge)[0] for row, edge in zip(edges, at)])
    assert (rejected.next_token.numpy() == wanted)[hit].all()


def edge_numbers(p):
    """For laws `[B, V]` with rounding sums: numbers u with u * total == some cumulative weight, rounding included; else NaN."""
    cumulative = p.cumsum(axis=1)
    total = cumulative[:, -1]
    middle = cumulative[np.arange(len(p)), (cumulative > total[:, None] / 2).argmax(axis=1)]
    found = np.full(len(p), np.nan)
    for u in (middle / total, np.nextafter(middle / total, 0), np.nextafter(middle / total, 1)):
        found = np.where((u * total == middle) & (u < 1), u, found)
    return found


def test_the_order_of_summation_decides(rng) -> None:
    """u total = c where sums round: total must be the last cumulative sum in index order, not another sum of these numbers."""
    p = random_laws(rng, 2000, 300)
    numbers = edge_numbers(p)
    p, numbers = p[~np.isnan(numbers)], numbers[~np.isnan(numbers)]
    B = len(p)
    assert B >= 1000
    batch = ChainBatch(p[:, None], np.empty((B, 0, 300)), np.empty((B, 0), int), np.zeros(B, int), numbers[:, None])
    assert_same(batch, batched_chain.ratio, chain.ratio, "u total = c, rounded")
    assert_same(batch, batched_chain.token_matching, chain.token_matching, "u total = c, rounded")


def test_another_sum_would_be_seen(monkeypatch, rng) -> None:
    """The planted rows tell the last cumulative sum from `.sum()`."""

    def picks_with_sum(weights, u):
        edge = (u * weights.sum(dim=-1)).unsqueeze(-1)
        return torch.searchsorted(weights.cumsum(dim=-1), edge, right=True).squeeze(-1).clamp(max=weights.shape[-1] - 1)

    monkeypatch.setattr(batched_chain, "picks", picks_with_sum)
    with pytest.raises(AssertionError, match="the reference decides"):
        test_the_order_of_summation_decides(rng)


def test_a_number_that_rounds_up_to_a_subnormal_total() -> None:
    weights, u = torch.tensor([[0.0, 5e-324, 0.0]], dtype=torch.float64), torch.tensor([1 - 2.0**-24], dtype=torch.float64)
    assert batched_laws.picks(weights, u).tolist() == [1]


def test_torch_adds_up_as_numpy_does(rng) -> None:
    rows = rng.random((50, 4096))
    assert (torch.from_numpy(rows).cumsum(dim=-1).numpy() == rows.cumsum(axis=-1)).all()
