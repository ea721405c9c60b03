"""Outputs under a grammar: masks against the language itself, and the exact law of whole outputs through the engine."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from specref import pretrained
from specref.chance import Chance, SampledChance, exact_law
from specref.draft import Draft
from specref.drafters.prompt_lookup import PromptLookup
from specref.engine import CachedTableModel, CachedTransformer, Engine, Grammar, Speculation, by_draft_model, by_drafter
from specref.engine.exact import law_of_output
from specref.engine.grammar import Constrained, GrammarsMissing, Matching
from specref.engine.speculation import DraftModel
from specref.generate import NoDrafter, generate
from specref.laws import Law, norm, residual
from specref.models import Kind, TableModel, Tokens, TransformersModel, sequence_law
from specref.processors import Processed, SamplingSettings
from specref.rules import Verified, block, chain, tree
from specref.rules.chain import ratio

from .subjects import WORDS

A, B, C, END = 0, 1, 2, 3
TEXTS = [b"a", b"b", b"c", b""]
PROMPT = (C, A)
SHAPE = (-1, 0, 0, 1, 2)


def follows(text: Tokens, words: Sequence[Tokens]) -> list[int] | None:
    """What may follow `text`, from a list of all complete texts up to a length."""
    if END in text:
        return None
    after = {(*word, END)[len(text)] for word in words if word[: len(text)] == text}
    return sorted(after) or None


def test_masks_are_those_of_the_language() -> None:
    pairs = [(A, B), (A, C), (B, A)]
    words = [sum(word, ()) for n in (1, 2, 3) for word in product(pairs, repeat=n)]
    looked = refused = 0
    for length in range(5):
        for text in product(range(4), repeat=length):
            mask = WORDS.allowed(text)
            expected = follows(text, words)
            assert (None if mask is None else np.flatnonzero(mask).tolist()) == expected
            looked, refused = looked + 1, refused + (mask is None)
    assert (looked, looked - refused) == (341, 1 + 2 + 3 + 6 + 9)


def test_a_matcher_looks_down_paths_and_stays() -> None:
    """Refused tokens, ends, and complete texts on the way down leave nothing behind."""
    one = Grammar.over_bytes('start: "a" "b" "c"', TEXTS, END)
    for grammar, committed in ((WORDS, (A, B, B)), (one, (A, B)), (one, (A, B, C)), (one, (A, B, C, END))):
        matcher = grammar.matcher()
        matcher.advance(committed)
        before = matcher.state
        for path in product(range(4), repeat=3):
            found, expected = matcher.allowed(path), grammar.allowed(committed + path)
            assert (found is None) == (expected is None)
            assert found is None or expected is None or (found == expected).all()
            assert matcher.state == before


def test_what_the_matcher_refuses() -> None:
    matcher = WORDS.matcher()
    with pytest.raises(ValueError, match=r"refuses token 2 after \(\)"):
        matcher.advance((C,))
    matcher.advance((B, A, END))
    with pytest.raises(ValueError, match="refuses token 3"):
        matcher.advance((END,))
    assert matcher.state.allowed == ()
    with pytest.raises(ValueError, match="cannot be read"):
        Grammar.over_bytes("start: nothing", TEXTS, END)
    with pytest.raises(ValueError, match="one byte or none"):
        Grammar.over_bytes('start: "a"', [b"ab", b""], 1)


def test_a_grammar_that_does_not_fit_is_refused_at_once() -> None:
    engine = Engine(CachedTableModel(TableModel(4, 1)))
    other = Grammar.over_bytes('start: "a"', [b"a", b""], 1)
    for grammar, eos in ((other, (1,)), (WORDS, ())):
        with pytest.raises(ValueError, match="both must agree"):
            engine.submit((0,), SamplingSettings(max_tokens=4, eos=eos), grammar=grammar)


def test_without_the_library_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("llguidance"):
            raise ImportError(name)
        return whole(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(GrammarsMissing, match=r"pip install 'specref\[grammar\]'"):
        Grammar.over_bytes('start: "a"', TEXTS, END)


# The exact law.


class Unaware(DraftModel):
    """Drafts as if there were no grammar: the target rejects what does not fit."""

    def constrain(self, matcher: Matching) -> None:
        pass


def speculation(name: str, small: TableModel) -> Speculation:
    model = CachedTableModel(small)

    def unaware(*request: Any) -> DraftModel:
        return Unaware(model, *request)

    def unaware_tree(*request: Any) -> DraftModel:
        return Unaware(model, *request, shape=SHAPE)

    tree_drawn = by_draft_model(model, SHAPE)
    return {
        "ratio": Speculation(chain.ratio, by_draft_model(model), k=2),
        "ratio, unaware draft": Speculation(chain.ratio, unaware, k=2),
        "block": Speculation(block.block, by_draft_model(model), k=2),
        "block, unaware draft": Speculation(block.block, unaware, k=2),
        "token matching, unaware draft": Speculation(chain.token_matching, unaware, k=2),
        "one-hot ratio": Speculation(chain.one_hot_ratio, by_drafter(PromptLookup(longest=1)), k=2),
        "recursive rejection": Speculation(tree.recursive_rejection, tree_drawn, k=2, nodes=4),
        "recursive rejection, unaware draft": Speculation(tree.recursive_rejection, unaware_tree, k=2, nodes=4),
        "traversal": Speculation(tree.traversal, tree_drawn, k=2, nodes=4),
        "traversal, unaware draft": Speculation(tree.traversal, unaware_tree, k=2, nodes=4),
    }[name]


RULES = (
    "ratio",
    "ratio, unaware draft",
    "block",
    "block, unaware draft",
    "token matching, unaware draft",
    "one-hot ratio",
    "recursive rejection",
    "recursive rejection, unaware draft",
    "traversal",
    "traversal, unaware draft",
)


def law(engine_type: type[Engine], name: str, target: TableModel, small: TableModel, asked: SamplingSettings) -> Any:
    """In a batch with another request that has no grammar."""
    engine = engine_type(CachedTableModel(target), page_size=2, chunk=2)
    engine.submit(PROMPT, SamplingSettings(max_tokens=3, seed=3), speculation("ratio", small))
    return law_of_output(engine, engine.submit(PROMPT, asked, speculation(name, small), WORDS))


def expected(target: TableModel, asked: SamplingSettings) -> Any:
    model = Processed(target, (Constrained(WORDS), *asked.processors()), len(PROMPT))
    return sequence_law(model, PROMPT, asked.max_tokens, eos=asked.eos)


@pytest.mark.parametrize("name", RULES)
def test_the_law_of_four_tokens_is_the_masked_targets(name: str) -> None:
    """k = 2, so over two rounds or more; drafts that end, that are refused, and siblings that differ in what may follow."""
    kinds: list[tuple[Kind, Kind]] = [("plain", "far"), ("plain", "zeros")]
    for seed, (kind, draft_kind) in enumerate(kinds):
        target = TableModel(4, f"target {seed}", kind)
        small = TableModel(4, f"draft {seed}", draft_kind, target=target)
        asked = SamplingSettings(max_tokens=4, eos=(END,))
        found = law(Engine, name, target, small, asked)
        assert found == expected(target, asked)
        assert len(found) == 12


def test_the_law_under_a_grammar_and_other_processors() -> None:
    target, small = TableModel(4, "t", "plain"), TableModel(4, "d", "plain")
    asked = SamplingSettings(max_tokens=4, eos=(END,), presence_penalty=0.5, top_k=2, min_tokens=3)
    assert law(Engine, "ratio", target, small, asked) == expected(target, asked)


# Drafts that the grammar refuses, decided by the rule itself. One position, V = 4, the last token forbidden.

MASK = np.array([True, True, True, False])


def p_and_q() -> tuple[Law, Law, Law]:
    """The target's law under the mask, and q without and with it."""
    p, q = (TableModel(4, name).next_law(()) for name in ("target", "draft"))
    return norm(np.where(MASK, p, p * 0)), q, norm(np.where(MASK, q, q * 0))


def law_of(decide: Any) -> dict[Tokens, Any]:
    def one(chance: Chance) -> Tokens:
        chance.begin_round(0)
        p, q, masked = p_and_q()
        token = chance.picks(q, slot=("draft", 0))
        return (decide(p, q, masked, token, chance),)

    return exact_law(one)


def first(verified: Verified, draft: Draft) -> int:
    return draft.tokens[0] if verified.accepted else verified.next_token


def rejected_like_any_other(p: Law, q: Law, masked: Law, token: int, chance: Chance) -> int:
    draft = Draft.claimed([token], [q])
    return first(ratio([p, p], draft, chance), draft)


def dropped_and_q_masked(p: Law, q: Law, masked: Law, token: int, chance: Chance) -> int:
    draft = Draft.claimed([token], [masked]) if MASK[token] else Draft.chosen(())
    return first(ratio([p, p] if MASK[token] else [p], draft, chance), draft)


def dropped_before_verification(p: Law, q: Law, masked: Law, token: int, chance: Chance) -> int:
    draft = Draft.claimed([token], [q]) if MASK[token] else Draft.chosen(())
    return first(ratio([p, p] if MASK[token] else [p], draft, chance), draft)


def q_kept_in_the_residual(p: Law, q: Law, masked: Law, token: int, chance: Chance) -> int:
    if not MASK[token]:
        return chance.picks(residual(p, q), slot=("emit",))
    draft = Draft.claimed([token], [masked])
    return first(ratio([p, p], draft, chance), draft)


@pytest.mark.parametrize("lawful", [rejected_like_any_other, dropped_and_q_masked])
def test_an_invalid_draft_may_be_rejected_or_never_have_been(lawful: Any) -> None:
    p, _, _ = p_and_q()
    assert law_of(lawful) == {(token,): mass for token, mass in enumerate(p) if mass}


@pytest.mark.parametrize("fault", [dropped_before_verification, q_kept_in_the_residual])
def test_but_q_must_be_what_the_draft_was_judged_by(fault: Any) -> None:
    p, _, _ = p_and_q()
    assert law_of(fault) != {(token,): mass for token, mass in enumerate(p) if mass}


# The trained family.


@pytest.fixture(scope="module")
def family() -> SimpleNamespace:
    models = {name: TransformersModel.load(pretrained.path(name)) for name in ("target", "draft")}
    tokenizer = AutoTokenizer.from_pretrained(pretrained.path("target"), local_files_only=True)
    cached = {name: CachedTransformer(model.model) for name, model in models.items()}
    return SimpleNamespace(plain=models["target"], tokenizer=tokenizer, **cached)


SENTENCE = r'start: "The " WORD (" " WORD)* "." ' + "\n" + "WORD: /[a-z]+/"


def test_the_trained_model_writes_sentences_and_the_matcher_stays_in_step(family: SimpleNamespace) -> None:
    """By chain and tree the output is plain decoding's under the grammar; after every round the matcher is a fresh one."""
    grammar = Grammar.over_tokenizer(SENTENCE, family.tokenizer)
    prompt = tuple(family.tokenizer(pretrained.held_out()[0]).input_ids[:16])
    drawn = by_draft_model(family.draft)
    engine = Engine(family.target, pages=80)
    asked = {
        engine.submit(prompt, SamplingSettings(max_tokens=24, eos=(2,), **settings), one, grammar): one
        for settings, one in [
            ({"seed": 1}, Speculation(chain.token_matching, drawn, k=3)),
            ({"temperature": 0}, Speculation(tree.traversal, by_draft_model(family.draft, SHAPE), k=2, nodes=4)),
            ({"seed": 2}, Speculation(chain.token_matching, by_drafter(PromptLookup()), k=3)),
        ]
    }
    seen = 0
    for turn in range(60):
        if turn == 3:
            engine.preempt(0)
        for state in engine.step():
            fresh = grammar.allowed(state.output)
            assert state.matcher is not None
            assert state.matcher.text == state.output
            assert state.matcher.allowed == (() if fresh is None else tuple(np.flatnonzero(fresh)))
            seen += 1
    assert seen > 10
    for number in asked:
        state = engine.state(number)
        model = Processed(family.plain, (Constrained(grammar), *state.settings.processors()), len(prompt))
        chance, stops = SampledChance(state.settings.seed or 0), state.settings.stops()
        plain = generate(model, NoDrafter(), chain.token_matching, prompt, k=1, stops=stops, chance=chance).tokens
        assert (state.status, state.output) == ("finished", plain)
        assert family.tokenizer.decode(plain).startswith("The ")
