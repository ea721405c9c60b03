"""The reference engine conforms under a grammar, chain and tree; broken variants are killed by the check that names them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from conformance.checks.grammar import MaskAt, grammar_law_finding, matcher_finding, text_finding, window_finding
from conformance.controls.faults import grammars
from conformance.controls.faults.grammars import (
    ChainOrder,
    FlagReadOnce,
    InvalidDropped,
    LagsOneToken,
    MaskPastTheEnd,
    NoMaskAtVerification,
    masked_like,
)
from conformance.controls.faults.grammars import MaskOfTheRound as RoundsMask
from conformance.findings import Finding, Verdict
from conformance.protocols import Tokens
from specref.chance import Chance
from specref.draft import Draft
from specref.drafters.prompt_lookup import PromptLookup
from specref.engine import CachedTableModel, Engine, Grammar, RequestState, Speculation, by_draft_model, by_drafter
from specref.engine.grammar import Allowed, Constrained, Matching
from specref.engine.rounds import Rounds
from specref.engine.speculation import DraftModel
from specref.laws import Law, residual
from specref.models import TableModel
from specref.processors import Processed, SamplingSettings
from specref.rules import Verified, block, chain, tree
from specref.tree import TokenTree

V, END, PROMPT, LENGTH, REQUESTS = 4, 3, (2, 0), 12, 12
TEXTS = [b"a", b"b", b"c", b""]
LARK = 'start: ("a" ("b" | "c") | "b" "a")+'
WORDS = Grammar.over_bytes(LARK, TEXTS, END)
THINKING = Grammar.over_bytes('start: /[ab]*/ "c" "a" "b"', TEXTS, END)
"""Free text until c is written; then a and b, and the end."""
TABLE, SMALL = TableModel(V, "target", exact=False), TableModel(V, "small", exact=False)
SHAPE = (-1, 0, 0, 1, 2)


class Unaware(DraftModel):
    """Drafts as if there were no grammar."""

    def constrain(self, matcher: Matching) -> None:
        pass


def unaware(shape: Tokens | None = None) -> Callable[..., DraftModel]:
    return lambda prompt, settings: Unaware(CachedTableModel(SMALL), prompt, settings, shape=shape)


AWARE = by_draft_model(CachedTableModel(SMALL))
SPECULATIONS = {
    "ratio": Speculation(chain.ratio, AWARE, k=3),
    "ratio, unaware draft": Speculation(chain.ratio, unaware(), k=3),
    "block, unaware draft": Speculation(block.block, unaware(), k=3),
    "token matching": Speculation(chain.token_matching, AWARE, k=3),
    "one-hot, lookup": Speculation(chain.one_hot_ratio, by_drafter(PromptLookup(longest=1)), k=3),
    "traversal": Speculation(tree.traversal, by_draft_model(CachedTableModel(SMALL), SHAPE), k=2, nodes=4),
    "recursive rejection, unaware draft": Speculation(tree.recursive_rejection, unaware(SHAPE), k=2, nodes=4),
}


@dataclass
class Seen:
    """What a run showed of the engine."""

    grammar: Grammar
    outputs: list[Tokens] = field(default_factory=list)
    states: list[MaskAt] = field(default_factory=list)
    positions: list[MaskAt] = field(default_factory=list)

    def look(self, state: RequestState) -> None:
        """After a round: the matcher, and the support of p at each position (the table gives every token some weight)."""
        assert state.matcher is not None
        mask = np.isin(np.arange(V), state.matcher.allowed)
        self.states.append(MaskAt(f"request {state.number}, round {len(state.rounds) - 1}", state.output, mask))
        step = state.steps[-1]
        before = state.output[: step.round.start]
        shape = step.draft.tree or TokenTree.chain(0, step.draft.tokens)
        for node, law in enumerate(step.p):
            path = shape.spells(node)
            where = f"request {state.number}, round {len(state.rounds) - 1}, node {node}"
            self.positions.append(MaskAt(where, before + path, law > 0, drafted=len(path)))


def watched(engine_type: type[Engine], speculation: Speculation, grammar: Grammar, requests: int = REQUESTS) -> Seen:
    engine = engine_type(CachedTableModel(TABLE), speculation=speculation, pages=200, batch=4)
    numbers = [
        engine.submit(PROMPT, SamplingSettings(max_tokens=LENGTH, eos=(END,), seed=seed), grammar=grammar)
        for seed in range(requests)
    ]
    seen, rounds = Seen(grammar), dict.fromkeys(numbers, 0)
    while engine.scheduler.waiting or engine.scheduler.running:
        for state in engine.step():
            if len(state.rounds) > rounds[state.number]:
                rounds[state.number] = len(state.rounds)
                seen.look(state)
    seen.outputs = [engine.state(number).output for number in numbers]
    return seen


@cache
def law_after(table: TableModel, output: Tokens) -> Law:
    """Under the mask."""
    return Processed(table, [Constrained(WORDS)], len(PROMPT)).next_law(PROMPT + output)


def laws(outputs: list[Tokens]) -> list[tuple[Any, Any]]:
    """The target's and the draft's along each output, under the mask."""
    return [
        tuple(
            np.array([law_after(table, output[:at]) for at in range(len(output))]).reshape(len(output), V)
            for table in (TABLE, SMALL)
        )  # type: ignore[misc]
        for output in outputs
    ]


def findings(seen: Seen) -> dict[str, Finding]:
    found = [
        matcher_finding("m", seen.states, seen.grammar, 15),
        window_finding("m", seen.positions, seen.grammar, 30),
        text_finding("m", seen.outputs, [LENGTH] * len(seen.outputs), seen.grammar, len(seen.outputs)),
    ]
    return {finding.requirement: finding for finding in found}


@pytest.mark.parametrize("name", SPECULATIONS)
@pytest.mark.parametrize("grammar", [WORDS, THINKING], ids=["words", "thinking"])
def test_the_reference_engine_conforms(name: str, grammar: Grammar) -> None:
    for finding in findings(watched(Engine, SPECULATIONS[name], grammar)).values():
        assert finding.verdict is Verdict.CONFORMS, finding.summary


# Engines that are wrong.


def engine_with(rounds: type[Rounds]) -> type[Engine]:
    return type("Wrong", (Engine,), {"rounds_type": rounds})


class GrammarRollsBackByK(grammars.GrammarRollsBackByK):
    """The judge asks the right one."""

    def allowed(self, text: Tokens) -> Allowed | None:
        return WORDS.allowed(text)


def with_matcher(matcher: type[Grammar]) -> Callable[[], Seen]:
    return lambda: watched(Engine, SPECULATIONS["ratio, unaware draft"], matcher.over_bytes(LARK, TEXTS, END))


def with_rounds(rounds: type[Rounds], speculation: str, grammar: Grammar = WORDS) -> Callable[[], Seen]:
    return lambda: watched(engine_with(rounds), SPECULATIONS[speculation], grammar)


FAULTS: dict[str, tuple[Callable[[], Seen], str]] = {
    "matcher lags one token": (with_rounds(LagsOneToken, "ratio"), "GRAMMAR-1"),
    "matcher rolled back by k, not by what advanced": (with_matcher(GrammarRollsBackByK), "GRAMMAR-1"),
    "grammar flag read once per round": (with_rounds(FlagReadOnce, "ratio, unaware draft", THINKING), "GRAMMAR-2"),
    "one mask for a whole round": (with_rounds(RoundsMask, "ratio"), "GRAMMAR-2"),
    "tree masked in chain order": (with_rounds(ChainOrder, "traversal"), "GRAMMAR-2"),
    "no mask at verification": (with_rounds(NoMaskAtVerification, "ratio, unaware draft"), "GRAMMAR-3"),
    "mask asked for past the end": (with_rounds(MaskPastTheEnd, "ratio"), "GRAMMAR-3"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_killed(name: str) -> None:
    make, requirement = FAULTS[name]
    finding = findings(make())[requirement]
    assert finding.verdict is Verdict.VIOLATES, finding.summary
    assert finding.violations[0].startswith("request ")
    assert "expected" in finding.violations[0]


def test_the_place_names_the_text_and_what_follows_it() -> None:
    state = MaskAt("request 0, round 1", (0,), np.array([True, False, False, False]))
    found = matcher_finding("m", [state], WORDS, 1)
    assert found.violations == ("request 0, round 1, after 0: expected allowed 1, 2, found allowed 0",)
    found = window_finding("m", [replace(state, found=None, drafted=1)], WORDS, 1)
    assert found.violations == ("request 0, round 1, after 0: expected allowed 1, 2, found no mask",)


# Invalid drafts and the law.


def decided(p: list[Law], draft: Draft, chance: Chance, q: list[Law], forbidden: Callable[[int, int], bool]) -> Verified:
    """Forced rejection of an invalid draft; every other is verified by the masked q."""
    for i, token in enumerate(draft.tokens):
        if forbidden(i, token):
            return Verified(i, chance.picks(residual(p[i], q[i]), slot=("emit",)))
        if not chance.accepts(p[i][token], masked_like(draft.laws[i], p[i])[token], slot=("accept", i)):
            return Verified(i, chance.picks(residual(p[i], masked_like(draft.laws[i], p[i])), slot=("emit",)))
    return Verified(len(draft.tokens), chance.picks(p[-1], slot=("emit",)))


def q_kept(p: list[Law], draft: Draft, chance: Chance) -> Verified:
    """The invalid draft is rejected, and the residual still measured against the q that proposed it."""
    return decided(p, draft, chance, list(draft.laws), lambda i, token: p[i][token] == 0)


def q_zeroed(p: list[Law], draft: Draft, chance: Chance) -> Verified:
    """Lawful: where the draft was invalid its row of q counts for nothing, and the target's own law decides."""
    return decided(p, draft, chance, [row * 0 for row in draft.laws], lambda i, token: p[i][token] == 0)


LAW_FAULTS: dict[str, tuple[type[Engine], Speculation]] = {
    "invalid draft rejected, its q kept in the residual": (Engine, Speculation(q_kept, unaware(), k=3)),
    "invalid drafts dropped before verification": (engine_with(InvalidDropped), SPECULATIONS["ratio, unaware draft"]),
}
LAWFUL: dict[str, Speculation] = {
    "the draft knows the grammar": SPECULATIONS["ratio"],
    "the draft does not, and is rejected like any other": SPECULATIONS["ratio, unaware draft"],
    "q zeroed where the draft was invalid": Speculation(q_zeroed, unaware(), k=3),
    "block": SPECULATIONS["block, unaware draft"],
    "tree": SPECULATIONS["recursive rejection, unaware draft"],
}
SEED = int(np.random.default_rng().integers(10**6))


def law(engine_type: type[Engine], speculation: Speculation, requests: int) -> Finding:
    """A fresh seed for every run. Of 1200 requests, faults leave evidence of 10^50 on average, spread 10^7; 10^6 convicts."""
    engine = engine_type(CachedTableModel(TABLE), speculation=speculation, pages=200, batch=8, seed=SEED)
    numbers = [engine.submit(PROMPT, SamplingSettings(max_tokens=LENGTH, eos=(END,)), grammar=WORDS) for _ in range(requests)]
    engine.run()
    outputs = [engine.state(number).output for number in numbers]
    return grammar_law_finding("m", outputs, laws(outputs), 1000, seed=SEED)


@pytest.mark.parametrize("name", LAW_FAULTS)
def test_a_fault_of_the_law_is_killed(name: str) -> None:
    finding = law(*LAW_FAULTS[name], requests=1200)
    assert finding.verdict is Verdict.VIOLATES, finding.summary


@pytest.mark.parametrize("name", LAWFUL)
def test_a_lawful_variation_passes(name: str) -> None:
    finding = law(Engine, LAWFUL[name], requests=200)
    assert finding.verdict is Verdict.CONFORMS, finding.summary


def test_verdicts_that_are_none() -> None:
    assert matcher_finding("m", None, WORDS, 1).verdict is Verdict.NOT_EXPOSED
    assert window_finding("m", None, WORDS, 1).verdict is Verdict.NOT_EXPOSED
    first = MaskAt("request 0, round 0, node 0", (), WORDS.allowed(()))
    only_roots = window_finding("m", [first] * 9, WORDS, 1)
    assert (only_roots.verdict, "no position lay behind" in only_roots.summary) == (Verdict.INCONCLUSIVE, True)
    assert text_finding("m", [(0, 1, END)], [12, 12], WORDS, 1).verdict is Verdict.ERROR
    assert text_finding("m", [(0, 1, END)], [12], WORDS, 5).verdict is Verdict.INCONCLUSIVE
    assert text_finding("m", [(0, 1, END, 0)], [12], WORDS, 1).violations == (
        "request 0, position 3: expected nothing after the end, found token 0",
    )
    assert grammar_law_finding("m", [(0,)], [], 1).verdict is Verdict.ERROR
    short = [(0, 1, END)]
    assert grammar_law_finding("m", short, laws(short), 1000).verdict is Verdict.INCONCLUSIVE
