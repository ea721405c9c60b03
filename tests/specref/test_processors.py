from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.generation import logits_process as hf

from specref.chance import SampledChance, exact_law_of_rounds
from specref.generate import GreedyDrafter, ModelDrafter, NoDrafter, chain_round, generate
from specref.laws import rational, total, total_variation
from specref.models import BadModel, TableModel, TransformersModel, sequence_law
from specref.processors import (
    ORDER,
    BadWords,
    FrequencyPenalty,
    Joint,
    LogitBias,
    MinP,
    MinTokens,
    NothingLeft,
    PresencePenalty,
    Processed,
    RepetitionPenalty,
    SamplingSettings,
    Temperature,
    TopK,
    TopP,
)
from specref.processors.rows import law_of, rows_of
from specref.rules.chain import greedy, one_hot_ratio, ratio, token_matching
from specref.stopping import Stops

PROMPT = (0, 1)

EACH = {
    "temperature .5": [Temperature(0.5)],
    "temperature .7": [Temperature(0.7)],
    "greedy": [Temperature(0)],
    "top-k": [TopK(2)],
    "top-p": [TopP(Fraction(7, 10))],
    "min-p": [MinP(Fraction(1, 3))],
    "repetition": [RepetitionPenalty(2.0)],
    "presence": [PresencePenalty(0.9)],
    "frequency": [FrequencyPenalty(0.6)],
    "bias": [LogitBias({2: 1.0})],
    "min tokens": [MinTokens(3, eos=(2,))],
    "bad words": [BadWords([(1, 2), (0, 0)])],
    "all": SamplingSettings(
        max_tokens=4,
        temperature=0.5,
        top_k=2,
        top_p=0.9,
        min_p=0.05,
        repetition_penalty=2.0,
        presence_penalty=0.3,
        frequency_penalty=-0.2,
        logit_bias={1: 0.4},
        bad_words=[(1, 1)],
        min_tokens=2,
        eos=[2],
    ).processors(),
}


def speculative_law(target, drafter, rule, k=2, length=4):
    """Exact law of `length` tokens after the prompt, speculated."""
    stops = Stops(length)

    def step(tokens, chance):
        chance.begin_round(len(tokens))
        *_, emitted = chain_round(PROMPT + tokens, target, drafter, rule, min(k, stops.room(tokens) - 1), chance)
        return tokens + stops.cut(tokens, emitted)

    return exact_law_of_rounds(step, (), stops.finished)


@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize(
    ("rule", "draft_processed"), [(ratio, False), (ratio, True), (token_matching, False), (one_hot_ratio, True)]
)
def test_speculation_under_processors_is_plain_sampling_under_processors(name, rule, draft_processed):
    target = Processed(TableModel(3, f"target {name}", "ties"), EACH[name], len(PROMPT))
    small = TableModel(3, f"draft {name}")
    draft_model = Processed(small, EACH[name], len(PROMPT)) if draft_processed else small
    drafter = (GreedyDrafter if rule is one_hot_ratio else ModelDrafter)(draft_model)
    assert speculative_law(target, drafter, rule) == sequence_law(target, PROMPT, 4)


class FrozenAtRoundStart(Processed):
    """The fault: every row of a round is processed with what was committed when the round began."""

    def next_laws(self, context, drafted):
        return [law_of(self._process(row, context)) for row in rows_of(self.model, context, drafted)]


class NewestCountedTwice(Processed):
    """The fault: after the first row, the newest token is counted again."""

    def next_laws(self, context, drafted):
        rows = rows_of(self.model, context, drafted)
        histories = [context + drafted[:i] + drafted[i - 1 : i] for i in range(len(rows))]
        return [law_of(self._process(row, history)) for row, history in zip(rows, histories)]


class FirstRowOnly(Processed):
    """The fault: the rows after the first are not processed."""

    def next_laws(self, context, drafted):
        rows = rows_of(self.model, context, drafted)
        return [law_of(self._process(rows[0], context)), *map(law_of, rows[1:])]


class BonusOnly(Processed):
    """The fault: only the row behind the last draft is processed."""

    def next_laws(self, context, drafted):
        rows = rows_of(self.model, context, drafted)
        return [*map(law_of, rows[:-1]), law_of(self._process(rows[-1], context + drafted))]


@pytest.mark.parametrize(
    ("fault", "processors"),
    [
        (fault, name)
        for fault in (FrozenAtRoundStart, FirstRowOnly, BonusOnly)
        for name in ("repetition", "presence", "frequency", "bad words")
    ]
    + [(NewestCountedTwice, "frequency"), (FirstRowOnly, "bias"), (BonusOnly, "min-p"), (FrozenAtRoundStart, "min tokens")],
)
@pytest.mark.parametrize("rule", [ratio, token_matching])
def test_a_wrong_history_changes_the_law(fault, processors, rule):
    model, small = TableModel(3, "target"), TableModel(3, "draft")
    plain = sequence_law(Processed(model, EACH[processors], len(PROMPT)), PROMPT, 4)
    wrong = speculative_law(fault(model, EACH[processors], len(PROMPT)), ModelDrafter(small), rule)
    assert total_variation(plain, wrong) > Fraction(1, 100)


def test_frozen_penalties_on_a_model_to_check_by_hand():
    # A fair coin that may not show one face twice in a row, after a 1; one face is drafted. The draft 1 is refused and 0 comes.
    # The draft 0 is kept, and the row behind it still forbids the prompt's 1 alone: 0 comes again, half the time too often.
    no_repeat = [BadWords([(0, 0), (1, 1)])]
    coin = TableModel(2, 0)
    coin.next_law = lambda context: rational([1, 1])
    assert sequence_law(Processed(coin, no_repeat, 2), PROMPT, 2) == {(0, 1): 1}
    frozen = speculative_law(FrozenAtRoundStart(coin, no_repeat, 2), ModelDrafter(coin), ratio, k=1, length=2)
    assert frozen == {(0, 0): Fraction(1, 2), (0, 1): Fraction(1, 2)}


@pytest.mark.parametrize("name", EACH)
def test_each_row_of_the_window_has_its_own_history(name):
    for exact in (True, False):
        model = Processed(TableModel(3, name, exact=exact), EACH[name], len(PROMPT))
        context, drafted = (*PROMPT, 2, 0), (0, 1, 1)
        for i, law in enumerate(model.next_laws(context, drafted)):
            assert (law == model.next_law(context + drafted[:i])).all()
            assert total(law) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("name", EACH)
def test_exact_and_float_agree(name):
    for seed in range(20):
        context = (*PROMPT, 1, seed % 3)
        exact = Processed(TableModel(3, f"{name} {seed}"), EACH[name], 2).next_law(context)
        floats = Processed(TableModel(3, f"{name} {seed}", exact=False), EACH[name], 2).next_law(context)
        np.testing.assert_allclose(floats, exact.astype(float), atol=1e-12)


def logits(seed, vocabulary=40):
    return np.random.default_rng(seed).normal(scale=3, size=vocabulary)


PROMPT_IDS, OUTPUT_IDS = (3, 5, 8, 3), (7, 3, 7)
AS_TRANSFORMERS = [
    (Temperature(0.7), hf.TemperatureLogitsWarper(0.7)),
    (TopK(5), hf.TopKLogitsWarper(5)),
    (TopK(99), hf.TopKLogitsWarper(99)),
    (TopP(0.8), hf.TopPLogitsWarper(0.8)),
    (TopP(0.01), hf.TopPLogitsWarper(0.01)),
    (MinP(0.1), hf.MinPLogitsWarper(0.1)),
    (RepetitionPenalty(1.3), hf.RepetitionPenaltyLogitsProcessor(1.3)),
    (RepetitionPenalty(0.8), hf.RepetitionPenaltyLogitsProcessor(0.8)),
    (LogitBias({4: 1.5, 9: -2.0}), hf.SequenceBiasLogitsProcessor({(4,): 1.5, (9,): -2.0})),
    (BadWords([(3, 7, 9), (3, 9), (11,), (7, 12)]), hf.NoBadWordsLogitsProcessor([[3, 7, 9], [3, 9], [11], [7, 12]])),
    (MinTokens(4, (2, 6)), hf.MinNewTokensLengthLogitsProcessor(len(PROMPT_IDS), 4, [2, 6])),
    (MinTokens(3, (2, 6)), hf.MinNewTokensLengthLogitsProcessor(len(PROMPT_IDS), 3, [2, 6])),
]


@pytest.mark.parametrize(("ours", "theirs"), AS_TRANSFORMERS, ids=lambda value: repr(value)[:40])
def test_agrees_with_transformers(ours, theirs):
    for seed in range(10):
        row = logits(seed)
        expected = theirs(torch.tensor([PROMPT_IDS + OUTPUT_IDS]), torch.tensor(row)[None])[0].numpy()
        np.testing.assert_allclose(ours(row, PROMPT_IDS, OUTPUT_IDS), expected, rtol=1e-12)


def test_greedy_with_penalties_equals_transformers_generate():
    config = LlamaConfig(
        vocab_size=20, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, eos_token_id=None,
        pad_token_id=0, bos_token_id=1, initializer_range=0.5,
    )  # fmt: skip
    model = LlamaForCausalLM(config).double()
    prompt = (1, 5, 7)
    wanted = model.generate(
        torch.tensor([prompt]), do_sample=False, max_new_tokens=12, repetition_penalty=1.4, bad_words_ids=[[4], [2, 3]],
        attention_mask=torch.ones(1, 3),
    )[0, 3:]  # fmt: skip
    settings = SamplingSettings(max_tokens=12, repetition_penalty=1.4, bad_words=[(4,), (2, 3)])
    target = Processed(TransformersModel(model), settings.processors(), len(prompt))
    small = TransformersModel(LlamaForCausalLM(config).double())
    out = generate(target, GreedyDrafter(small), greedy, prompt, k=3, stops=settings.stops(), chance=SampledChance(0))
    assert out.tokens == tuple(wanted.tolist())


def test_greedy_is_temperature_zero_of_the_ratio_rule():
    target = Processed(TableModel(4, "t", "ties"), [Temperature(0)], 0)
    for seed in range(20):
        plain = generate(target, NoDrafter(), greedy, (), k=1, stops=Stops(6), chance=SampledChance(seed))
        sampled = generate(
            target, ModelDrafter(TableModel(4, seed)), ratio, (), k=2, stops=Stops(6), chance=SampledChance(seed)
        )
        assert sampled.tokens == plain.tokens


rows_with_ties = st.lists(st.integers(-3, 3), min_size=2, max_size=9).map(lambda values: np.array(values, dtype=float) / 2)


@settings(max_examples=150, deadline=None)
@given(rows_with_ties, st.integers(1, 9), st.floats(0.05, 0.95), st.floats(0.02, 1.0))
def test_kept_sets_lie_between_the_least_and_the_largest(row, k, p, m):
    """With no tolerance, K_min leaves out every token that a tie at the edge may cost, and K_max holds them all."""
    weights = np.exp(row)
    kept = {name: rule.kept(row) for name, rule in (("k", TopK(k)), ("p", TopP(p)), ("m", MinP(m)))}
    descending = np.sort(row)[::-1]
    k = min(k, len(row))
    least_k = row > descending[k] if k < len(row) else np.ones(len(row), dtype=bool)
    most_k = row >= descending[k - 1]
    ahead_at_most = np.array([weights[(row >= y)].sum() - np.exp(y) for y in row]) / weights.sum()
    ahead_at_least = np.array([weights[row > y].sum() for y in row]) / weights.sum()
    least_p, most_p = ahead_at_most < p - 1e-12, ahead_at_least < p + 1e-12
    near = 1e-12
    least_m, most_m = row > row.max() + math.log(m) + near, row >= row.max() + math.log(m) - near
    for name, least, most in (("k", least_k, most_k), ("p", least_p, most_p), ("m", least_m, most_m)):
        assert (least <= kept[name]).all()
        assert (kept[name] <= most).all()
        assert kept[name].any()
    assert kept["k"].sum() == k
    everything = Joint((TopK(k), TopP(p), MinP(m))).kept(row)
    assert (everything == (kept["k"] & kept["p"] & kept["m"])).all()
    assert everything[row.argmax()]


def test_settings_apply_in_the_stated_order_and_order_matters():
    settings = SamplingSettings(max_tokens=4, temperature=2.0, top_p=0.7)

    def kept(order):
        row = np.log([0.72, 0.20, 0.08])
        for processor in settings.processors(order):
            row = processor(row, (), ())
        return int((law_of(row) > 0).sum())

    assert kept(ORDER) == 2  # at temperature 2 the first token has .54, so the second is needed
    assert kept((*(name for name in ORDER if name != "temperature"), "temperature")) == 1  # before it the first has .72


def test_each_setting_makes_its_processor():
    penalties = {"repetition_penalty": 1.1, "presence_penalty": 0.1, "frequency_penalty": 0.2, "logit_bias": {0: 1.0}}
    truncations = {"temperature": 0.5, "top_k": 3, "top_p": 0.9, "min_p": 0.1}
    ends = {"min_tokens": 2, "eos": [0], "stop_sequences": [(1, 2)]}
    full = {"max_tokens": 9, "bad_words": [(1,)], **penalties, **truncations, **ends}
    made = SamplingSettings(**full).processors()
    assert [type(processor) for processor in made] == [
        BadWords, MinTokens, LogitBias, RepetitionPenalty, PresencePenalty, FrequencyPenalty, Temperature, TopK, TopP, MinP,
    ]  # fmt: skip
    assert SamplingSettings(max_tokens=9).processors() == ()
    stops = SamplingSettings(**full).stops()
    assert (stops.max_tokens, stops.eos, stops.sequences, stops.min_tokens) == (9, (0,), ((1, 2),), 2)


def test_settings_from_lists_are_settings_from_tuples():
    from_lists = SamplingSettings(max_tokens=4, eos=[1, 2], bad_words=[[3], [4, 5]], stop_sequences=[[6]])
    from_tuples = SamplingSettings(max_tokens=4, eos=(1, 2), bad_words=((3,), (4, 5)), stop_sequences=((6,),))
    assert from_lists == from_tuples
    assert hash(from_lists) == hash(from_tuples)
    assert SamplingSettings(max_tokens=4, logit_bias={1: 2.0}) != SamplingSettings(max_tokens=4)


def test_prompt_counts_where_stated():
    row = np.ones(4)
    assert RepetitionPenalty(2.0)(row, (0,), (1,)).tolist() == [0.5, 0.5, 1, 1]
    assert RepetitionPenalty(2.0, prompt_counts=False)(row, (0,), (1,)).tolist() == [1, 0.5, 1, 1]
    assert PresencePenalty(1.0, prompt_counts=True)(row, (0,), (1,)).tolist() == [0, 0, 1, 1]
    assert FrequencyPenalty(1.0, prompt_counts=True)(row, (0, 1), (1,)).tolist() == [0, -1, 1, 1]
    word = [(0, 1)]
    assert np.isinf(BadWords(word)(row, (0,), ())[1])
    assert not np.isinf(BadWords(word, prompt_counts=False)(row, (0,), ())[1])


def test_a_row_is_left_as_it_was():
    for row in (logits(1, 3), rational([1, 2, 3])):
        before = row.copy()
        for processors in EACH.values():
            for processor in processors:
                processor(row, (0,), (1, 1))
        assert (row == before).all()


@pytest.mark.parametrize(
    ("setting", "value", "remedy"),
    [
        ("temperature", -0.1, "0 for greedy"),
        ("temperature", math.nan, "0 for greedy"),
        ("temperature", math.inf, "finite"),
        ("temperature", 1e-9, "0 for greedy"),
        ("top_k", 0, "1 token or more"),
        ("top_k", -1, "1 token or more"),
        ("top_p", 0.0, "(0, 1]"),
        ("top_p", 1.1, "(0, 1]"),
        ("top_p", math.nan, "(0, 1]"),
        ("min_p", -0.1, "[0, 1]"),
        ("min_p", 1.5, "[0, 1]"),
        ("repetition_penalty", 0.0, "above 0"),
        ("repetition_penalty", math.nan, "above 0"),
        ("presence_penalty", math.inf, "finite"),
        ("frequency_penalty", math.nan, "finite"),
        ("logit_bias", {3: -math.inf}, "bad words"),
        ("bad_words", [()], "leave it out"),
        ("stop_sequences", [()], "leave it out"),
        ("min_tokens", -1, "0"),
        ("min_tokens", 9, "max_tokens"),
        ("max_tokens", 0, "1 or more"),
    ],
)
def test_bad_settings_name_the_value_and_the_remedy(setting, value, remedy):
    with pytest.raises(ValueError) as caught:
        SamplingSettings(**{"max_tokens": 8, "eos": [1], setting: value})
    shown = str(value).strip("{}[]").split(":")[-1].strip()
    assert remedy in str(caught.value)
    assert setting in ("bad_words", "stop_sequences") or shown in str(caught.value)


def test_bad_use_is_refused():
    model = TableModel(3, 0)
    with pytest.raises(ValueError, match="token 3, outside the vocabulary of 3"):
        Processed(model, [LogitBias({3: 1.0})], 0)
    with pytest.raises(ValueError, match="token 7, outside"):
        Processed(model, [BadWords([(1, 7)])], 0)
    with pytest.raises(ValueError, match="token -1, outside"):
        Processed(model, [MinTokens(1, (-1,))], 0)
    with pytest.raises(ValueError, match="shorter than its prompt of 2"):
        Processed(model, [], 2).next_law((0,))
    with pytest.raises(ValueError, match="prompt_length is -1"):
        Processed(model, [], -1)
    with pytest.raises(ValueError, match="order must name each"):
        SamplingSettings(max_tokens=1).processors(("top_k",))
    for exact in (True, False):
        everything = Processed(TableModel(3, 0, exact=exact), [BadWords([(0,), (1,), (2,)])], 0)
        with pytest.raises(NothingLeft, match="all 3 tokens"):
            everything.next_law(())
        with pytest.raises(NothingLeft):
            Processed(everything.model, [*everything.processors, TopP(0.5)], 0).next_law(())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_refused(bad):
    class Broken(TableModel):
        def logits(self, tokens, rows):
            return np.array([[0.0, bad, 0.0]] * rows)

    with pytest.raises(BadModel, match="logit of token 1 after 0 drafts"):
        Processed(Broken(3, 0), [], 0).next_laws((0,), (1,))
