"""How a request speculates: who proposes drafts, how many, and which rule verifies them.

A **proposer** serves one request. Any `specref.generate.Drafter` will do (`WithDrafter`); `DraftModel` is the classical draft
model with a cache of its own, which rounds must keep in step with what was committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias

from specref.chance import Chance
from specref.draft import Draft
from specref.engine.grammar import Matching, masked
from specref.engine.models import CachedModel, read_text
from specref.engine.sampling import processed
from specref.generate import Drafter, NoDrafter
from specref.kv_cache import ContiguousCache, settle, unread
from specref.kv_cache.base import Rows
from specref.laws import Law
from specref.models import Tokens
from specref.processors import NothingLeft, SamplingSettings
from specref.rules import Rule
from specref.rules.chain import token_matching


class Proposer(Protocol):
    """Drafts for one request."""

    def propose(self, committed: Tokens, k: int, chance: Chance) -> Draft:
        """A chain of at most `k` tokens after `committed`, or a tree at most `k` deep whose root is its last token."""

    def constrain(self, matcher: Matching) -> None:
        """Called once, for a request with a grammar: drafts that do not fit are rejected, so it may ask what fits."""

    def settle(self, committed: Tokens) -> None:
        """A round is over, or was given up after drafting: forget what is not committed."""

    def forget(self) -> None:
        """The request loses its memory (it was pre-empted, or has ended): drop every cache entry."""

    def visible(self) -> Rows | None:
        """What its cache holds; None for a proposer without one."""


ProposerFactory: TypeAlias = Callable[[Tokens, SamplingSettings], Proposer]
"""`factory(prompt, settings)` makes the proposer of one request."""


@dataclass(frozen=True)
class Speculation:
    """What a request speculates with.

    rule: verifies. proposer: makes each request's proposer. k: drafts per round, for a tree its depth. nodes: the most drafted
    tokens of a round, `k` unless it is a tree.

    >>> PLAIN.rule.__name__, PLAIN.k
    ('token_matching', 1)

    Raises ValueError for k < 1 or fewer nodes than k.
    """

    rule: Rule
    proposer: ProposerFactory
    k: int
    nodes: int = 0

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"k is {self.k}; speculation drafts 1 token or more a round (use PLAIN to switch it off)")
        object.__setattr__(self, "nodes", self.nodes or self.k)
        if self.nodes < self.k:
            raise ValueError(f"nodes is {self.nodes}; a tree {self.k} deep has {self.k} drafted nodes or more")


class WithDrafter:
    """A proposer that asks a `Drafter`, which keeps no cache for this request.

    >>> from specref.chance import SampledChance
    >>> from specref.drafters.prompt_lookup import PromptLookup
    >>> proposer = WithDrafter(PromptLookup(), (1,), SamplingSettings(max_tokens=9))
    >>> proposer.propose((1, 2, 1), 1, SampledChance(0)).tokens, proposer.visible()
    ((2,), None)
    """

    def __init__(self, drafter: Drafter, prompt: Tokens, settings: SamplingSettings) -> None:
        self.drafter = drafter

    def propose(self, committed: Tokens, k: int, chance: Chance) -> Draft:
        """See `Proposer.propose`."""
        return self.drafter.draft(committed, k, chance)

    def constrain(self, matcher: Matching) -> None:
        """See `Proposer.constrain`: a drafter knows no grammar."""

    def settle(self, committed: Tokens) -> None:
        """See `Proposer.settle`."""

    def forget(self) -> None:
        """See `Proposer.forget`."""

    def visible(self) -> None:
        """See `Proposer.visible`."""


class DraftModel:
    """Draws drafts from a small model that reads through its own cache, under the request's own processors.

    shape: parents `[N]` of the trees to draw; None for chains. replacement: whether siblings are drawn independently. Of a
    chain the model reads each draft but the last. A tree it reads path after path, and keeps none of them.

    >>> from specref.chance import SampledChance
    >>> from specref.engine.models import CachedTableModel
    >>> from specref.models import TableModel
    >>> proposer = DraftModel(CachedTableModel(TableModel(4, seed=2)), (1,), SamplingSettings(max_tokens=9))
    >>> draft = proposer.propose((1, 3), 2, SampledChance(0))
    >>> len(draft.tokens), len(proposer.visible())                # it has read 1, 3 and its first draft
    (2, 3)
    >>> proposer.settle((1, 3, *draft.tokens, 0))                 # both accepted; the second is unread, as is the bonus
    >>> len(proposer.visible())
    3
    """

    def __init__(
        self,
        model: CachedModel,
        prompt: Tokens,
        settings: SamplingSettings,
        *,
        shape: Sequence[int] | None = None,
        replacement: bool = False,
    ) -> None:
        self.model, self.prompt, self.processors = model, prompt, settings.processors()
        self.shape, self.replacement = shape, replacement
        self.cache = ContiguousCache(model.entry_shape, model.dtype)
        self.matcher: Matching | None = None

    def propose(self, committed: Tokens, k: int, chance: Chance) -> Draft:
        """See `Proposer.propose`."""
        if self.shape is None:
            return Draft.drawn(partial(self._after_chain, committed), k, chance)
        shape = cut_to_depth(self.shape, k)
        draft = Draft.drawn_tree(
            partial(self._after_path, committed), committed[-1], shape, chance, replacement=self.replacement
        )
        self._keep(len(committed))
        return draft

    def constrain(self, matcher: Matching) -> None:
        """See `Proposer.constrain`."""
        self.matcher = matcher

    def settle(self, committed: Tokens) -> None:
        """See `Proposer.settle`."""
        settle(self.cache, committed)

    def forget(self) -> None:
        """See `Proposer.forget`."""
        self.cache.rollback(0)

    def visible(self) -> Rows:
        """See `Proposer.visible`."""
        return self.cache.visible()

    def unread(self, committed: Tokens) -> Tokens:
        """What it must read before it can draft: the emitted token, and after full acceptance the last draft before it."""
        return unread(self.cache, committed)

    def law(self, committed: Tokens, drafted: Tokens, new: Tokens) -> Law:
        """Read the tokens `new`, with which `committed + drafted` ends; the law of what follows."""
        reading = read_text(self.model, self.cache.visible(), new)
        self.cache.append(reading.entries)
        output, row = (committed + drafted)[len(self.prompt) :], reading.scores[-1]
        if self.matcher is not None:
            try:
                return processed(masked(row, self.matcher.allowed(drafted)), self.processors, self.prompt, output)
            except NothingLeft:
                pass  # nothing that the grammar allows has any weight here: draft what will be rejected
        return processed(row, self.processors, self.prompt, output)

    def _after_chain(self, committed: Tokens, drafted: Tokens) -> Law:
        return self.law(committed, drafted, drafted[-1:] or self.unread(committed))

    def _after_path(self, committed: Tokens, drafted: Tokens) -> Law:
        if not drafted:  # the root comes first
            return self.law(committed, (), self.unread(committed))
        self._keep(len(committed))
        return self.law(committed, drafted, drafted)

    def _keep(self, length: int) -> None:
        self.cache.rollback(min(length, self.cache.length))


def cut_to_depth(parents: Sequence[int], depth: int) -> tuple[int, ...]:
    """The shape `parents [N]` without the nodes deeper than `depth`.

    >>> cut_to_depth([-1, 0, 1, 0, 3], depth=1)
    (-1, 0, 0)
    """
    depths, number, kept = [0], {-1: -1, 0: 0}, [-1]
    for node, parent in enumerate(parents[1:], start=1):
        depths.append(depths[parent] + 1)
        if depths[node] <= depth:
            number[node] = len(kept)
            kept.append(number[parent])
    return tuple(kept)


def by_drafter(drafter: Drafter) -> ProposerFactory:
    """Proposers that ask `drafter`.

    >>> by_drafter(NoDrafter())((1,), SamplingSettings(max_tokens=9)).visible() is None
    True
    """
    return partial(WithDrafter, drafter)


def by_draft_model(model: CachedModel, shape: Sequence[int] | None = None, *, replacement: bool = False) -> ProposerFactory:
    """Proposers that draw from `model`, each with a cache of its own; see `DraftModel`.

    >>> from specref.engine.models import CachedTableModel
    >>> from specref.models import TableModel
    >>> by_draft_model(CachedTableModel(TableModel(4, seed=2)))((1,), SamplingSettings(max_tokens=9)).visible().shape
    (0, 3)
    """
    return partial(DraftModel, model, shape=shape, replacement=replacement)


PLAIN = Speculation(token_matching, by_drafter(NoDrafter()), k=1)
"""No speculation: every round is one draw from the target, by the numbers that token matching reads."""
