"""Every bet is a law, is read the same from the table and at the token, and pays 1 on average under a correct engine."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from statistics_laws import degenerate_laws, random_laws

from conformance.statistics import STANDARD_BETS, Bet, FaultBank, WrongUse
from conformance.statistics.fault_laws import same_coin
from conformance.statistics.rows import Emitted, Rows

LAWS = {
    "random": random_laws(40, 7, 1),
    "zeros": random_laws(40, 7, 2, zeros=0.4),
    "two tokens": random_laws(40, 2, 3),
    "wide": random_laws(6, 300, 4),
    "degenerate": degenerate_laws(),
}


@pytest.mark.parametrize("laws", LAWS.values(), ids=LAWS)
@pytest.mark.parametrize("bet", STANDARD_BETS, ids=lambda bet: bet.name)
def test_bet_is_a_law_read_alike_in_table_and_at_token(bet, laws):
    p, q = laws
    rows = Rows(p, q)
    table = bet.table(rows)  # raises unless every row is a law
    for token in range(p.shape[1]):
        at = bet.at_tokens(Emitted(np.full(len(p), token), rows), rows)
        np.testing.assert_allclose(at, table[:, token], atol=1e-12)


@pytest.mark.parametrize("laws", LAWS.values(), ids=LAWS)
def test_every_bet_pays_one_on_average_under_the_target(laws):
    p, q = laws
    bank = FaultBank()
    for i in range(len(p)):
        mean = np.exp(bank.log_table(p[i], q[i])) @ p[i]
        # below 1 where the bet puts money on tokens that p excludes
        assert np.all(mean <= 1 + 1e-12)
        if (p[i] > 0).all():
            np.testing.assert_allclose(mean, 1, atol=1e-12)


def test_table_and_stream_give_the_same_wealth():
    p, q = random_laws(1, 9, 5)
    tokens = np.random.default_rng(0).integers(0, 9, 500)
    bank = FaultBank()
    rows = Rows(np.repeat(p, 500, axis=0), np.repeat(q, 500, axis=0))
    streamed = bank.log_bets(rows, tokens).sum(axis=0)
    np.testing.assert_allclose(streamed, bank.from_counts(p[0], q[0], np.bincount(tokens, minlength=9)), atol=1e-9)


P, Q = np.array([[0.10, 0.60, 0.25, 0.05]]), np.array([[0.30, 0.35, 0.10, 0.25]])


@pytest.mark.parametrize(
    ("name", "distance"),
    [
        ("leak to the draft", 0.400),
        ("resample from the target", 0.060),
        ("argmax draft", 0.400),
        ("ratio upside down", 0.400),
    ],
)
def test_total_variation_of_known_faults(name, distance):
    bet = next(bet for bet in STANDARD_BETS if bet.name == name)
    assert 0.5 * np.abs(bet.table(Rows(P, Q)) - P).sum() == pytest.approx(distance, abs=5e-4)


def test_same_coin_is_exactly_nine_160ths_off():
    assert 0.5 * np.abs(same_coin(P, Q) - P).sum() == pytest.approx(float(Fraction(9, 160)), abs=1e-12)


def test_same_coin_against_simulation_with_one_uniform():
    p, q = random_laws(1, 6, 11)
    rng = np.random.default_rng(3)
    n = 400_000
    drafted, u = rng.choice(6, n, p=q[0]), rng.random(n)
    kept = u * q[0][drafted] < p[0][drafted]
    left = np.maximum(p[0] - q[0], 0)
    replaced = np.minimum(np.searchsorted(np.cumsum(left / left.sum()), u, side="right"), 5)
    seen = np.bincount(np.where(kept, drafted, replaced), minlength=6) / n
    # 6 cells, 5 standard deviations each: a false alarm once in a million runs
    assert np.all(np.abs(seen - same_coin(p, q)[0]) < 5 * np.sqrt(0.25 / n))


def test_a_new_fault_is_a_law_and_nothing_more():
    flat = Bet("flat", lambda p, q: np.full_like(p, 1 / p.shape[1]))
    bank = FaultBank((*STANDARD_BETS, flat))
    counts = np.full(4, 400)
    evidence = bank.evidence(bank.from_counts(P[0], Q[0], counts), 1600)
    assert evidence.holder.startswith("flat")
    assert evidence.log10_e > 6


@pytest.mark.parametrize(
    ("bets", "settings", "message"),
    [
        ((Bet("half", lambda p, q: p / 2),), {}, "not laws"),
        ((STANDARD_BETS[0], STANDARD_BETS[0]), {}, "share a name"),
        (STANDARD_BETS[:1], {"has_q": False}, "no bet"),
    ],
)
def test_wrong_banks_are_refused(bets, settings, message):
    with pytest.raises(WrongUse, match=message):
        FaultBank(bets, **settings).from_counts(P[0], Q[0], np.ones(4, int))


@pytest.mark.parametrize(
    ("p", "counts", "message"),
    [
        (np.array([0.5, 0.6]), np.ones(2, int), "sums to"),
        (np.array([0.5, 0.5]), np.ones(3, int), "vocabulary of 2"),
        (np.array([0.5, 0.5]), np.array([1, -1]), "nonnegative"),
        (np.array([1.5, -0.5]), np.ones(2, int), "negative"),
        (np.array([np.nan, 1.0]), np.ones(2, int), "sums to"),
    ],
)
def test_wrong_laws_and_counts_are_refused(p, counts, message):
    with pytest.raises(WrongUse, match=message):
        FaultBank().from_counts(p, np.array([0.5, 0.5]), counts)


@pytest.mark.parametrize(("settings", "message"), [({"sizes": (1.0,)}, "between 0 and 1"), ({"weight": 0.0}, "positive")])
def test_wrong_bets_are_refused(settings, message):
    with pytest.raises(WrongUse, match=message):
        Bet("draft", lambda p, q: q, **settings)


def test_every_bet_stays_a_law_where_rounding_is_all_there_is() -> None:
    """p = q, nearly p = q, and disjoint supports: differences of sums that should be 0 may round to -1e-16."""
    rng = np.random.default_rng()
    p = rng.dirichlet(np.full(114, 0.1), size=2_000)
    apart = np.where(np.arange(114) < 57, p, 0.0)
    apart /= apart.sum(axis=1, keepdims=True)
    other = np.where(np.arange(114) >= 57, p, 0.0)
    other /= other.sum(axis=1, keepdims=True)
    nearly = p * (1 + rng.uniform(-1e-15, 1e-15, p.shape))
    for target, draft in ((p, p), (p, nearly / nearly.sum(axis=1, keepdims=True)), (apart, other)):
        rows = Rows(target, draft)
        for bet in STANDARD_BETS:
            assert bet.table(rows).min() >= 0
