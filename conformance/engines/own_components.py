"""Our own parts as components under audit: the rules row by row and batched in torch, and the caches behind token ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from conformance.components import Floats, Ints, VerifiedBatch
from specref import batched
from specref.batched import block as batched_block
from specref.batched import chain as batched_chain
from specref.batched import tree as batched_tree
from specref.chance import Chance, ReplayedChance, SampledChance, Slot
from specref.draft import Draft
from specref.kv_cache import ContiguousCache, PagedCache, PagePool, RowCache, StaticCache
from specref.kv_cache.base import Rows
from specref.rules import Rule, Verified, chain, tree
from specref.rules.block import block
from specref.tree import TokenTree

CHAIN_RULES: dict[str, Rule] = {
    "ratio": chain.ratio,
    "token_matching": chain.token_matching,
    "one_hot": chain.one_hot_ratio,
    "block": block,
}
TREE_RULES: dict[str, Rule] = {
    "without_replacement": tree.recursive_rejection,
    "one_hot": tree.sequential_one_hot,
    "target_only": tree.target_only,
    "traversal": tree.traversal,
}
BATCHED_CHAIN_RULES = {
    "ratio": batched_chain.ratio,
    "token_matching": batched_chain.token_matching,
    "one_hot": batched_chain.one_hot_ratio,
    "block": batched_block.block,
}
BATCHED_TREE_RULES = {
    "without_replacement": batched_tree.recursive_rejection,
    "one_hot": batched_tree.sequential_one_hot,
    "target_only": batched_tree.target_only,
    "traversal": batched_tree.traversal,
}


class ReferenceChain:
    """A chain rule of `specref.rules`, one row after the other."""

    trees: Literal[False] = False
    takes_uniforms = True

    def __init__(self, rule: str, function: Rule | None = None, name: str = "") -> None:
        self.rule, self.function = rule, function or CHAIN_RULES[rule]
        self.name = name or f"reference {rule}"

    def verify(self, p: Floats, q: Floats | None, drafts: Ints, *, uniforms: Floats | None, seed: int) -> VerifiedBatch:
        """See `ChainVerifier.verify`."""
        rows = []
        for row, tokens in enumerate(drafts.tolist()):
            draft = Draft.chosen(tokens) if q is None else Draft.claimed(tokens, list(q[row]))
            slot = "token" if self.rule == "token_matching" else "accept"
            rows.append(self.function(list(p[row]), draft, self.chance(slot, uniforms, row, len(tokens), seed)))
        return _batch(rows)

    def chance(self, slot: str, uniforms: Floats | None, row: int, k: int, seed: int) -> Chance:
        """What decides one row."""
        if uniforms is None:
            return SampledChance(seed * 1_000_003 + row)
        numbers: dict[Slot, float] = {(slot, i): float(uniforms[row, i]) for i in range(k)}
        numbers[("token", k) if slot == "token" else ("emit",)] = float(uniforms[row, k])
        return ReplayedChance(numbers)


class ReferenceTree:
    """A tree rule of `specref.rules`, one row after the other."""

    trees: Literal[True] = True
    takes_uniforms = True

    def __init__(self, rule: str, function: Rule | None = None, name: str = "") -> None:
        self.rule, self.function = rule, function or TREE_RULES[rule]
        self.name = name or f"reference tree {rule}"

    def verify(
        self, p: Floats, q: Floats | None, tokens: Ints, parents: Ints, *, uniforms: Floats | None, seed: int
    ) -> VerifiedBatch:
        """See `TreeVerifier.verify`."""
        rows = []
        N = tokens.shape[1]
        for row in range(len(tokens)):
            shape = TokenTree(tokens[row].tolist(), parents[row].tolist())
            draft = Draft.chosen(shape.tokens, shape) if q is None else Draft.claimed(shape.tokens, list(q[row]), shape)
            chance: Chance = SampledChance(seed * 1_000_003 + row)
            if uniforms is not None:
                numbers: dict[Slot, float] = {("accept", n): float(uniforms[row, n - 1]) for n in range(1, N)}
                chance = ReplayedChance({**numbers, ("emit",): float(uniforms[row, N - 1])})
            rows.append(self.function(list(p[row]), draft, chance))
        return _batch(rows, N - 1)


def _batch(rows: list[Verified], width: int | None = None) -> VerifiedBatch:
    accepted, tokens = np.array([row.accepted for row in rows]), np.array([row.next_token for row in rows])
    if width is None:
        return VerifiedBatch(accepted, tokens)
    return VerifiedBatch(accepted, tokens, np.array([[*row.path, *[-1] * (width - len(row.path))] for row in rows]))


class BatchedChain:
    """A chain rule of `specref.batched` on the CPU."""

    trees: Literal[False] = False
    takes_uniforms = True

    def __init__(self, rule: str) -> None:
        self.rule, self.name = rule, f"batched {rule}"

    def verify(self, p: Floats, q: Floats | None, drafts: Ints, *, uniforms: Floats | None, seed: int) -> VerifiedBatch:
        """See `ChainVerifier.verify`."""
        laws = None if q is None else torch.from_numpy(q)
        rows = batched.Drafts(torch.from_numpy(drafts), laws)
        out = BATCHED_CHAIN_RULES[self.rule](torch.from_numpy(p), rows, _numbers(uniforms, drafts.shape[1] + 1, len(p), seed))
        return VerifiedBatch(out.accepted.numpy(), out.next_token.numpy(), refused=out.status.numpy() != 0)


class BatchedTree:
    """A tree rule of `specref.batched` on the CPU."""

    trees: Literal[True] = True
    takes_uniforms = True

    def __init__(self, rule: str) -> None:
        self.rule, self.name = rule, f"batched tree {rule}"

    def verify(
        self, p: Floats, q: Floats | None, tokens: Ints, parents: Ints, *, uniforms: Floats | None, seed: int
    ) -> VerifiedBatch:
        """See `TreeVerifier.verify`."""
        laws = None if q is None else torch.from_numpy(q)
        trees = batched.Trees(torch.from_numpy(tokens), torch.from_numpy(parents), laws)
        out = BATCHED_TREE_RULES[self.rule](torch.from_numpy(p), trees, _numbers(uniforms, tokens.shape[1], len(p), seed))
        return VerifiedBatch(out.accepted.numpy(), out.next_token.numpy(), out.path.numpy(), refused=out.status.numpy() != 0)


def _numbers(uniforms: Floats | None, width: int, rows: int, seed: int) -> torch.Tensor:
    if uniforms is None:
        return torch.rand(rows, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return torch.from_numpy(uniforms)


class TokenCache:
    """A cache of `specref.kv_cache` behind token ids: every entry depends on the token and on all that it can see before it.

    The entry of a token is a hash of its path, a number in [0, 1), so that an entry at a wrong place or after a wrong token
    differs from a fresh one.

    >>> from specref.kv_cache import ContiguousCache
    >>> cache = TokenCache(ContiguousCache())
    >>> cache.append([5, 6, 7])
    >>> cache.rollback(2)
    >>> cache.length
    2
    """

    def __init__(self, rows: RowCache) -> None:
        self.rows = rows
        self.read: list[int] = []
        self._tree: TokenTree | None = None

    @property
    def length(self) -> int:
        """See `KVCache.length`."""
        return self.rows.length

    def append(self, tokens: Sequence[int], parents: Sequence[int] | None = None) -> None:
        """See `KVCache.append`; rows are token ids `[n]`."""
        if parents is None:
            self.rows.append([self._entry((*self.read, *tokens[: i + 1])) for i in range(len(tokens))])
            self.read += tokens
            return
        tree = TokenTree(tokens, parents)
        self.rows.append([self._entry((*self.read, tree.tokens[0], *tree.spells(n))) for n in range(len(tree))], parents)
        self._tree = tree

    def rollback(self, length: int) -> None:
        """See `KVCache.rollback`."""
        self.rows.rollback(length)
        self.read, self._tree = self.read[:length], None

    def gather(self, path: Sequence[int]) -> None:
        """See `KVCache.gather`."""
        assert self._tree is not None
        self.rows.gather(path)
        self.read += [self._tree.tokens[node] for node in (0, *path)]
        self._tree = None

    def visible(self) -> Rows:
        """See `KVCache.visible`."""
        return self.rows.visible()

    @staticmethod
    def _entry(path: Sequence[int]) -> float:
        return SampledChance(0).uniform(tuple(path))


@dataclass
class TokenCaches:
    """A kind of cache of `specref.kv_cache`, behind token ids."""

    name: str
    rows: Callable[[], RowCache]
    trees: bool = True
    tolerance: float = 0.0

    def make(self) -> TokenCache:
        """See `CacheSource.make`."""
        return TokenCache(self.rows())


CACHES = (
    TokenCaches("contiguous cache", ContiguousCache),
    TokenCaches("static cache", lambda: StaticCache(512)),
    TokenCaches("paged cache", lambda: PagedCache(PagePool(128, 4))),
)
