"""Faults of grammars: masks and matchers that are a step behind, or beside, the text that they belong to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from conformance.controls.control import Control
from conformance.controls.stages.grammars import END, FREE_UNTIL_C, SHAPE, GrammarServer, Unaware, under_grammar
from specref.chance import Chance
from specref.draft import Draft
from specref.engine import Grammar
from specref.engine.grammar import Allowed, Matcher
from specref.engine.request import Request
from specref.engine.rounds import Rounds, tree_of_round
from specref.laws import Law, norm, residual
from specref.models import BadModel, Tokens
from specref.rules import Verified
from specref.rules.tree import traversal
from specref.tree import TokenTree


class Forced(Rounds):
    """The matcher takes what it can of what was emitted; nothing is said about the rest."""

    def follow(self, request: Request, draft: Draft, emitted: Tokens) -> None:
        """See `Rounds.follow`."""
        force(request, emitted)


def force(request: Request, tokens: Tokens) -> None:
    """Move the matcher on, whether it likes the tokens or not."""
    assert request.matcher is not None
    for token in tokens:
        request.matcher.parser.try_consume_tokens([token])
        request.matcher.text += (token,)


class FlagReadOnce(Forced):
    """Whether the text is constrained is decided when the round begins: a marker drafted inside it switches nothing."""

    def masks(self, request: Request, tree: TokenTree) -> list[Allowed | None]:
        """See `Rounds.masks`."""
        masks = super().masks(request, tree)
        free = masks[0] is not None and masks[0][:END].all()
        return [None] * len(tree) if free else masks


class MaskOfTheRound(Forced):
    """One mask for the whole round."""

    def masks(self, request: Request, tree: TokenTree) -> list[Allowed | None]:
        """See `Rounds.masks`."""
        return [super().masks(request, tree)[0]] * len(tree)


class LagsOneToken(Rounds):
    """The last token of a round is taken in with the next round."""

    def follow(self, request: Request, draft: Draft, emitted: Tokens) -> None:
        """See `Rounds.follow`."""
        assert request.matcher is not None
        force(request, request.output[len(request.matcher.text) : -1])


class ChainOrder(Forced):
    """Every node of a tree is masked as if all nodes before it were its ancestors."""

    def masks(self, request: Request, tree: TokenTree) -> list[Allowed | None]:
        """See `Rounds.masks`."""
        assert request.matcher is not None
        return [request.matcher.allowed(tree.tokens[1 : node + 1]) for node in range(len(tree))]


class NoMaskAtVerification(Forced):
    """The grammar never reaches the speculative path."""

    def masks(self, request: Request, tree: TokenTree) -> list[Allowed | None]:
        """See `Rounds.masks`."""
        return super().masks(request, tree) if len(tree) == 1 else [None] * len(tree)


class MaskPastTheEnd(Rounds):
    """Asks for a mask behind a drafted end, and the library refuses: the request is aborted."""

    def masks(self, request: Request, tree: TokenTree) -> list[Allowed | None]:
        """See `Rounds.masks`."""
        if any(END in tree.spells(node) for node in range(len(tree))):
            raise BadModel("no mask after the end of the text")
        return super().masks(request, tree)


class EndSeenOnceARound(Forced):
    """Whether the text is complete is looked for once a round: an end inside the window is followed by the rest."""

    def emit(self, request: Request, tokens: Tokens) -> Tokens:
        """See `Rounds.emit`."""
        kept = super().emit(request, tokens)
        more = kept[-1] == END and len(kept) < len(tokens) and len(request.output + kept) < request.stops.max_tokens
        return tokens[: len(kept) + 1] if more else kept


class InvalidDropped(Rounds):
    """Drafts are cut before the first invalid one, and what is left is verified by the q that did not know the grammar."""

    def verify(self, request: Request, draft: Draft) -> None:
        """See `Rounds.verify`."""
        masks = self.masks(request, tree_of_round(request, draft))
        fits = [mask is not None and bool(mask[token]) for mask, token in zip(masks, draft.tokens)]
        kept = len(fits) if all(fits) else fits.index(False)
        super().verify(request, Draft.claimed(draft.tokens[:kept], draft.laws[:kept]))


class RollsBackByK(Matcher):
    """Steps back as many tokens as it was shown, not as many as it took in."""

    taken_in = 0

    def allowed(self, path: Tokens = ()) -> Allowed | None:
        """See `Matcher.allowed`."""
        if END in self.text + path:
            return None
        taken = self.parser.try_consume_tokens(list(path))
        mask = self._mask() if taken == len(path) else None
        self.taken_in += taken
        back = min(len(path), self.taken_in)
        self.taken_in -= back
        self.parser.rollback(back)
        return mask

    def advance(self, committed: Tokens) -> None:
        """See `Matcher.advance`."""
        for token in committed:
            self.taken_in += self.parser.try_consume_tokens([token]) if token != END else 0
            self.text += (token,)


class GrammarRollsBackByK(Grammar):
    """Gives out matchers that do."""

    def matcher(self) -> Matcher:
        """See `Grammar.matcher`."""
        return RollsBackByK(self, self._at_start.deep_copy())


def masked_like(q: Law, p: Law) -> Law:
    """q under the mask that p was given."""
    return norm(np.where(p > 0, q, 0.0))


def rejected_by(p: Sequence[Law], draft: Draft, chance: Chance, left: Callable[[Law], Law]) -> Verified:
    """An invalid draft is rejected, and its replacement drawn against `left(q)`; every other is verified by the masked q."""
    for i, (token, law) in enumerate(zip(draft.tokens, draft.laws)):
        if p[i][token] == 0:
            return Verified(i, chance.picks(residual(p[i], left(law)), slot=("emit",)))
        if not chance.accepts(p[i][token], masked_like(law, p[i])[token], slot=("accept", i)):
            return Verified(i, chance.picks(residual(p[i], masked_like(law, p[i])), slot=("emit",)))
    return Verified(len(draft.tokens), chance.picks(p[-1], slot=("emit",)))


def q_kept(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    """The invalid draft is rejected, and the residual still measured against the q that proposed it."""
    return rejected_by(p, draft, chance, lambda q: q)


def q_zeroed(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    """Lawful: where the draft was invalid its row of q counts for nothing, and the target's own law decides."""
    return rejected_by(p, draft, chance, lambda q: q * 0)


def fault(id: str, requirement: str, server: GrammarServer, *reports: str, replaces: str = "Rounds") -> Control:
    """A fault under a grammar."""
    return Control(id, "grammar", replaces, (requirement,), under_grammar(server), reports)


UNAWARE = GrammarServer(draft_model=Unaware)

FAULTS = (
    fault(
        "grammar flag read once per round",
        "GRAMMAR-2",
        GrammarServer(FlagReadOnce, lark=FREE_UNTIL_C, draft_model=Unaware),
        "vllm-project/vllm 44297",
    ),
    fault("matcher lags one token", "GRAMMAR-1", GrammarServer(LagsOneToken), "vllm-project/vllm 48516"),
    fault(
        "matcher rolled back by k, not by what advanced",
        "GRAMMAR-1",
        GrammarServer(grammar=GrammarRollsBackByK, draft_model=Unaware),
        replaces="Matcher",
    ),
    fault("one mask for a whole round", "GRAMMAR-2", GrammarServer(MaskOfTheRound), "vllm-project/vllm 9423"),
    fault(
        "a tree masked in chain order",
        "GRAMMAR-2",
        GrammarServer(ChainOrder, rule=traversal, shape=SHAPE),
        "NVIDIA/TensorRT-LLM 18892",
    ),
    fault(
        "no mask at verification",
        "GRAMMAR-3",
        GrammarServer(NoMaskAtVerification, draft_model=Unaware),
        "InternLM/lmdeploy 4551",
    ),
    fault("mask asked for past the end", "GRAMMAR-3", GrammarServer(MaskPastTheEnd), "openvinotoolkit/openvino.genai 4081"),
    fault(
        "the end of the grammar looked for once a round",
        "GRAMMAR-3",
        GrammarServer(EndSeenOnceARound),
        "sgl-project/sglang 21723",
    ),
    fault(
        "invalid draft rejected, its q kept in the residual",
        "GRAMMAR-4",
        GrammarServer(draft_model=Unaware, rule=q_kept),
        "local-inference-lab/vllm 476",
        replaces="ratio",
    ),
    fault("invalid drafts dropped before verification", "GRAMMAR-4", GrammarServer(InvalidDropped, draft_model=Unaware)),
)
