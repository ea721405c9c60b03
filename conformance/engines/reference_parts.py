"""The parts of the reference engine that can be audited alone: its rules, masks, trees in one pass, pages and draft model."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from conformance.components import Component, Floats, Proposal, TreeInputs
from conformance.engines.own_components import CHAIN_RULES, TREE_RULES, ReferenceChain, ReferenceTree
from conformance.protocols import Tokens
from specref.chance import Chance, SampledChance
from specref.draft import Draft
from specref.engine import CachedModel, by_draft_model
from specref.engine.memory import Memory
from specref.engine.models import no_entries, read_text
from specref.engine.request import Request
from specref.engine.rounds import Rounds, check_tokens
from specref.kv_cache import PagedCache, PagePool
from specref.kv_cache.base import KVCache, Rows
from specref.laws import Law, checked, norm
from specref.processors import SamplingSettings
from specref.processors.rows import Row
from specref.rules import Rule, Verified
from specref.tree import TokenTree


def parts(target: CachedModel, draft: CachedModel, tolerance: float) -> list[Component]:
    """All of them. tolerance: how far apart two passes over the same tokens may leave a cache entry."""
    chains = [ReferenceChain(rule, in_a_round(CHAIN_RULES[rule]), f"round, {rule}") for rule in CHAIN_RULES]
    trees = [
        ReferenceTree(rule, in_a_round(TREE_RULES[rule]), f"round of a tree, {rule}")
        for rule in ("without_replacement", "traversal", "one_hot")
    ]
    return [*chains, *trees, EngineInputs(), EngineReader(target), EnginePages(target, tolerance), EngineDrafts(draft)]


def in_a_round(rule: Rule) -> Rule:
    """A rule behind the border that every round has: rows are made laws, and drafted tokens looked at, before it sees them."""

    def verify(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
        check_tokens(draft.tokens, len(p[0]))
        with np.errstate(invalid="ignore"):  # an infinity becomes NaN, which is refused
            laws = [checked(norm(row), "p") for row in p]
        return rule(laws, draft, chance)

    return verify


class EngineInputs:
    """What a round gives to the target's pass over a tree.

    >>> built = EngineInputs().build(2, (5, 6, 7), (-1, 0, 0))
    >>> built.positions.tolist(), built.mask.astype(int).tolist()
    ([2, 3, 3], [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 0, 1]])
    """

    name = "inputs of a round"

    def build(self, prefix: int, tokens: Sequence[int], parents: Sequence[int]) -> TreeInputs:
        """See `MaskBuilder.build`."""
        rounds, tree = Rounds(cast(CachedModel, None), cast(Memory, None)), TokenTree(tokens, parents)
        seen = np.concatenate([np.ones((len(tree), prefix), np.bool_), rounds.mask(tree)], axis=1)
        positions = rounds.positions(cast(Request, SimpleNamespace(read=prefix)), tree)
        return TreeInputs(seen, np.array(positions), np.array(tree.tokens))


class EngineReader:
    """The target behind its cache: a tree in one pass, and a context alone."""

    name = "trees in one pass"

    def __init__(self, model: CachedModel) -> None:
        self.model, self.vocabulary = model, model.vocabulary

    def tree(self, prefix: Tokens, tokens: Tokens, parents: Tokens) -> Floats:
        """See `TreeReader.tree`."""
        past = read_text(self.model, no_entries(self.model), prefix).entries if prefix else no_entries(self.model)
        tree = TokenTree(tokens, parents)
        return _logits(self.model.read(past, tree.tokens, tree.position_ids(len(prefix)), tree.ancestor_mask()).scores)

    def alone(self, context: Tokens) -> Floats:
        """See `TreeReader.alone`."""
        row: Floats = _logits(read_text(self.model, no_entries(self.model), context).scores)[-1]
        return row


def _logits(scores: Sequence[Row]) -> Floats:
    return np.array([np.asarray(row, dtype=np.float64) for row in scores])


class EnginePages:
    """The engine's pages, filled by its target."""

    name = "pages"
    trees = True

    def __init__(self, model: CachedModel, tolerance: float) -> None:
        self.model, self.tolerance = model, tolerance

    def make(self) -> KVCache:
        """See `CacheSource.make`."""
        return cast(KVCache, _Filled(self.model))


class _Filled:
    """A paged cache that takes token ids and reads them with the model, as rounds do."""

    def __init__(self, model: CachedModel) -> None:
        self.model = model
        self.cache = PagedCache(PagePool(128, 4, model.entry_shape, model.dtype))

    @property
    def length(self) -> int:
        return self.cache.length

    def append(self, tokens: Any, parents: Sequence[int] | None = None) -> None:
        if not len(tokens):
            return
        tree = TokenTree.chain(tokens[0], tokens[1:]) if parents is None else TokenTree(tokens, parents)
        seen = self.cache.visible()
        reading = self.model.read(seen, tree.tokens, tree.position_ids(len(seen)), tree.ancestor_mask())
        self.cache.append(reading.entries, parents)

    def rollback(self, length: int) -> None:
        self.cache.rollback(length)

    def gather(self, path: Sequence[int]) -> None:
        self.cache.gather(path)

    def visible(self) -> Rows:
        return self.cache.visible()


class EngineDrafts:
    """The engine's draft model, drawing a chain."""

    name = "draft model"

    def __init__(self, model: CachedModel) -> None:
        self.model = model

    def propose(self, context: Tokens, k: int, seed: int) -> Proposal:
        """See `DraftSource.propose`."""
        proposer = by_draft_model(self.model)(context, SamplingSettings(max_tokens=k + 1))
        chance = SampledChance(seed)
        chance.begin_round(0)
        draft = proposer.propose(context, k, chance)
        return Proposal(draft.tokens, np.array(draft.laws))
