from __future__ import annotations

import math
import random
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from specref.chance import SampledChance, exact_law
from specref.draft import Draft
from specref.generate import ModelDrafter, NoDrafter, Round, chain_round, generate
from specref.laws import overlap, rational
from specref.models import TableModel
from specref.rules.chain import ratio, token_matching
from specref.rules.tree import recursive_rejection, sequential_one_hot
from specref.speedup import (
    H100,
    LLAMA3_8B,
    LLAMA3_70B,
    PUBLISHED,
    Hardware,
    acceptance_from_share,
    best_k,
    best_k_on,
    best_tree,
    break_even,
    break_even_batch,
    chain,
    compare,
    expected_tokens,
    figure,
    heads,
    measure,
    medusa_heads,
    plain,
    row,
    sibling_acceptance,
    speed_up,
    table,
    tokens_of_tree,
    tokens_per_round,
)
from specref.stopping import Stops
from specref.tree import TokenTree


def mean(law):
    return sum(value * probability for value, probability in law.items())


def test_expected_tokens_is_the_closed_form():
    for acceptance in (0.0, 0.3, 0.7, 0.99):
        for k in range(9):
            assert expected_tokens(acceptance, k) == pytest.approx((1 - acceptance ** (k + 1)) / (1 - acceptance))
    assert expected_tokens(Fraction(1, 2), 2) == Fraction(7, 4)


@pytest.mark.parametrize("kind", ["plain", "zeros", "near", "disjoint", "same"])
def test_tokens_per_round_is_the_enumerated_mean(kind):
    for seed in range(3):
        target = TableModel(3, f"target {seed}")
        small = TableModel(3, seed, kind, target=target)

        def tokens(chance, target=target, small=small):
            chance.begin_round(0)
            return chain_round((1,), target, ModelDrafter(small), ratio, 3, chance)[1] + 1

        assert tokens_per_round(target, small, (1,), 3) == mean(exact_law(tokens))


def test_one_number_is_right_only_where_acceptance_does_not_vary():
    constant, small = TableModel(4, 1, memory=0), TableModel(4, 2, memory=0)
    acceptance = overlap(constant.next_law(()), small.next_law(()))
    assert tokens_per_round(constant, small, (), 3) == expected_tokens(acceptance, 3)
    # Half of all texts are easy for ever after their first token, half are hopeless: 1 + .5 + .5 tokens, not 1 + .75 + .375.
    target = TableModel(2, 0)
    target.next_law = lambda context: rational([1, 1] if not context else [1, 0])
    draft = TableModel(2, 0)
    draft.next_law = lambda context: rational([1, 1] if not context else [[1, 0], [0, 1]][context[0]])
    assert tokens_per_round(target, draft, (), 2) == Fraction(5, 2)
    assert tokens_per_round(target, draft, (), 3) == 3
    assert expected_tokens(Fraction(3, 4), 3) == Fraction(175, 64)  # the mean acceptance of drafted tokens, in the formula


def siblings_drawn(p, q, siblings, replacement):
    def accepted(chance):
        chance.begin_round(0)
        draft = Draft.drawn_tree(lambda path: q, 0, [-1, *[0] * siblings], chance, replacement=replacement)
        return recursive_rejection([p] * len(draft.tokens), draft, chance).accepted

    return mean(exact_law(accepted))


@pytest.mark.parametrize("siblings", [1, 2, 3])
def test_sibling_acceptance_is_the_rules_own(siblings):
    dice = random.Random()
    for _ in range(6):
        p = rational([*dice.choices(range(6), k=3), 1])
        q = rational([*dice.choices(range(6), k=3), 1])
        assert sibling_acceptance(p, q, siblings, "with_replacement") == siblings_drawn(p, q, siblings, True), (p, q)
        assert sibling_acceptance(p, q, siblings, "without_replacement") == siblings_drawn(p, q, siblings, False), (p, q)
        best = sorted(range(4), key=lambda token: -q[token])[:siblings]
        chosen = Draft.chosen((0, *best), TokenTree((0, *best), (-1, *[0] * siblings)))

        def accepted(chance, p=p, chosen=chosen, siblings=siblings):
            return sequential_one_hot([p] * (siblings + 1), chosen, chance).accepted

        assert sibling_acceptance(p, q, siblings, "chosen") == mean(exact_law(accepted))


def test_floats_agree_with_fractions():
    p, q = rational([4, 3, 2, 1]), rational([1, 2, 3, 4])
    for how in ("with_replacement", "without_replacement", "chosen"):
        exact = sibling_acceptance(p, q, 3, how)
        assert sibling_acceptance(p.astype(float), q.astype(float), 3, how) == pytest.approx(float(exact), abs=1e-12)


def test_tokens_of_a_tree_are_the_enumerated_mean():
    p, q = rational([3, 2, 1]), rational([1, 3, 2])
    cumulative = [sibling_acceptance(p, q, siblings, "with_replacement") for siblings in range(3)]
    by_rank = np.diff(np.array(cumulative, dtype=object))
    for parents in ([-1, 0, 0, 1], [-1, 0, 1, 1], [-1, 0, 0, 2, 1], [-1, 0, 1, 2]):

        def tokens(chance, parents=parents):
            chance.begin_round(0)
            draft = Draft.drawn_tree(lambda path: q, 0, parents, chance, replacement=True)
            return recursive_rejection([p] * len(parents), draft, chance).accepted + 1

        assert tokens_of_tree(parents, by_rank) == mean(exact_law(tokens))
    assert tokens_of_tree([-1, 0, 1, 2], [0.5]) == expected_tokens(0.5, 3)


def test_the_best_tree_is_the_best_of_all():
    for by_rank in ([0.6, 0.2, 0.1], [0.5, 0.5, 0.0], [0.3, 0.25, 0.2]):
        for nodes in range(1, 7):
            trees = ([-1, *rest] for rest in product(*(range(n) for n in range(1, nodes))))
            allowed = (tree for tree in trees if max(map(tree.count, range(nodes))) <= len(by_rank))
            best = max(tokens_of_tree(tree, by_rank) for tree in allowed)
            assert tokens_of_tree(best_tree(by_rank, nodes), by_rank) == pytest.approx(best)
            TokenTree([0] * nodes, best_tree(by_rank, nodes))
    assert len(best_tree([1.0], 9)) == 9
    assert best_tree([], 9) == [-1]


def test_best_k_and_break_even():
    for acceptance, cost in product((0.2, 0.5, 0.8), (0.01, 0.1, 0.4)):
        k = best_k(acceptance, cost)
        assert all(speed_up(acceptance, k, cost) >= speed_up(acceptance, other, cost) for other in range(1, 33))
        assert (speed_up(acceptance, 1, cost) > 1) == (acceptance > cost)  # one draft pays iff acceptance exceeds its cost
    for k, cost in product((1, 4, 8), (0.0, 0.05, 0.3)):
        assert speed_up(break_even(k, cost), k, cost) == pytest.approx(1)
    with pytest.raises(ValueError, match="no acceptance is enough"):
        break_even(2, 1.2)
    for share, k in product((0.0, 0.3, 0.9, 1.0), (1, 4)):
        assert (expected_tokens(acceptance_from_share(share, k), k) - 1) / k == pytest.approx(share)
    assert acceptance_from_share(0.6, 1) == pytest.approx(0.6)


def test_from_memory_bound_to_compute_bound():
    lookup = chain("lookup", 0.5, 4)
    small = row(LLAMA3_8B, H100, lookup, batch=1, context=0)
    assert small.speed_up == pytest.approx(lookup.expected_tokens)  # drafts are free while memory-bound
    large = row(LLAMA3_8B, H100, lookup, batch=4096, context=0)
    assert large.speed_up == pytest.approx(lookup.expected_tokens / 5)  # every verified token is paid for
    rows = table(LLAMA3_8B, H100, [plain(), lookup], [1, 4, 16, 64, 256, 1024], context=512)
    assert [row.method for row in rows] == ["plain"] * 6 + ["lookup"] * 6
    assert all(row.speed_up == pytest.approx(1) for row in rows[:6])
    for method in (rows[:6], rows[6:]):
        latencies = [row.seconds_per_token for row in method]
        assert latencies == sorted(latencies)  # a request waits longer in a larger batch
        throughputs = [row.tokens_per_second for row in method]
        assert throughputs == sorted(throughputs)
        assert all(row.tokens_per_second == pytest.approx(row.batch / row.seconds_per_token) for row in method)
    edge = break_even_batch(LLAMA3_8B, H100, lookup, context=0)
    assert row(LLAMA3_8B, H100, lookup, edge - 1, 0).speed_up > 1 >= row(LLAMA3_8B, H100, lookup, edge, 0).speed_up
    assert break_even_batch(LLAMA3_8B, H100, chain("perfect", 1.0, 4), largest=512) is None
    # Caches are read too: longer contexts stay memory-bound to larger batches, very long ones at any.
    assert break_even_batch(LLAMA3_8B, H100, lookup, context=512) > edge
    assert break_even_batch(LLAMA3_8B, H100, lookup, context=4096) is None


def test_the_best_k_shrinks_as_the_batch_grows():
    on = {"target": LLAMA3_70B, "hardware": H100.times(4), "drafter": LLAMA3_8B, "context": 0}
    best = [best_k_on(acceptance=0.7, batch=batch, **on) for batch in (1, 8, 64, 128, 256, 1024)]
    assert best == sorted(best, reverse=True)
    assert best[0] == best_k(0.7, LLAMA3_8B.parameters / LLAMA3_70B.parameters)
    assert best[-1] == 0


def test_measured_rounds_of_a_constant_model_agree_with_the_formula():
    target, drafter = TableModel(4, 1, memory=0, exact=False), ModelDrafter(TableModel(4, 2, memory=0, exact=False))
    n, seed = 2000, random.getrandbits(40)
    chance, rounds = SampledChance(seed), []
    for start in range(n):
        chance.begin_round(start)
        draft, accepted, emitted = chain_round((), target, drafter, ratio, 3, chance)
        rounds.append(Round(start, draft.tokens, accepted, emitted, "ratio"))
    measured, acceptance = measure(rounds), overlap(target.next_law(()), drafter.model.next_law(()))
    off = math.sqrt(math.log(2e9) / (2 * n))  # Hoeffding, false alarm below 1e-9 for each of the two
    assert abs(measured.by_position[0] - acceptance) < off, seed
    assert abs(measured.tokens_per_round - expected_tokens(acceptance, 3)) < 3 * off, seed
    assert (measured.rounds, measured.drafted) == (n, 3 * n)
    assert measured.share < measured.acceptance
    plain_rounds = generate(target, NoDrafter(), token_matching, (), k=1, stops=Stops(3), chance=chance).rounds
    with pytest.raises(ValueError, match="nothing was drafted in 3 rounds"):
        measure(plain_rounds)


def test_draft_cost_is_that_of_the_simple_formula_while_memory_bound():
    cost = LLAMA3_8B.parameters / LLAMA3_70B.parameters
    drafted = row(LLAMA3_70B, H100.times(4), chain("draft", 0.7, 4, LLAMA3_8B), batch=1, context=0)
    assert drafted.speed_up == pytest.approx(speed_up(0.7, 4, cost))
    slow_launch = Hardware("slow launch", 3.35e12, 989e12, 80e9, seconds_per_pass=0.005)
    assert row(LLAMA3_70B, slow_launch, chain("draft", 0.7, 4, LLAMA3_8B), 1, 0).speed_up < drafted.speed_up


def test_memory_of_each_method():
    batch, context = 8, 1000
    own = LLAMA3_70B.weight_bytes + batch * context * LLAMA3_70B.kv_bytes
    on = {"target": LLAMA3_70B, "hardware": H100.times(2), "batch": batch, "context": context}
    assert row(method=plain(), **on).memory == own
    assert row(method=chain("lookup", 0.5, 4), **on).memory == own
    assert row(method=chain("early exit", 0.5, 4, LLAMA3_8B, own_memory=False), **on).memory == own
    two_models = own + LLAMA3_8B.weight_bytes + batch * context * LLAMA3_8B.kv_bytes
    assert row(method=chain("draft", 0.5, 4, LLAMA3_8B), **on).memory == two_models
    assert not row(method=chain("draft", 0.5, 4, LLAMA3_8B), **on).fits
    four = medusa_heads(LLAMA3_70B, 8192, 128256, 4)
    assert row(method=heads("Medusa", 2.5, 64, four), **on).memory == own + four.weight_bytes


def test_published_points_lie_where_the_text_says():
    draft_model, large_heads, small_heads = PUBLISHED
    rows = {(row.point, row.k): row for row in compare()}
    by_k = [row for (point, _), row in rows.items() if point is draft_model]
    assert max(row.as_acceptance for row in by_k) < draft_model.speed_up
    assert max(speed_up(0.7, k, draft_model.draft_cost) for k in range(1, 33)) < 1.92
    assert rows[draft_model, 3].as_share == pytest.approx(draft_model.speed_up, abs=0.02)
    assert rows[small_heads, 4].as_acceptance < 1.8 < rows[large_heads, 4].as_acceptance
    assert min(rows[small_heads, 4].as_share, rows[large_heads, 4].as_share) > 2.5


def test_the_figure_draws_every_method(tmp_path):
    rows = table(LLAMA3_70B, H100.times(2), [plain(), chain("draft", 0.7, 4, LLAMA3_8B)], [1, 16, 256])
    assert {row.fits for row in rows} == {True, False}
    drawn = figure(rows, title="Llama-3 70B")
    assert [text.get_text() for text in drawn.axes[0].get_legend().get_texts()] == ["plain", "draft"]
    drawn.savefig(tmp_path / "speed.svg")
    assert (tmp_path / "speed.svg").stat().st_size > 5_000
    with pytest.raises(ValueError, match="no rows"):
        figure([])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: expected_tokens(1.2, 3), "acceptance is 1.2"),
        (lambda: expected_tokens(0.5, -1), "k is -1"),
        (lambda: tokens_of_tree([-1, 0, 0], [0.5]), "node 0 has more than 1 children"),
        (lambda: best_tree([0.1, 0.2], 3), "falling acceptance"),
        (lambda: best_tree([0.2], 0), "1 node or more"),
        (lambda: acceptance_from_share(1.5, 3), "share is 1.5"),
        (lambda: row(LLAMA3_8B, H100, plain(), 0), "batch is 0"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
