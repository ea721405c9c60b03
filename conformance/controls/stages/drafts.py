"""What a draft net is fed (DRAFT-4), how well a target accepts its own drafts (ACCEPT-2), and vocabulary maps (DRAFT-3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np

from conformance.checks.accept import self_draft_finding
from conformance.checks.draft import DraftInput, draft_inputs_finding, vocabulary_map_finding
from conformance.checks.greedy import greedy_finding
from conformance.controls.control import Audit, Look
from conformance.protocols import Output, RecordedRound, Tokens
from conformance.scoring import TableScorer
from conformance.statistics.greedy import Margin
from specref.chance import Chance, SampledChance
from specref.draft import Draft
from specref.generate import Drafter, generate
from specref.models import LanguageModel, TableModel
from specref.rules import Rule
from specref.rules.chain import greedy
from specref.stopping import Stops

V, K, LENGTH = 12, 3, 14
EXACT = Margin(0.0, "float64", 10_000)


class FeatureNet:
    """A perfect draft net in the manner of EAGLE: beside the feature of position i it reads the token at i + 1.

    A feature is all that the target knows at a position, here the text up to it; what the net makes of a pair is the text of
    the feature and the token after it, and it drafts the target's best token there. It feeds itself its own guess of the next
    feature. So a target that drafts with it for itself accepts everything, unless something is fed that should not be.
    """

    def __init__(self, target: LanguageModel) -> None:
        self.target = target
        self.passes: list[tuple[Tokens, list[DraftInput]]] = []

    def fed(self, committed: Tokens) -> list[DraftInput]:
        """The pairs that one pass over the committed text reads."""
        return [DraftInput(i, committed[i + 1], i) for i in range(len(committed) - 1)]

    def feature(self, committed: Tokens, i: int) -> Tokens:
        """The target's feature at position i."""
        return committed[: i + 1]

    def next_feature(self, guess: Tokens, first: Tokens) -> Tokens:
        """The feature beside the next drafted token: the net's own guess. first: the target's feature of this round."""
        return guess

    def drafted(self, text: Tokens, step: int) -> int:
        """The token that is drafted where the net has understood `text`."""
        return int(self.target.next_law(text).argmax())

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        """See `Drafter.draft`."""
        pairs = self.fed(context)
        self.passes.append((context, pairs))
        if not pairs:
            return Draft.chosen(())
        first = self.feature(context, pairs[-1].feature)
        text, tokens = (*first, pairs[-1].token), list[int]()
        for step in range(k):
            tokens.append(self.drafted(text, step))
            text = (*self.next_feature(text, first), tokens[-1])
        return Draft.chosen(tuple(tokens))


def draft_net(make: Callable[[LanguageModel], FeatureNet]) -> Audit:
    """The audit of a draft net that drafts for its own target at temperature 0."""

    def looks(seed: int, n: int) -> Iterator[Look]:
        outputs, logits, passes = [], [], []
        for number in range(n):
            target = TableModel(V, f"net {seed}", exact=False)
            net = make(target)
            prompt = tuple(np.random.default_rng([seed, number]).integers(V, size=8).tolist())
            output = greedily(target, net, greedy, prompt)
            outputs.append(output)
            logits += TableScorer(TableModel(V, f"net {seed}", exact=False)).logits([(prompt, output.tokens)])
            passes += net.passes
        found = [draft_inputs_finding("a control", passes, 1), self_draft_finding("a control", outputs, logits, EXACT, 1)]
        yield n, [*found, greedy_finding("a control", [one.tokens for one in outputs], logits, EXACT, 1)]

    return Audit("draft net", "requests", 8, looks)


def greedily(target: LanguageModel, drafter: Drafter, rule: Rule, prompt: Tokens) -> Output:
    """One output at temperature 0, with its rounds."""
    made = generate(target, drafter, rule, prompt, k=K, stops=Stops(LENGTH), chance=SampledChance(0))
    return Output(made.tokens, tuple(RecordedRound(r.start, r.drafted, r.accepted, r.emitted, r.rule) for r in made.rounds))


Writes = Callable[[LanguageModel, Tokens], Tokens]
"""Continues a prompt by LENGTH tokens at temperature 0."""


def greedy_writer(writes: Writes, margin: Margin = EXACT) -> Audit:
    """The audit of something that claims to write what greedy decoding writes (GREEDY-1), near-ties within `margin` aside."""

    def looks(seed: int, n: int) -> Iterator[Look]:
        target = TableModel(V, f"writer {seed}", exact=False)
        prompts = [tuple(np.random.default_rng([seed, number]).integers(V, size=4).tolist()) for number in range(n)]
        outputs = [writes(target, prompt) for prompt in prompts]
        logits = TableScorer(target).logits(list(zip(prompts, outputs)))
        yield n, [greedy_finding("a control", outputs, logits, margin, n)]

    return Audit("greedy writer", "prompts", 16, looks)


MakeMap = Callable[[np.ndarray], tuple[Sequence[int], Literal["offset", "absolute"]]]


def vocabulary_map(make: MakeMap) -> Audit:
    """The audit of a map from a draft's vocabulary of 10 to a target's of 30, with the tokens' texts known.

    make: gives table and convention from the true target ids `[10]`, in rising order.
    """

    def looks(seed: int, n: int) -> Iterator[Look]:
        ids = np.sort(np.random.default_rng([seed, 19]).choice(np.arange(4, 30), size=10, replace=False))
        table, convention = make(ids)
        texts = [f"word {i}" for i in range(30)]
        yield 1, [vocabulary_map_finding("a control", list(table), convention, 30, texts=([texts[i] for i in ids], texts))]

    return Audit("vocabulary map", "maps", 1, looks)
