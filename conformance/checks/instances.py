"""Instances of the judge's own making: targets and drafts that bring faults of a verifier out, and draft trees over them.

Every row and every position has laws of its own, so that laws read from a wrong row or position show. The target depends on the
token before, so that a bonus drawn from another context shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from conformance.components import Floats, Ints

KINDS = ("mild", "reversed", "disjoint", "zeros", "one-hot draft", "certain target", "equal", "ties")
"""How q relates to p: near it, p in reverse order, no common token, zeros in both, q or p certain, p = q, many equal values."""


@dataclass(frozen=True)
class ContextLaws:
    """p, q `[M, D, V, V]`: the laws of instance m at position i after a token. kinds `[M]`: index into `KINDS`."""

    p: Floats
    q: Floats
    kinds: Ints

    @property
    def vocabulary(self) -> int:
        """V."""
        return int(self.p.shape[-1])


def make_laws(per_kind: int, depth: int, vocabulary: int, rng: np.random.Generator) -> ContextLaws:
    """`per_kind` instances of each kind, for `depth` positions.

    >>> laws = make_laws(2, depth=3, vocabulary=8, rng=np.random.default_rng(0))
    >>> laws.p.shape, bool(np.allclose(laws.q.sum(axis=-1), 1))
    ((16, 3, 8, 8), True)
    """
    rows = per_kind * depth * vocabulary
    pairs = [_rows(kind, rows, vocabulary, rng) for kind in KINDS]
    shape = (per_kind, depth, vocabulary, vocabulary)
    p, q = (np.concatenate([pair[side].reshape(shape) for pair in pairs]) for side in (0, 1))
    return ContextLaws(p, q, np.repeat(np.arange(len(KINDS)), per_kind))


def _rows(kind: str, n: int, V: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """p and q `[n, V]` of one kind."""
    p, q = rng.gamma(0.7, size=(2, n, V)) + 1e-3
    certain = np.eye(V)[rng.integers(V, size=n)]
    if kind == "mild":
        q = p * np.exp(0.6 * rng.standard_normal((n, V)))
    elif kind == "reversed":
        q = np.empty_like(p)
        order = np.argsort(p, axis=1)
        np.put_along_axis(q, order, np.take_along_axis(p, order[:, ::-1], axis=1), axis=1)
    elif kind in ("disjoint", "zeros"):
        place = rng.permuted(np.tile(np.arange(V), (n, 1)), axis=1)
        keep = place < V // 2 if kind == "disjoint" else place >= V // 4
        p, q = p * keep, q * (~keep if kind == "disjoint" else place < V - V // 4)
    elif kind == "one-hot draft":
        q = certain
    elif kind == "certain target":
        p = certain
    elif kind == "equal":
        q = p
    else:
        levels = 1.0 + np.tile(np.arange(V) % 2, (n, 1))
        p, q = rng.permuted(levels, axis=1), rng.permuted(levels, axis=1)
    return p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class Trial:
    """B draft trees of one shape, with the laws that a verifier is handed.

    parents, depths `[N]`; tokens `[B, N]`, the root's is the token before; p, q `[B, N, V]`: the target's law after each node,
    and the law that each node was drawn from (zeros for the root); instance `[B]`: which of `laws`.
    """

    laws: ContextLaws
    parents: tuple[int, ...]
    depths: Ints
    instance: Ints
    tokens: Ints
    p: Floats
    q: Floats

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def chain(self) -> bool:
        """Whether it has width 1: node i is then draft i - 1."""
        return self.parents == tuple(range(-1, len(self.parents) - 1))

    @property
    def kinds(self) -> Ints:
        """`[B]`: the kind of each row."""
        return self.laws.kinds[self.instance]


def draw_trial(
    laws: ContextLaws,
    parents: Sequence[int],
    rows: int,
    rng: np.random.Generator,
    *,
    distinct: bool = False,
    greedy: bool = False,
) -> Trial:
    """Trees with every node drawn from its law; `distinct`: siblings without replacement. `greedy`: the law's best instead.

    Where elder siblings took all the mass, the next is drawn evenly from the tokens they left: that is then its law.

    >>> laws = make_laws(2, depth=3, vocabulary=8, rng=np.random.default_rng(0))
    >>> trial = draw_trial(laws, (-1, 0, 0, 1), 100, np.random.default_rng(1), distinct=True)
    >>> trial.depths.tolist(), bool((trial.tokens[:, 1] != trial.tokens[:, 2]).all())
    ([0, 1, 1, 2], True)
    """
    N, V = len(parents), laws.vocabulary
    instance = rng.integers(len(laws.kinds), size=rows)
    tokens, p, q = np.zeros((rows, N), np.int64), np.zeros((rows, N, V)), np.zeros((rows, N, V))
    depths = np.zeros(N, np.int64)
    tokens[:, 0] = rng.integers(V, size=rows)
    left: dict[int, Floats] = {}
    for node, parent in enumerate(parents):
        if node:
            depths[node] = depths[parent] + 1
            law = left.get(parent)
            if law is None:
                law = laws.q[instance, depths[parent], tokens[:, parent]]
            q[:, node] = law
            tokens[:, node] = law.argmax(axis=1) if greedy else draw(law, rng.random(rows))
            left[parent] = (
                _without(law, [tokens[:, n] for n in range(1, node + 1) if parents[n] == parent]) if distinct else law
            )
        p[:, node] = laws.p[instance, depths[node], tokens[:, node]]
    return Trial(laws, tuple(parents), depths, instance, tokens, p, q)


def draw(laws: Floats, uniforms: Floats) -> Ints:
    """One token `[n]` from each of `laws [n, V]` by inverse CDF, never one of weight zero.

    >>> draw(np.array([[0.0, 0.5, 0.5]]), np.array([0.0]))
    array([1])
    """
    edges = laws.cumsum(axis=1)
    picked = np.minimum((edges <= (uniforms * edges[:, -1])[:, None]).sum(axis=1), laws.shape[1] - 1)
    return np.asarray(picked, dtype=np.int64)


def _without(law: Floats, elders: Sequence[Ints]) -> Floats:
    rest, rows = law.copy(), np.arange(len(law))
    unused = np.ones_like(law)
    for tokens in elders:
        rest[rows, tokens] = unused[rows, tokens] = 0
    rest = np.where(rest.sum(axis=1, keepdims=True) > 1e-12, rest, unused)
    return np.asarray(rest / rest.sum(axis=1, keepdims=True))
