"""Random batches that show every kind of row, and the plain reference run on them row by row.

A batch is made anew from `seed`; what a failing test prints is enough to make it again. Every uniform is a multiple of 2^-24.
What is padding holds NaN and token ids out of range, so that nothing may look at it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from specref import rules
from specref.batched import Drafts, Trees, VerifiedRows
from specref.chance import ReplayedChance
from specref.draft import Draft
from specref.tree import BadTree, TokenTree

Array = np.ndarray[Any, Any]
STEP = 2.0**-24


def random_uniforms(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Multiples of 2^-24 in [0, 1), some of them 0, the largest, or coarse (so that they meet edges)."""
    fine = rng.integers(0, 2**24, shape)
    coarse = rng.integers(0, 16, shape) << 20
    kind = rng.integers(0, 20, shape)
    return np.select([kind == 0, kind == 1, kind < 7], [np.zeros(shape, int), np.full(shape, 2**24 - 1), coarse], fine) * STEP


def random_laws(rng: np.random.Generator, rows: int, V: int) -> Array:
    """`[rows, V]`: flat, peaked, with zeros, with ties, one-hot, truncated to a few tokens, or in sixteenths."""
    flat = rng.exponential(size=(rows, V))
    peaked = np.exp(4 * rng.standard_normal((rows, V)))
    holes = flat * (rng.random((rows, V)) < 0.4)
    ties = rng.integers(1, 3, (rows, V)).astype(float)
    certain = (np.arange(V) == rng.integers(0, V, (rows, 1))).astype(float)
    truncated = np.where(peaked >= np.sort(peaked, axis=1)[:, [-min(V, 5)]], peaked, 0)
    sixteenths = np.zeros((rows, V))
    np.add.at(sixteenths, (np.arange(rows)[:, None], rng.integers(0, V, (rows, 16))), 1 / 16)
    kind = rng.integers(0, 7, (rows, 1))
    weights = np.select([kind == i for i in range(7)], [flat, peaked, holes, ties, certain, truncated, sixteenths])
    weights = np.where(weights.sum(axis=1, keepdims=True) > 0, weights, certain)
    return weights / weights.cumsum(axis=1)[:, -1:]


def random_drafts_for(rng: np.random.Generator, p: Array) -> Array:
    """A draft law for each row of p `[rows, V]`: p itself, p but for an ulp, disjoint, upside down, mixed or unrelated."""
    rows, V = p.shape
    unrelated = random_laws(rng, rows, V)
    nearly = p * (1 + rng.integers(-1, 2, (rows, V)) * 2.0**-52)
    outside = (p == 0) * unrelated.max(axis=1, keepdims=True)
    disjoint = np.where(outside.any(axis=1, keepdims=True), outside / np.maximum(outside.sum(axis=1, keepdims=True), STEP), p)
    upside_down = p.max(axis=1, keepdims=True) - p + 1 / V
    upside_down /= upside_down.sum(axis=1, keepdims=True)
    mixed = 0.75 * p + 0.25 * unrelated
    kind = rng.integers(0, 8, (rows, 1))
    return np.select([kind == i for i in range(5)], [p, nearly, disjoint, upside_down, mixed], unrelated)


def random_tokens(rng: np.random.Generator, q: Array) -> Array:
    """A token for each row of q `[rows, V]`: drawn from it, or, for one in eight, any (which q may not even allow)."""
    drawn = (q.cumsum(axis=1) > rng.random((len(q), 1)) * q.sum(axis=1, keepdims=True)).argmax(axis=1)
    return np.where(rng.random(len(q)) < 0.125, rng.integers(0, q.shape[1], len(q)), drawn)


@dataclass
class ChainBatch:
    """p `[B, k+1, V]`, q `[B, k, V]`, tokens `[B, k]`, count `[B]`, u `[B, k+1]`."""

    p: Array
    q: Array
    tokens: Array
    count: Array
    u: Array

    @property
    def drafts(self) -> Drafts:
        return Drafts(torch.from_numpy(self.tokens), torch.from_numpy(self.q), torch.from_numpy(self.count))

    def run(self, rule: Callable[..., VerifiedRows], **settings: Any) -> VerifiedRows:
        return rule(torch.from_numpy(self.p), self.drafts, torch.from_numpy(self.u), **settings)

    def reference(self, rule: rules.Rule, b: int, **settings: Any) -> rules.Verified:
        n, u = int(self.count[b]), self.u[b].tolist()
        uniforms = {("accept", i): u[i] for i in range(n)} | {("token", i): u[i] for i in range(n + 1)} | {("emit",): u[-1]}
        draft = Draft(self.tokens[b, :n].tolist(), list(self.q[b, :n]), None)
        return rule(list(self.p[b, : n + 1]), draft, ReplayedChance(uniforms), **settings)


def random_chains(rng: np.random.Generator, B: int, k: int, V: int) -> ChainBatch:
    p = random_laws(rng, B * (k + 1), V)
    q = random_drafts_for(rng, p)
    tokens = random_tokens(rng, q)
    p, q, tokens = p.reshape(B, k + 1, V), q.reshape(B, k + 1, V)[:, :k].copy(), tokens.reshape(B, k + 1)[:, :k].copy()
    count = np.where(rng.random(B) < 0.5, k, rng.integers(0, k + 1, B))
    unused = np.arange(k) >= count[:, None]
    p[:, 1:][unused], q[unused] = np.nan, np.nan
    tokens[unused] = rng.choice([-1, -7, V, V + 3], unused.sum())
    return ChainBatch(p, q, tokens, count, random_uniforms(rng, (B, k + 1)))


@dataclass
class TreeBatch:
    """p and q `[B, N, V]`, tokens, parents and u `[B, N]`, count `[B]`."""

    p: Array
    q: Array
    tokens: Array
    parents: Array
    count: Array
    u: Array

    @property
    def trees(self) -> Trees:
        return Trees(*map(torch.from_numpy, (self.tokens, self.parents, self.q, self.count)))

    def run(self, rule: Callable[..., VerifiedRows], **settings: Any) -> VerifiedRows:
        return rule(torch.from_numpy(self.p), self.trees, torch.from_numpy(self.u), **settings)

    def reference(self, rule: rules.Rule, b: int, **settings: Any) -> rules.Verified | None:
        """None where the reference refuses the tree."""
        n, u = int(self.count[b]), self.u[b].tolist()
        uniforms = {("accept", node): u[node - 1] for node in range(1, n)} | {("emit",): u[-1]}
        tree = TokenTree(self.tokens[b, :n].tolist(), self.parents[b, :n].tolist())
        try:
            return rule(
                list(self.p[b, :n]), Draft(tree.tokens, list(self.q[b, :n]), tree), ReplayedChance(uniforms), **settings
            )
        except BadTree:
            return None


def random_trees(rng: np.random.Generator, B: int, N: int, V: int) -> TreeBatch:
    """Trees bushy or deep; siblings drawn independently, without replacement (with their smaller laws), or by anyone."""
    node = np.arange(N)
    bushy = rng.integers(0, np.maximum(node, 1), (B, N))
    deep = np.maximum(node - 1 - rng.integers(0, 3, (B, N)), 0)
    parents = np.where(rng.random((B, 1)) < 0.5, bushy, deep)
    parents[:, 0] = -1
    p = random_laws(rng, B * N, V)
    q_after = random_drafts_for(rng, p).reshape(B, N, V)
    p, q, tokens = p.reshape(B, N, V), np.full((B, N, V), np.nan), np.full((B, N), -1)
    replacement, rows = rng.random(B) < 0.4, np.arange(B)
    for n in range(1, N):
        parent = parents[:, n]
        left = q_after[rows, parent]
        whole = left.sum(axis=1, keepdims=True)
        q[:, n] = np.where(whole > 0, left / np.where(whole > 0, whole, 1), random_laws(rng, B, V))
        tokens[:, n] = random_tokens(rng, q[:, n])
        drawn = np.arange(V) == tokens[:, n, None]
        q_after[rows, parent] = np.where(drawn & ~replacement[:, None], 0, left)
    count = np.where(rng.random(B) < 0.5, N, rng.integers(1, N + 1, B))
    unused = node >= count[:, None]
    p[unused], q[unused] = np.nan, np.nan
    tokens[unused], parents[unused] = V + 9, rng.choice([-3, 0, N + 5], unused.sum())
    return TreeBatch(p, q, tokens, parents, count, random_uniforms(rng, (B, N)))


def assert_same(
    batch: ChainBatch | TreeBatch, batched: Callable[..., VerifiedRows], plain: rules.Rule, what: object, **settings: Any
) -> int:
    """Every row decides as the reference does; returns the number of rows. A row that the reference refuses has a status."""
    result = batch.run(batched, **settings)
    rows, status = result.rows(), result.status.tolist()
    for b, row in enumerate(rows):
        wanted = batch.reference(plain, b, **settings)
        if (wanted is None and status[b] == 0) or (wanted is not None and (row != wanted or status[b])):
            raise AssertionError(f"{what}, row {b}: {row} with status {status[b]}, but the reference decides {wanted}")
    return len(rows)


def sizes(rng: np.random.Generator, choices: Sequence[int]) -> int:
    return int(rng.choice(choices))
