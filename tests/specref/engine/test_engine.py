"""What the engine refuses, what it reuses, and what it keeps apart; one small case each."""

from __future__ import annotations

import numpy as np
import pytest

from specref.chance import Chance, SampledChance
from specref.draft import Draft
from specref.engine import CachedTableModel, Engine, Metrics, Speculation, by_draft_model, by_drafter
from specref.engine.models import Mask, Reading, no_entries, read_text
from specref.engine.speculation import PLAIN, cut_to_depth
from specref.generate import Round
from specref.kv_cache.base import Rows
from specref.laws import BadLaw
from specref.models import TableModel, Tokens
from specref.processors import NothingLeft, SamplingSettings
from specref.rules.chain import ratio, token_matching
from specref.tree import TokenTree

from .subjects import SPECULATIONS, TABLE, TARGET, plain_output

ASKED = SamplingSettings(max_tokens=6, seed=1)


@pytest.mark.parametrize(
    ("prompt", "asked", "message"),
    [
        ((), ASKED, "the prompt is empty"),
        ((0, 4), ASKED, "token 4 is outside the target's vocabulary of 4"),
        ((-1,), ASKED, "token -1 is outside"),
        ((0,), SamplingSettings(max_tokens=6, eos=(7,)), "token 7 is outside"),
        ((0,), SamplingSettings(max_tokens=6, stop_sequences=[(1, 9)]), "token 9 is outside"),
        ((0,), SamplingSettings(max_tokens=6, logit_bias={5: 1.0}), "token 5 is outside"),
        ((0,), SamplingSettings(max_tokens=6, bad_words=[(1, 8)]), "token 8 is outside"),
        ((0,), SamplingSettings(max_tokens=400), "up to 402 entries need 102 pages, the pool has 64"),
    ],
)
def test_a_bad_request_is_refused_at_once(prompt: Tokens, asked: SamplingSettings, message: str) -> None:
    engine = Engine(TARGET)
    with pytest.raises(ValueError, match=message):
        engine.submit(prompt, asked)
    assert not engine.requests


@pytest.mark.parametrize("name", ["greedy, drawn", "greedy tree"])
def test_a_greedy_rule_does_not_ignore_a_temperature(name: str) -> None:
    with pytest.raises(ValueError, match=r"the rule is greedy, the temperature 1\.0"):
        Engine(TARGET).submit((0,), ASKED, SPECULATIONS[name])


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.parametrize("score", [np.nan, np.inf])
def test_scores_that_are_not_finite_end_their_request_alone(score: float) -> None:
    class Spoilt(CachedTableModel):
        def read(self, past: Rows, tokens: Tokens, positions: Tokens, mask: Mask) -> Reading:
            reading = super().read(past, tokens, positions, mask)
            return Reading(reading.entries, [np.where(np.arange(4) == 2, score, row) for row in reading.scores])

    engine = Engine(TARGET)
    spoilt, sound = engine.submit((0,), ASKED), engine.submit((1,), ASKED)
    engine.step()
    engine.skip(sound)
    engine.rounds.model = Spoilt(TABLE)
    engine.step()
    engine.rounds.model = TARGET
    engine.run()
    assert (engine.state(spoilt).status, type(engine.state(spoilt).error)) == ("failed", BadLaw)
    assert engine.state(sound).output == plain_output((1,), ASKED, greedy=False)


@pytest.mark.parametrize(("batch", "chunk"), [(0, 1), (1, 0)])
def test_limits_must_be_positive(batch: int, chunk: int) -> None:
    with pytest.raises(ValueError, match="both must be 1 or more"):
        Engine(TARGET, batch=batch, chunk=chunk)


def test_speculation_must_draft() -> None:
    with pytest.raises(ValueError, match="k is 0"):
        Speculation(token_matching, PLAIN.proposer, k=0)
    with pytest.raises(ValueError, match="nodes is 2"):
        Speculation(token_matching, PLAIN.proposer, k=3, nodes=2)


def test_an_unknown_request_is_named() -> None:
    engine = Engine(TARGET)
    for action in (engine.cancel, engine.preempt, engine.skip, engine.withdraw, engine.state):
        with pytest.raises(KeyError, match="there is no request 0"):
            action(0)


class Drafts:
    """Proposes what it is told to."""

    def __init__(self, draft: Draft) -> None:
        self.fixed = draft

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        return self.fixed


@pytest.mark.parametrize(
    ("draft", "message"),
    [
        (Draft.chosen((0, 1, 2)), "drafted 3 tokens, 3 deep; at most 2 and 2 deep"),
        (Draft.chosen((0, 1, 2, 3), TokenTree([0, 1, 2, 3], [-1, 0, 0, 0])), "drafted 3 tokens, 1 deep; at most 2"),
        (Draft.chosen((3, 1), TokenTree([3, 1], [-1, 0])), "grows from token 3, but 0 was committed last"),
        (Draft.chosen((1, 4)), "drafted token 4 is outside the target's vocabulary of 4"),
        (Draft.chosen((-1,)), "drafted token -1 is outside"),
    ],
)
def test_a_drafter_that_breaks_its_word_is_loud(draft: Draft, message: str) -> None:
    engine = Engine(TARGET)
    engine.submit((0,), ASKED, Speculation(token_matching, by_drafter(Drafts(draft)), k=2))
    with pytest.raises(ValueError, match=message):
        engine.step()


def test_a_request_that_allows_no_token_fails_alone() -> None:
    engine = Engine(TARGET)
    nothing = SamplingSettings(max_tokens=6, bad_words=[(0,), (1,), (2,), (3,)])
    failing, sound = engine.submit((0,), nothing), engine.submit((0,), ASKED)
    engine.run()
    state = engine.state(failing)
    assert (state.status, state.output, type(state.error)) == ("failed", (), NothingLeft)
    assert engine.state(sound).output == plain_output((0,), ASKED, greedy=False)
    assert engine.memory.pool.free == 64


def test_a_cancelled_request_keeps_its_output_and_gives_back_its_pages() -> None:
    engine = Engine(TARGET, speculation=SPECULATIONS["token matching, drawn"])
    number = engine.submit((0, 1), ASKED)
    engine.step()
    engine.step()
    engine.cancel(number)
    state = engine.state(number)
    assert state.status == "cancelled"
    assert state.output == plain_output((0, 1), ASKED, greedy=False)[: len(state.output)] != ()
    assert (state.cache, engine.memory.pool.free) == (None, 64)
    engine.cancel(number)
    assert engine.step() == []


def test_a_prefix_is_read_once() -> None:
    """The second request begins with the pages of the first; the last token of its prompt is always read."""
    engine = Engine(TARGET, page_size=2, chunk=8)
    engine.submit((0, 1, 2, 3, 0), ASKED)
    engine.run()
    for prompt, found in [((0, 1, 2, 3, 0), 4), ((0, 1, 2, 3), 2), ((0, 1, 2, 0, 0), 2), ((1, 1, 2), 0)]:
        number = engine.submit(prompt, ASKED)
        (request,) = engine.scheduler.admit()
        engine.memory.open(request)
        assert request.read == found
        request.status = "running"
        engine.run()
        assert engine.state(number).output == plain_output(prompt, ASKED, greedy=False)


def test_requests_without_a_seed_draw_differently_and_again_the_same() -> None:
    def outputs(seed: int) -> list[Tokens]:
        engine = Engine(TARGET, seed=seed)
        numbers = [engine.submit((0,), SamplingSettings(max_tokens=12)) for _ in range(3)]
        engine.run()
        return [engine.state(number).output for number in numbers]

    assert outputs(0) == outputs(0)
    assert len({*outputs(0), *outputs(1)}) == 6


def test_short_memory_delays_and_never_deadlocks() -> None:
    """Memory for one request and a half: the younger give way, the outputs stay."""
    asked = [SamplingSettings(max_tokens=10, seed=seed) for seed in range(4)]
    engine = Engine(TARGET, speculation=SPECULATIONS["token matching, drawn"], pages=12, page_size=2, batch=4)
    numbers = [engine.submit((0, 1, 2), settings) for settings in asked]
    engine.run()
    for number, settings in zip(numbers, asked):
        assert engine.state(number).output == plain_output((0, 1, 2), settings, greedy=False)


@pytest.mark.parametrize("most", range(8, 16))
def test_a_row_that_has_just_finished_is_not_sent_back(most: int) -> None:
    """The older request comes back into the row behind the younger one, and runs out of memory as that one finishes."""
    older, younger = SamplingSettings(max_tokens=20, seed=1), SamplingSettings(max_tokens=most, seed=2)
    engine = Engine(TARGET, pages=23, page_size=1)
    engine.submit((0,), older)
    engine.submit((1,), younger)
    engine.step()
    engine.preempt(0)
    while len(engine.state(1).output) < most:
        engine.step()
    assert engine.state(1).status == "finished"
    engine.run()
    assert engine.state(0).output == plain_output((0,), older, greedy=False)
    assert engine.state(1).output == plain_output((1,), younger, greedy=False)


def test_a_skipped_row_changes_nothing_of_itself_and_does_not_stop_the_others() -> None:
    engine = Engine(TARGET)
    one, two = engine.submit((0,), ASKED), engine.submit((1,), ASKED)
    engine.skip(one)
    assert [state.number for state in engine.step()] == [two]
    assert engine.state(one).output == ()
    engine.withdraw(one)
    assert [len(state.output) for state in engine.step()] == [0, 2]
    assert [len(state.output) for state in engine.step()] == [1, 3]


def test_log_probabilities_are_the_models_own_at_temperature_0() -> None:
    engine = Engine(TARGET, speculation=SPECULATIONS["greedy, drawn"])
    number = engine.submit((0,), SamplingSettings(max_tokens=6, temperature=0))
    engine.run()
    state = engine.state(number)
    expected = [TABLE.next_law((0, *state.output[:i]))[token] for i, token in enumerate(state.output)]
    assert np.allclose(np.exp(state.logprobs), expected)
    assert max(state.logprobs) < 0


def test_self_draft_accepts_everything_and_is_counted_without_the_bonus() -> None:
    engine = Engine(TARGET)

    number = engine.submit((0,), SamplingSettings(max_tokens=8), Speculation(ratio, by_draft_model(TARGET), k=3))
    engine.run()
    assert engine.state(number).metrics == Metrics(2, 2, 6, 6, [2, 2, 2], 8)


def test_metrics_add_up() -> None:
    one, two, both = Metrics(), Metrics(), Metrics()
    for metrics, done in [(one, Round(0, (1, 2), 2, (1, 2, 3), "ratio")), (two, Round(0, (1,), 1, (1,), "ratio"))]:
        metrics.add(done)
        both.add(done)
    assert one + two == two + one == both
    assert one.accepted_per_position == [1, 1]
    assert (Metrics().acceptance_rate, Metrics().tokens_per_round) == (None, None)


def test_a_model_reads_a_tree_as_it_reads_each_path() -> None:
    model = CachedTableModel(TableModel(4, seed=5))
    past = read_text(model, no_entries(model), (1, 2)).entries
    tree = TokenTree([3, 0, 1, 2], [-1, 0, 0, 2])
    reading = model.read(past, tree.tokens, tree.position_ids(2), tree.ancestor_mask())
    for node in range(len(tree)):
        alone = read_text(model, past, (3, *tree.spells(node)))
        assert np.array_equal(reading.entries[node], alone.entries[-1])
        assert np.array_equal(reading.scores[node], alone.scores[-1])


@pytest.mark.parametrize("wrong", ["lost", "stale", "swapped", "of another prefix", "at another position"])
def test_a_wrong_cache_is_read_as_another_context(wrong: str) -> None:
    model = CachedTableModel(TableModel(4, seed=5))
    entries = read_text(model, no_entries(model), (1, 2, 0, 3)).entries
    other = read_text(model, no_entries(model), (3, 2, 0, 3)).entries
    shifted = model.read(entries[:3], (3,), (5,), np.ones((1, 1), np.bool_)).entries
    rows = {
        "lost": entries[[0, 1, 3]],
        "stale": np.concatenate([entries, entries[-1:]]),
        "swapped": entries[[0, 2, 1, 3]],
        "of another prefix": np.concatenate([entries[:2], other[2:]]),
        "at another position": np.concatenate([entries[:3], shifted]),
    }[wrong]
    assert model.understood(entries) == (1, 2, 0, 3)
    assert model.understood(rows) not in ((1, 2, 0, 3), (1, 2, 3))


def test_a_shape_is_cut_level_by_level() -> None:
    assert cut_to_depth((-1, 0, 0, 1, 3), 0) == (-1,)
    assert cut_to_depth((-1, 0, 0, 1, 3), 2) == (-1, 0, 0, 1)


def test_the_same_seed_twice_in_one_batch_writes_the_same() -> None:
    engine = Engine(TARGET, speculation=SPECULATIONS["ratio"])
    one, two = engine.submit((0, 1), ASKED), engine.submit((0, 1), ASKED)
    engine.run()
    assert engine.state(one).output == engine.state(two).output
    assert isinstance(engine.requests[one].chance, SampledChance)
