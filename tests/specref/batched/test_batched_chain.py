"""Chain and block rules over a batch decide, row by row, what the plain reference decides on the same uniforms."""

from __future__ import annotations

import secrets

import numpy as np
import pytest
import torch
from batched_rows import assert_same, random_chains, sizes

from specref.batched import block as batched_block
from specref.batched import chain as batched_chain
from specref.batched import typical as batched_typical
from specref.rules import block, chain, typical

# rule, settings, and its share of a million rows in the long test
RULES = [
    ("ratio", batched_chain.ratio, chain.ratio, {}, 400_000),
    ("token_matching", batched_chain.token_matching, chain.token_matching, {}, 100_000),
    ("one_hot_ratio", batched_chain.one_hot_ratio, chain.one_hot_ratio, {}, 100_000),
    ("greedy", batched_chain.greedy, chain.greedy, {}, 100_000),
    ("block", batched_block.block, block.block, {}, 200_000),
    ("ensemble", batched_typical.ensemble, typical.ensemble, {"weight": 0.7}, 50_000),
    ("lenient", batched_typical.lenient, typical.lenient, {"lenience": 0.6}, 50_000),
]
each_rule = pytest.mark.parametrize(
    ("batched", "plain", "settings", "share"), [one[1:] for one in RULES], ids=[one[0] for one in RULES]
)


def rows_agree(batched, plain, settings, rows: int, vocabularies: list[int], B: int) -> None:
    seed, done = secrets.randbits(64), 0
    rng = np.random.default_rng(seed)
    while done < rows:
        k, V = int(rng.integers(1, 9)), sizes(rng, vocabularies)
        done += assert_same(
            random_chains(rng, B, k, V), batched, plain, f"seed {seed} after {done} rows, k={k}, V={V}", **settings
        )


@each_rule
def test_random_rows_agree(batched, plain, settings, share) -> None:
    rows_agree(batched, plain, settings, 2000, [1, 2, 3, 5, 17, 64], B=250)
    rows_agree(batched, plain, settings, 40, [4096], B=20)


@pytest.mark.long
@each_rule
def test_a_million_random_rows_agree(batched, plain, settings, share) -> None:
    rows_agree(batched, plain, settings, share, [1, 2, 3, 5, 9, 17, 64], B=500)
    rows_agree(batched, plain, settings, 400, [4096, 32_000], B=10)


def test_no_draft_at_all() -> None:
    """A draft may be empty: k = 0."""
    seed = secrets.randbits(64)
    batch = random_chains(np.random.default_rng(seed), B=100, k=0, V=7)
    for _, batched, plain, settings, _ in RULES:
        assert_same(batch, batched, plain, f"seed {seed}", **settings)


def test_an_empty_batch() -> None:
    batch = random_chains(np.random.default_rng(0), B=0, k=3, V=7)
    for _, batched, _, settings, _ in RULES:
        assert batch.run(batched, **settings).rows() == []


def test_a_row_does_not_depend_on_its_batch() -> None:
    """Rows in another order, or alone, decide the same."""
    rng = np.random.default_rng(secrets.randbits(64))
    batch = random_chains(rng, B=60, k=4, V=17)
    order = rng.permutation(60)
    for _, batched, _, settings, _ in RULES:
        together = batch.run(batched, **settings)
        shuffled = type(batch)(batch.p[order], batch.q[order], batch.tokens[order], batch.count[order], batch.u[order])
        assert torch.equal(shuffled.run(batched, **settings).next_token, together.next_token[order])
        alone = type(batch)(batch.p[7:8], batch.q[7:8], batch.tokens[7:8], batch.count[7:8], batch.u[7:8])
        assert alone.run(batched, **settings).rows() == together.rows()[7:8]


# ---- faults that the comparison must see ------------------------------------------------------------------------------------


def at_most(numerator, denominator, u):
    return u * denominator <= numerator


def picks_from_the_left(weights, u):
    cumulative = weights.cumsum(dim=-1)
    return torch.searchsorted(cumulative, (u * cumulative[..., -1]).unsqueeze(-1)).squeeze(-1)


def unclamped_residual(p, q):
    return p - q


def residual_or_zeros(p, q):
    return (p - q).clamp(min=0)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("accepts", at_most),
        ("picks", picks_from_the_left),
        ("residual", unclamped_residual),
        ("residual", residual_or_zeros),
        ("leading", lambda flags: flags.long().sum(dim=-1)),
        ("law_at", lambda laws, index: laws[:, 0]),
    ],
)
def test_planted_faults_are_seen(monkeypatch, name, fault) -> None:
    monkeypatch.setattr(batched_chain, name, fault)
    with pytest.raises(AssertionError, match="the reference decides"):
        rows_agree(batched_chain.ratio, chain.ratio, {}, 20_000, [2, 3, 5, 17], B=500)
