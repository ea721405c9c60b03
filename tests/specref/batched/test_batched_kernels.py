"""`backend="kernels"` runs our own kernels on the same laws and numbers; away from edges they decide as the torch path does."""

from __future__ import annotations

import secrets

import numpy as np
import pytest
import torch
from batched_rows import random_chains

from specref.batched import Drafts, Trees, verify
from specref.batched import chain as batched_chain
from specref.batched import tree as batched_tree

# float32 logits of a law, and 2^-24 steps of u: how often two such paths may differ on rows without coarse numbers. They do on
# fewer than 1 row in 20,000, so that of 120 rows and more, of which 3 must differ, too many do less than once in 1e7 runs.
AT_EDGES = 0.01


def off_edges(rng, shape):
    """Odd multiples of 2^-24, far from the coarse probabilities in which random laws come."""
    return (2 * rng.integers(2**10, 2**23 - 2**10, shape) + 1) * 2.0**-24


@pytest.mark.parametrize("rule", [batched_chain.ratio, batched_chain.one_hot_ratio])
def test_chain_kernels_decide_as_torch_does(rule) -> None:
    rng = np.random.default_rng(secrets.randbits(64))
    batch = random_chains(rng, B=300, k=3, V=33)
    batch.u = off_edges(rng, batch.u.shape)
    p, u = torch.from_numpy(batch.p), torch.from_numpy(batch.u)
    plain, kernel = (verify(rule, p, batch.drafts, u, backend=backend) for backend in ("torch", "kernels"))
    # where p and q are equal but for an ulp, float32 sees no residual where float64 does: such rows are drawn otherwise
    told_apart = ~(torch.from_numpy(np.isclose(batch.p[:, :-1], batch.q, atol=1e-6).all(axis=2)).any(dim=1))
    same = (plain.accepted == kernel.accepted) & (plain.next_token == kernel.next_token)
    assert same[told_apart].double().mean() >= 1 - 2 * AT_EDGES


def distinct_trees(rng, B, N, V):
    """Trees whose siblings differ, drawn without replacement from flat laws."""
    parents = np.concatenate([np.full((B, 1), -1), rng.integers(0, np.arange(1, N), (B, N - 1))], axis=1)
    p, after = rng.dirichlet(np.ones(V), (B, N)), rng.dirichlet(np.ones(V), (B, N))
    tokens, q, rows = np.zeros((B, N), int), np.full((B, N, V), 1 / V), np.arange(B)
    for n in range(1, N):
        left = after[rows, parents[:, n]]
        q[:, n] = left / left.sum(axis=1, keepdims=True)
        tokens[:, n] = (q[:, n].cumsum(axis=1) > rng.random((B, 1)) * 0.999).argmax(axis=1)
        after[rows, parents[:, n], tokens[:, n]] = 0
    return torch.from_numpy(p), Trees(*map(torch.from_numpy, (tokens, parents, q))), torch.from_numpy(off_edges(rng, (B, N)))


@pytest.mark.parametrize(
    ("rule", "settings"),
    [
        (batched_tree.greedy, {}),
        (batched_tree.sequential_one_hot, {}),
        (batched_tree.recursive_rejection, {"replacement": False}),
    ],
)
def test_tree_kernels_decide_as_torch_does(rule, settings) -> None:
    p, trees, u = distinct_trees(np.random.default_rng(secrets.randbits(64)), B=120, N=8, V=20)
    plain, kernel = verify(rule, p, trees, u), verify(rule, p, trees, u, backend="kernels", **settings)
    same = (
        (plain.accepted == kernel.accepted) & (plain.next_token == kernel.next_token) & (plain.path == kernel.path).all(dim=1)
    )
    assert same.double().mean() >= 1 - 2 * AT_EDGES


def test_a_rule_without_a_kernel() -> None:
    with pytest.raises(ValueError, match="token_matching has no kernel"):
        verify(
            batched_chain.token_matching,
            torch.ones(1, 1, 2),
            Drafts(torch.zeros(1, 0).long()),
            torch.zeros(1, 1),
            backend="kernels",
        )
