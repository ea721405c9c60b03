"""The reference engine with one part of its rounds broken, for what an audit sees from within."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from conformance.components import Floats, Ints, VerifiedBatch
from conformance.controls.faults.draft_nets import FeatureNet
from conformance.controls.faults.grammars import force
from conformance.engines.own_components import ReferenceChain
from conformance.protocols import Tokens
from specref.chance import Chance
from specref.draft import Draft
from specref.engine import Engine, Grammar, Speculation
from specref.engine.grammar import Allowed, Matching
from specref.engine.memory import Memory
from specref.engine.models import Mask
from specref.engine.request import Request, Step
from specref.engine.rounds import Rounds
from specref.engine.speculation import DraftModel, WithDrafter
from specref.laws import Law
from specref.processors import SamplingSettings
from specref.processors.rows import Row
from specref.rules import Verified
from specref.rules.tree import recursive_rejection
from specref.tree import TokenTree


class OneTooFew(Rounds):
    """Rollback leaves the first rejected draft."""

    def keep(self, request: Request, draft: Draft, path: tuple[int, ...]) -> None:
        request.entries.rollback(min(request.read + 1, request.entries.length))


class DraftKeepsARejectedEntry(Rounds):
    """The draft's cache holds the entry of a rejected draft in the place of the last token that it kept."""

    def settle(self, request: Request) -> None:
        super().settle(request)
        cache = getattr(request.proposer, "cache", None)
        if cache is not None and cache.length > 1:
            rows = cache.visible().copy()
            cache.rollback(cache.length - 1)
            cache.append(rows[-2:-1])


class DraftShrinks(Rounds):
    """The draft's cache loses its first entry in every round."""

    def settle(self, request: Request) -> None:
        super().settle(request)
        cache = getattr(request.proposer, "cache", None)
        if cache is not None:
            rows = cache.visible().copy()
            cache.rollback(0)
            cache.append(rows[1:])


class HashedAmidDrafts(Rounds):
    """Pages are published as soon as they are full, with the drafts that are still in them."""

    def read(self, request: Request, tree: TokenTree, draft: Draft) -> Sequence[Row]:
        scores = super().read(request, tree, draft)
        if draft.tree is None:
            request.entries.publish([*request.committed, *draft.tokens])
        return scores


class PublishedWithARejectedDraft(Rounds):
    """A page that the token after a rejection fills is published while the rejected draft's entry is in its place. The request
    itself goes on in a copy, and is right."""

    def keep(self, request: Request, draft: Draft, path: tuple[int, ...]) -> None:
        if draft.tree is None:
            request.entries.publish(request.committed[: request.entries.length])
        super().keep(request, draft, path)


class DummyRows(Memory):
    """An idle step writes into a published page."""

    def publish(self, request: Request) -> None:
        super().publish(request)
        for page in list(self.pool._page_named.values())[:1]:
            self.pool.storage[page, 0] = 0


class RowsOffByOne(Rounds):
    """Row i of a window is that of the position before."""

    def read(self, request: Request, tree: TokenTree, draft: Draft) -> Sequence[Row]:
        scores = super().read(request, tree, draft)
        return [scores[0], *scores[:-1]]


class LastDraftUnseen(Rounds):
    """The last row of a window does not see the draft before it."""

    def mask(self, tree: TokenTree) -> Mask:
        mask = super().mask(tree).copy()
        if len(tree) > 2:
            mask[-1, -2] = False
        return mask


class FirstUnverified(Rounds):
    """The first draft is certain, whatever the target says."""

    def laws(self, request: Request, tree: TokenTree, scores: Sequence[Row]) -> list[Law]:
        rows = super().laws(request, tree, scores)
        return [np.eye(len(rows[0]))[tree.tokens[1]], *rows[1:]] if len(tree) > 1 else rows


class BonusOfTheRowBefore(Rounds):
    """After full acceptance the bonus is drawn from the row before."""

    def laws(self, request: Request, tree: TokenTree, scores: Sequence[Row]) -> list[Law]:
        rows = super().laws(request, tree, scores)
        return [*rows[:-1], rows[-2]] if len(tree) > 1 and request.matcher is None else rows


class OneBit(Rounds):
    """Where other requests hold pages, a log-probability is one bit off."""

    def report(self, request: Request, step: Step, scores: Sequence[Row]) -> None:
        super().report(request, step, scores)
        if self.memory.pool.users.count(0) < len(self.memory.pool.users) - request.entries.length // 4 - 2:
            request.logprobs[-1] = float(np.nextafter(request.logprobs[-1], 0))


class InSinglePrecision(Rounds):
    """The first request's log-probabilities are rounded, those of the others are not."""

    def report(self, request: Request, step: Step, scores: Sequence[Row]) -> None:
        super().report(request, step, scores)
        if request.number:
            request.logprobs[:] = [float(np.float32(value)) for value in request.logprobs]


class BestUnderTheMask(Rounds):
    """Under a grammar the best of what it allows is certain."""

    def laws(self, request: Request, tree: TokenTree, scores: Sequence[Row]) -> list[Law]:
        rows = super().laws(request, tree, scores)
        return rows if request.matcher is None else [np.eye(len(row))[row.argmax()] for row in rows]


class DraftNotRolledBack(Rounds):
    """The matcher has taken in the draft, and keeps what of it was rejected."""

    def follow(self, request: Request, draft: Draft, emitted: Tokens) -> None:
        force(request, (*draft.tokens, emitted[-1]))


class EndAllowedAnywhere(Rounds):
    """The end is allowed at every drafted position, whether the text is complete there or not."""

    def masks(self, request: Request, tree: TokenTree) -> list[Allowed | None]:
        first, *rest = super().masks(request, tree)
        end = np.isin(np.arange(self.model.vocabulary), request.settings.eos)
        return [first, *(None if mask is None else mask | end for mask in rest)]

    def follow(self, request: Request, draft: Draft, emitted: Tokens) -> None:
        force(request, emitted)


def under_a_grammar(kind: type[Rounds]) -> type[Rounds]:
    """A fault under a grammar; requests without one are served as they should be."""

    class Sometimes(kind):  # type: ignore[valid-type, misc]
        def follow(self, request: Request, draft: Draft, emitted: Tokens) -> None:
            if request.matcher is not None:
                super().follow(request, draft, emitted)

        def masks(self, request: Request, tree: TokenTree) -> list[Allowed | None]:
            masks: list[Allowed | None] = [None] * len(tree) if request.matcher is None else super().masks(request, tree)
            return masks

        def verify(self, request: Request, draft: Draft) -> None:
            if request.matcher is None:
                Rounds.verify(self, request, draft)
            else:
                super().verify(request, draft)

    return Sometimes


class Unaware(DraftModel):
    """Drafts as if there were no grammar."""

    def constrain(self, matcher: Matching) -> None:
        pass


class Independent(DraftModel):
    """Siblings are drawn independently, where the rule is said to need them without replacement."""

    def __init__(self, *parts: object, **named: object) -> None:
        super().__init__(*parts, **{**named, "replacement": True})  # type: ignore[arg-type]


class Twins(DraftModel):
    """The second child of the root repeats the first."""

    def propose(self, committed: Tokens, k: int, chance: Chance) -> Draft:
        made = super().propose(committed, k, chance)
        assert made.tree is not None
        if len(made.tokens) < 3 or made.tree.parents[2] != 0:
            return made
        tokens, laws = list(made.tokens), list(made.laws)
        tokens[2], laws[2] = tokens[1], laws[1]
        return Draft.claimed(tokens, laws, TokenTree(tokens, made.tree.parents))


class ByNet(WithDrafter):
    """A proposer whose draft net says what it was fed."""

    def __init__(self, net: FeatureNet, prompt: Tokens, settings: SamplingSettings) -> None:
        super().__init__(net, prompt, settings)
        self.net = net

    @property
    def fed(self) -> list[tuple[int, int, int]]:
        return [(one.feature, one.token, one.position) for one in (self.net.passes or [((), [])])[-1][1]]


def drops_the_last(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    """The last node of a fully accepted path is emitted, and not counted."""
    verified = recursive_rejection(p, draft, chance)
    assert draft.tree is not None
    if not verified.path or draft.tree.children(verified.path[-1]):
        return verified
    return Verified(verified.accepted - 1, draft.tokens[verified.path[-1]], verified.path[:-1])


def bonus_of_the_root(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    """The token after the path is drawn from the root's row."""
    verified = recursive_rejection(p, draft, chance)
    return Verified(verified.accepted, int(p[0].argmax()), verified.path) if verified.accepted else verified


def ignoring(**settings: object) -> type[Engine]:
    """The engine, which puts these values in the place of what a request asks for."""

    class Ignoring(Engine):
        def submit(
            self,
            prompt: Sequence[int],
            asked: SamplingSettings,
            speculation: Speculation | None = None,
            grammar: Grammar | None = None,
        ) -> int:
            return super().submit(prompt, replace(asked, **settings), speculation, grammar)  # type: ignore[arg-type]

    return Ignoring


class IdsWrapped(ReferenceChain):
    """An id outside the vocabulary is read as another one."""

    def verify(self, p: Floats, q: Floats | None, drafts: Ints, *, uniforms: Floats | None, seed: int) -> VerifiedBatch:
        return super().verify(p, q, drafts % p.shape[-1], uniforms=uniforms, seed=seed)


def first_where_nothing_is_left(p: Law, q: Law) -> Law:
    """The residual; where it is empty, token 0 for certain."""
    left = np.maximum(p - q, 0)
    return left if left.any() else np.eye(len(p))[0]
