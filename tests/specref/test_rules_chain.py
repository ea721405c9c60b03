"""Chain rules: proven lossless over several rounds, and the exact laws of what breaks them."""

from __future__ import annotations

import math
import secrets
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from scipy import integrate, stats

from specref import strategies
from specref.chance import BadWeights, Chance, EmptyWeights, EnumeratedChance, SampledChance, exact_law, exact_law_of_rounds
from specref.draft import Draft
from specref.generate import ModelDrafter, chain_round, generate
from specref.laws import BadLaw, norm, one_hot, overlap, positive_part, rational, without
from specref.models import TableModel, sequence_law
from specref.proof import chain_instances, chosen_chain, first_token, prove_all, subject
from specref.proof.first_token import P, Q
from specref.proof.prove import ProofResult, by_generation
from specref.race import RacingChance, gumbel_max, race
from specref.rules import Verified, rewired
from specref.rules.chain import greedy, one_hot_ratio, ratio, token_matching
from specref.stopping import Stops


def error_and_kept(rule, wanted=P, **settings):
    """Total variation of the first token, and the probability that a draft is kept."""
    found = first_token(rule, **settings)
    return found.variation(wanted), found.kept


LOSSLESS = ("ratio", "token_matching", "one_hot_ratio", "greedy")


@pytest.mark.parametrize("name", LOSSLESS)
def test_200_random_models_over_two_rounds_and_more(name: str) -> None:
    """The exact law of k + 2 tokens equals the target's (`==` on Fractions): V 2-4, k 1-3, every kind of row, EOS or none.

    No round emits more than k + 1 tokens, so every generation that EOS does not end takes two rounds or more.
    """
    result = ProofResult(name, "chain", "lossless")
    for i, instance in enumerate(chain_instances(216, "foundation", memory=None)):
        by_generation(subject(name), instance, result, eos=(0,) if i % 2 else ())
    assert result.generations == 216
    assert result.equal, result.counterexample


@pytest.mark.parametrize("name", ["ratio", "token_matching", "one_hot_ratio", "greedy", "block"])
def test_fresh_models_are_followed_too(name: str) -> None:
    seed = secrets.randbits(32)
    [result] = prove_all(scale=0.1, seed=seed, workers=1, subjects=[subject(name)])
    assert result.as_claimed, f"seed {seed}: {result.counterexample}"


@settings(max_examples=100)
@given(strategies.drafted_rounds(max_k=1))
def test_the_ratio_rule_keeps_what_the_laws_share(round) -> None:
    if round.draft.tokens:
        p, q = round.p[0], round.draft.laws[0]
        kept = error_and_kept(ratio, draw=q, shown=p, wanted=p)
        assert kept == (0, overlap(p, q))


class UpsideDown(EnumeratedChance):
    def accepts(self, numerator, denominator=1, *, slot):
        return super().accepts(denominator, numerator, slot=slot)


class AcceptsAlways(EnumeratedChance):
    def accepts(self, numerator, denominator=1, *, slot):
        return True


class SharedCoin(EnumeratedChance):
    def number(self, slot):
        return super().number(("accept", 0) if slot == ("emit",) else slot)


def match_then_draw_again(p, draft, chance):
    """Token matching that throws the target's draw away and draws another one."""
    for i, x in enumerate(draft.tokens):
        if chance.picks(p[i], slot=("token", i)) != x:
            return Verified(i, chance.picks(p[i], slot=("emit",)))
    return Verified(len(draft.tokens), chance.picks(p[-1], slot=("emit",)))


def exact(weights) -> np.ndarray:
    """Floats as the Fractions they are, normalised."""
    return norm(np.array([Fraction(float(weight)) for weight in weights], dtype=object))


def best(law) -> np.ndarray:
    return one_hot(int(law.argmax()), like=law)


TRUNCATED = norm(without(Q, 2))  # the top 3 of q


def one_token_residual(p, draft, chance):
    """The ratio rule whose residual subtracts q at the drafted token alone."""
    for i, (x, q) in enumerate(zip(draft.tokens, draft.laws)):
        if not chance.accepts(p[i][x], q[x], slot=("accept", i)):
            return Verified(i, chance.picks(positive_part(p[i] - q * one_hot(x, like=q)), slot=("emit",)))
    return Verified(len(draft.tokens), chance.picks(p[-1], slot=("emit",)))


TABLE = {
    # name: (rule, settings, total variation, probability that the draft is kept)
    "ratio": (ratio, {}, 0, 0.600),
    "drawn from q, verified as if one-hot": (one_hot_ratio, {}, 0, 0.278),
    "argmax draft, one-hot": (one_hot_ratio, {"draw": chosen_chain([1])}, 0, 0.600),
    "token matching": (token_matching, {}, 0, 0.278),
    "argmax draft, soft q": (ratio, {"draw": chosen_chain([1]), "claim": Q}, 0.400, 1.000),
    "drawn from the top 3, raw q": (ratio, {"draw": TRUNCATED, "claim": Q}, 0.083, 0.556),
    "residual at the drafted token alone": (one_token_residual, {}, 0.042, 0.600),
    "resample from p": (rewired(ratio, residual=lambda p, q: p), {}, 0.060, 0.600),
    "softmax of the residual": (
        rewired(ratio, residual=lambda p, q: exact([math.exp(x) for x in positive_part(p - q)])),
        {},
        0.180,
        0.600,
    ),
    "argmax of the residual": (rewired(ratio, residual=lambda p, q: best(positive_part(p - q))), {}, 0.150, 0.600),
    "always accept": (ratio, {"chance_type": AcceptsAlways}, 0.400, 1.000),
    "token matching, but a new draw": (match_then_draw_again, {}, 0.046, 0.278),
    "argmax verification": (greedy, {}, 0.400, 0.350),
    "ratio upside down": (ratio, {"chance_type": UpsideDown}, 0.400, 0.794),
    "T = 1 where T = 1/2 was asked for": (ratio, {"wanted": norm(P * P)}, 0.228, 0.600),
    "softmax twice": (ratio, {"shown": exact([math.exp(x) for x in P])}, 0.260, 0.856),
    "one coin for acceptance and residual": (ratio, {"chance_type": SharedCoin}, 0.056, 0.600),
}


@pytest.mark.parametrize("name", TABLE)
def test_exact_laws_of_the_table(name: str) -> None:
    rule, arguments, variation, kept = TABLE[name]
    found = error_and_kept(rule, **arguments)
    assert [round(float(value), 3) for value in found] == [variation, kept]
    assert (found[0] == 0) == (variation == 0)  # lossless exactly, not nearly


def test_fractions_of_the_table() -> None:
    assert error_and_kept(one_hot_ratio)[1] == error_and_kept(token_matching)[1] == Fraction(111, 400)  # sum of p q
    assert error_and_kept(ratio, draw=TRUNCATED, claim=Q)[0] == Fraction(1, 12)
    assert error_and_kept(rewired(ratio, residual=lambda p, q: p))[0] == Fraction(3, 50)
    assert error_and_kept(ratio, chance_type=SharedCoin) == (Fraction(9, 160), Fraction(3, 5))


def test_an_argmax_draft_taken_as_drawn_is_off_by_up_to_a_half() -> None:
    """p = q = (1/2, 1/2): token 0 is always drafted and always kept."""
    fair = rational([1, 1])
    assert first_token(ratio, chosen_chain([0]), claim=fair, shown=fair).variation(fair) == Fraction(1, 2)
    assert first_token(one_hot_ratio, chosen_chain([0]), shown=fair).variation(fair) == 0


def test_same_gumbel_noise_for_draft_and_residual() -> None:
    """Vector noise cannot be enumerated: .025 of the table by integration over the winning time.

    The draft x is the first of E_v / q_v, at time t; the others then have E_v = q_v t + F_v with F_v exponential. The residual
    token y is the first of E_v / r_v: it wins at s if E_y = r_y s while every other r_v s < E_v.
    """
    p, q = P.astype(float), Q.astype(float)
    r = np.maximum(p - q, 0)
    law = np.minimum(p, q)
    for x in range(4):
        rejected = 1 - min(p[x] / q[x], 1)
        if not rejected:
            continue
        for y in np.flatnonzero(r):
            others = [v for v in range(4) if v not in (x, y)]

            def density(s: float, t: float, x=x, y=y, others=others) -> float:
                log = math.log(q[x]) - q[x] * t + math.log(r[y]) - r[y] * s  # x finishes at t, y at s
                return math.exp(log - sum(max(q[v] * t, r[v] * s) for v in others))

            mass = integrate.dblquad(density, 0, np.inf, lambda t, y=y: q[y] * t / r[y], np.inf, epsabs=1e-7)[0]
            law[y] += rejected * mass
    assert law.sum() == pytest.approx(1, abs=1e-5)
    assert np.abs(law - p).sum() / 2 == pytest.approx(0.025, abs=5e-4)


def test_a_draft_dropped_for_its_own_probability_is_biased() -> None:
    """p = (1/2, 1/2), q = (4/5, 1/5): dropping the unlikely token 1 and drawing from p instead gives token 0 with 3/5."""
    p, q = rational([1, 1]), rational([4, 1])

    def dropped(chance: Chance) -> Draft:
        draft = Draft.drawn(lambda _: q, 1, chance)
        return draft if q[draft.tokens[0]] >= Fraction(1, 3) else Draft.claimed([], [])

    assert error_and_kept(ratio, draw=dropped, shown=p, wanted=p)[0] == Fraction(1, 10)

    def kept_then_stopped(chance: Chance) -> Draft:
        return Draft.drawn(lambda _: q, 2, chance, stop=lambda x, law: law[x] < Fraction(1, 3))

    assert error_and_kept(ratio, draw=kept_then_stopped, shown=p, wanted=p)[0] == 0
    assert error_and_kept(token_matching, draw=dropped, shown=p, wanted=p)[0] == 0  # any draft will do there


def test_adaptive_k_is_lossless_when_it_is_part_of_the_state() -> None:
    """k grows after a round that kept everything and shrinks after any other: known before the round draws."""
    for seed in range(6):
        target, drafter = TableModel(3, f"t{seed}", "mixed"), TableModel(3, f"d{seed}")

        def step(state, chance, target=target, drafter=drafter):
            tokens, k = state
            chance.begin_round(len(tokens))
            _, accepted, emitted = chain_round(tokens, target, ModelDrafter(drafter), ratio, min(k, 3 - len(tokens)), chance)
            return (tokens + emitted)[:4], min(k + 1, 3) if accepted == k else max(k - 1, 1)

        law = exact_law_of_rounds(step, ((), 1), lambda state: len(state[0]) == 4, size=lambda state: len(state[0]))
        of_tokens: dict = {}
        for (tokens, _), mass in law.items():
            of_tokens[tokens] = of_tokens.get(tokens, 0) + mass
        assert of_tokens == sequence_law(target, (), 4)


def test_ties_go_to_the_lowest_id() -> None:
    p = [rational([1, 2, 2])] * 2
    assert greedy(p, Draft.chosen([2]), EnumeratedChance()) == Verified(0, 1)
    assert greedy(p, Draft.chosen([1]), EnumeratedChance()) == Verified(1, 1)


def test_a_token_outside_the_targets_support_is_never_kept() -> None:
    p, q = rational([0, 1, 1]), rational([1, 0, 0])
    assert error_and_kept(ratio, draw=q, shown=p, wanted=p) == (0, 0)


def test_an_impossible_claim_ends_in_a_clear_error_or_a_lawful_token() -> None:
    """q = p, and a draft that q cannot have given: 0/0 rejects, and an exact residual has nothing left to give."""
    p = rational([1, 0])
    with pytest.raises(BadLaw, match="residual of p and q is empty"):
        exact_law(lambda chance: ratio([p, p], Draft.claimed([1], [p]), chance))
    floats = p.astype(float)
    assert ratio([floats, floats], Draft.claimed([1], [floats]), SampledChance(0)).next_token == 0


def test_rewiring_a_helper_that_is_not_called_is_loud() -> None:
    with pytest.raises(NameError, match="ratio does not call resid"):
        rewired(ratio, resid=lambda p, q: p)
    with pytest.raises(TypeError, match="plain function"):
        rewired(SampledChance(0).picks, norm=None)


# Picking by a race (algorithms: residual sampling by exponentials or Gumbel noise).


def test_the_winner_of_a_race_has_the_law_of_the_weights() -> None:
    """Exactly: by memorylessness token v overtakes the earlier ones with probability w_v / (w_1 + .. + w_v), whoever leads."""

    def duels(weights):
        def winner(chance):
            leader, so_far = 0, weights[0]
            for token, weight in enumerate(weights[1:], start=1):
                so_far = so_far + weight
                if chance.accepts(weight, so_far, slot=("accept", token)):
                    leader = token
            return leader

        return exact_law(winner)

    for weights in (positive_part(P - Q), rational([1, 2, 3, 4]), rational([0, 3, 0, 1])):
        assert duels(weights) == {token: weight for token, weight in enumerate(norm(weights)) if weight}


def test_a_race_is_gumbel_max_on_another_scale() -> None:
    rng = np.random.default_rng(secrets.randbits(32))
    for _ in range(500):
        weights, noise = rng.dirichlet(np.ones(6)), rng.exponential(size=6)
        assert race(weights, noise) == gumbel_max(np.log(weights), -np.log(noise))


def test_rules_sample_the_same_law_by_races() -> None:
    """Chi-square of 3-token outputs, 8,000 of them, false-fail rate 1e-9: drafts, residuals and bonus tokens all raced for."""
    target, drafter = TableModel(2, "t", exact=False), TableModel(2, "d", exact=False)
    wanted = sequence_law(target, (), 3)
    seed, n = secrets.randbits(32), 8000
    counts = dict.fromkeys(wanted, 0)
    for i in range(n):
        chance = RacingChance(seed + i)
        counts[generate(target, ModelDrafter(drafter), ratio, (), k=2, stops=Stops(3), chance=chance).tokens] += 1
    expected = [float(wanted[tokens]) * n for tokens in counts]
    assert stats.chisquare(list(counts.values()), expected).pvalue > 1e-9, f"seed {seed}"


def test_races_refuse_what_picks_refuse() -> None:
    with pytest.raises(EmptyWeights):
        RacingChance(0).picks(np.zeros(3), slot=("emit",))
    with pytest.raises(BadWeights):
        RacingChance(0).picks(np.array([0.5, np.nan]), slot=("emit",))
    with pytest.raises(BadWeights, match=r"got 0.0 for token 1"):
        race(np.array([0.5, 0.5]), [1.0, 0.0])
