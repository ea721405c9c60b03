"""The reference engine under a grammar: GRAMMAR-1 to GRAMMAR-3 from all that it allowed, GRAMMAR-4 from what it sampled."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from conformance.checks.grammar import MaskAt, grammar_law_finding, matcher_finding, text_finding, window_finding
from conformance.components import Floats
from conformance.controls.control import SHARE, Audit, Look, look_sizes
from conformance.findings import Finding
from conformance.protocols import Tokens
from specref.engine import CachedTableModel, Engine, Grammar, RequestState, Speculation
from specref.engine.grammar import Constrained, Matching
from specref.engine.rounds import Rounds
from specref.engine.speculation import DraftModel
from specref.laws import Law
from specref.models import TableModel
from specref.processors import Processed, SamplingSettings
from specref.rules import Rule
from specref.rules.chain import ratio
from specref.tree import TokenTree

V, END, PROMPT, LENGTH = 4, 3, (2, 0), 12
TEXTS = (b"a", b"b", b"c", b"")
WORDS = 'start: ("a" ("b" | "c") | "b" "a")+'
FREE_UNTIL_C = 'start: /[ab]*/ "c" "a" "b"'
"""Free text until c is written; then a and b, and the end."""
SHAPE = (-1, 0, 0, 1, 2)
REQUESTS = 64
TABLE, SMALL = TableModel(V, "target", exact=False), TableModel(V, "small", exact=False)


class Unaware(DraftModel):
    """Drafts as if there were no grammar."""

    def constrain(self, matcher: Matching) -> None:
        """See `DraftModel.constrain`."""


@dataclass(frozen=True)
class GrammarServer:
    """The reference engine under a grammar, with one part replaced. shape: of drafted trees; None for chains."""

    rounds: type[Rounds] = Rounds
    grammar: type[Grammar] = Grammar
    lark: str = WORDS
    draft_model: type[DraftModel] = DraftModel
    rule: Rule = ratio
    shape: tuple[int, ...] | None = None

    def start(self, seed: int) -> Engine:
        """A fresh engine."""
        kind = type("UnderTest", (Engine,), {"rounds_type": self.rounds})
        proposer = partial(self.draft_model, CachedTableModel(SMALL), shape=self.shape)
        k, nodes = (2, len(self.shape) - 1) if self.shape else (3, 3)
        made: Engine = kind(
            CachedTableModel(TABLE), speculation=Speculation(self.rule, proposer, k, nodes), pages=200, batch=8, seed=seed
        )
        return made


@cache
def right(lark: str) -> Grammar:
    """The grammar as it should be read."""
    return Grammar.over_bytes(lark, TEXTS, END)


def under_grammar(server: GrammarServer, n: int = REQUESTS) -> Audit:
    """The audit of an engine under a grammar. n: requests that are watched; the sampled run has 24 times as many."""

    def looks(seed: int, n: int, without: Collection[str] = ()) -> Iterator[Look]:
        for size in look_sizes(n, 12):
            found = list(watched(server, size, seed))
            yield size, found
            yield size, [*found, sampled(server, 24 * size, seed, without)]

    return Audit("server under a grammar", "requests", n, looks, looks)


def watched(server: GrammarServer, requests: int, seed: int) -> Iterator[Finding]:
    """After every round the matcher, and at every position of it what p leaves possible (the table gives all some weight)."""
    grammar, engine = server.grammar.over_bytes(server.lark, TEXTS, END), server.start(seed)
    numbers = [
        engine.submit(PROMPT, SamplingSettings(max_tokens=LENGTH, eos=(END,), seed=seed + i), grammar=grammar)
        for i in range(requests)
    ]
    states: list[MaskAt] = []
    positions: list[MaskAt] = []
    rounds = dict.fromkeys(numbers, 0)
    while engine.scheduler.waiting or engine.scheduler.running:
        for state in engine.step():
            if len(state.rounds) > rounds[state.number]:
                rounds[state.number] = len(state.rounds)
                after, within = seen(state)
                states.append(after)
                positions += within
    outputs, judge = [engine.state(number).output for number in numbers], right(server.lark)
    yield matcher_finding("a control", states, judge, 1)
    yield window_finding("a control", positions, judge, 1)
    yield text_finding("a control", outputs, [LENGTH] * requests, judge, requests)


def seen(state: RequestState) -> tuple[MaskAt, list[MaskAt]]:
    """What a round showed."""
    assert state.matcher is not None
    where, step = f"request {state.number}, round {len(state.rounds) - 1}", state.steps[-1]
    before, shape = state.output[: step.round.start], step.draft.tree or TokenTree.chain(0, step.draft.tokens)
    positions = [
        MaskAt(f"{where}, node {node}", before + shape.spells(node), law > 0, drafted=len(shape.spells(node)))
        for node, law in enumerate(step.p)
    ]
    return MaskAt(where, state.output, np.isin(np.arange(V), state.matcher.allowed)), positions


def sampled(server: GrammarServer, requests: int, seed: int, without: Collection[str] = ()) -> Finding:
    """Requests without seeds, and the target's law under the mask along each output. without: laws that are not bet on."""
    engine = server.start(seed + 1)
    settings = SamplingSettings(max_tokens=LENGTH, eos=(END,))
    grammar = server.grammar.over_bytes(server.lark, TEXTS, END)
    numbers = [engine.submit(PROMPT, settings, grammar=grammar) for _ in range(requests)]
    engine.run()
    outputs = [engine.state(number).output for number in numbers if follows(engine.state(number).output, server.lark)]
    laws = [(along(TABLE, output, server.lark), along(SMALL, output, server.lark)) for output in outputs]
    return grammar_law_finding("a control", outputs, laws, 1, alpha=SHARE / 8, seed=seed, without=without)


def follows(output: Tokens, lark: str) -> bool:
    """Whether an output can be held against the law at all: GRAMMAR-3 names those that cannot."""
    masks = [right(lark).allowed(output[:at]) for at in range(len(output))]
    return bool(output) and all(mask is not None and mask[token] for mask, token in zip(masks, output))


def along(table: TableModel, output: Tokens, lark: str) -> Floats:
    """The table's laws under the mask along an output, `[len(output), V]`."""
    return np.array([law_after(table, output[:at], lark) for at in range(len(output))])


@cache
def law_after(table: TableModel, output: Tokens, lark: str) -> Law:
    """The table's law under the mask after an output."""
    return Processed(table, [Constrained(right(lark))], len(PROMPT)).next_law(PROMPT + output)
