"""Which tokens, and which contexts, add most to the evidence of a violated law: the answers kept, scored again by the one bet
that holds the wealth. It explains a verdict that stands already, and decides nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from conformance.asked_law import Asked
from conformance.components import Floats
from conformance.pictures import Contribution
from conformance.protocols import Output, Tokens
from conformance.sampled_case import SampledCase
from conformance.sampling import judged_part
from conformance.statistics import FaultBank
from conformance.statistics.rows import Rows

MOST_TOKENS, LARGEST_BLOCK = 2_000, 1 << 22
"""Tokens that are scored again, and laws (tokens x vocabulary) at a time."""
CONTEXT = 2
"""Tokens before a token that make its context: fewer than a thousand contexts would hardly ever come twice with more."""
SHOWN = 5


def contributions(state: SampledCase, bank: FaultBank, bet: str) -> tuple[Contribution, ...]:
    """The tokens and contexts that add most to one bet's log wealth in the first answers of a case, in powers of ten."""
    if bet not in bank.names:
        return ()
    added = _Added(state.subject.texts)
    for sequences, asked in _scored(state):
        tokens = np.array([token for _, output in sequences for token in output], dtype=np.int64)
        wealth = bank.log_bets(Rows(asked.p, asked.q), tokens)[:, bank.names.index(bet)] / np.log(10)
        added.add(sequences, tokens, wealth, asked.p)
    return added.largest()


def _scored(state: SampledCase) -> Iterable[tuple[Sequence[tuple[Tokens, Tokens]], Asked]]:
    """The first answers with their laws, some at a time."""
    at_once = max(1, min(MOST_TOKENS, LARGEST_BLOCK // state.subject.target.vocabulary))
    total, place = 0, 0
    while place < len(state.first) and total < MOST_TOKENS:
        sequences: list[tuple[Tokens, Tokens]] = []
        outputs: list[Output] = []
        settings, size = state.first[place][0].settings, 0
        while place < len(state.first) and (not sequences or size < at_once):
            request, output = state.first[place]
            part = judged_part(request, output)[:at_once]
            if part:
                sequences.append((request.prompt, part))
                outputs.append(output)
            size, place = size + len(part), place + 1
        if sequences:
            total += size
            yield sequences, state.laws(settings, sequences, outputs)


class _Added:
    """What every token and context has added so far."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        self.by_token: defaultdict[int, float] = defaultdict(float)
        self.by_context: defaultdict[Tokens, float] = defaultdict(float)
        self.times: defaultdict[int | Tokens, int] = defaultdict(int)
        self.expected: Floats = np.zeros(len(texts))

    def add(self, sequences: Sequence[tuple[Tokens, Tokens]], tokens: np.ndarray, wealth: Floats, p: Floats) -> None:
        """Some more sequences, with each token's wealth `[n]` and law `[n, V]`."""
        self.expected = self.expected + p.sum(axis=0)
        contexts = [
            (prompt + output)[max(0, len(prompt) + at - CONTEXT) : len(prompt) + at]
            for prompt, output in sequences
            for at in range(len(output))
        ]
        for token, context, amount in zip(tokens.tolist(), contexts, wealth.tolist(), strict=True):
            self.by_token[token] += amount
            self.by_context[context] += amount
            self.times[token] += 1
            self.times[context] += 1

    def largest(self) -> tuple[Contribution, ...]:
        """The largest of both."""
        tokens = sorted(self.by_token.items(), key=lambda entry: -entry[1])[:SHOWN]
        contexts = sorted(self.by_context.items(), key=lambda entry: -entry[1])[:SHOWN]
        some = [
            Contribution("token", self.texts[one], self.times[one], float(self.expected[one]), added)
            for one, added in tokens
            if added > 0
        ]
        return (
            *some,
            *(
                Contribution("context", "".join(self.texts[one] for one in context), self.times[context], None, added)
                for context, added in contexts
                if added > 0
            ),
        )
