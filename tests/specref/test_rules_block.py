"""Block verification: the paper's form, never fewer tokens than the ratio rule, and what its numbers must not share."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings

from specref import strategies
from specref.chance import EnumeratedChance, ReplayedChance, SampledChance, exact_law
from specref.draft import Draft
from specref.generate import ModelDrafter, chain_round
from specref.laws import norm, positive_part, rational, residual, total, total_variation
from specref.models import TableModel, sequence_law
from specref.proof import Subject, chain_instances, prove_all, random_models
from specref.proof.subjects import drawn_chain
from specref.rules import Verified, rewired
from specref.rules.block import block, joint_ratios
from specref.rules.chain import ratio


def block_as_published(p, draft, chance):
    """Sun et al. 2403.10444, algorithm 2, with the paper's divisions: every number is read, the longest success counts."""
    x, q, k = draft.tokens, draft.laws, len(draft.tokens)
    P, tau = [Fraction(1)], 0
    for i in range(k):
        P.append(min(P[i] * p[i][x[i]] / q[i][x[i]], Fraction(1)))
    for i in range(1, k + 1):
        h = P[k]
        if i < k:
            Z = Fraction(total(positive_part(P[i] * p[i] - q[i])))
            h = Z / (Z + 1 - P[i]) if Z + 1 - P[i] else Fraction(1)
        if chance.accepts(h, slot=("accept", i - 1)):
            tau = i
    if tau == k:
        return Verified(k, chance.picks(p[k], slot=("emit",)))
    return Verified(tau, chance.picks(positive_part(P[tau] * p[tau] - q[tau]), slot=("emit",)))


@settings(max_examples=150)
@given(strategies.drafted_rounds())
def test_the_law_of_the_verdict_is_the_published_one(round) -> None:
    """On drafts whose tokens the draft laws can give (all that the strategy makes)."""
    mine = exact_law(lambda chance: block(round.p, round.draft, chance))
    assert mine == exact_law(lambda chance: block_as_published(round.p, round.draft, chance))


@settings(max_examples=100)
@given(strategies.drafted_rounds(max_k=1))
def test_one_draft_is_the_ratio_rule(round) -> None:
    assert exact_law(lambda chance: block(round.p, round.draft, chance)) == exact_law(
        lambda chance: ratio(round.p, round.draft, chance)
    )


def accepted_on_average(rule, instance) -> Fraction:
    draws = exact_law(drawn_chain(instance, (), 99)[0])
    mean = Fraction(0)
    for draft, probability in draws.items():
        p = instance.target.next_laws((), draft.tokens)
        for accepted, decided in exact_law(lambda chance: rule(p, draft, chance).accepted).items():  # noqa: B023
            mean += probability * decided * accepted
    return mean


def test_never_fewer_accepted_than_by_the_ratio_rule() -> None:
    """On every one of 90 models; more on a good part of those with k > 1."""
    gains = []
    for instance in chain_instances(90, "gain"):
        gains.append(accepted_on_average(block, instance) - accepted_on_average(ratio, instance))
        assert gains[-1] >= 0
        assert gains[-1] == 0 or instance.k > 1
    assert sum(gain > 0 for gain in gains) > 15
    assert 0.01 < float(sum(gains)) / len(gains) < 0.1


class NumbersByPosition(EnumeratedChance):
    """Numbers keyed by absolute position, so that a later round reads what an earlier one has read."""

    def number(self, slot):
        return (slot[0], self.start + slot[1]) if len(slot) > 1 else (self.start, *slot)


def whole_generation(rule, target, drafter, chance_type, k: int = 2, limit: int = 3):
    def generation(chance):
        tokens = ()
        while len(tokens) < limit:
            chance.begin_round(len(tokens))
            tokens += chain_round(tokens, target, ModelDrafter(drafter), rule, k, chance)[2]
        return tokens[:limit]

    return exact_law(generation, chance_type)


def test_numbers_by_position_bias_block_verification_alone() -> None:
    biases = []
    for family in (1, 2, 5, 8, 10):
        target, drafter = random_models("position", 2, family, memory=None)
        wanted = sequence_law(target, (), 3)
        assert whole_generation(ratio, target, drafter, NumbersByPosition) == wanted
        assert whole_generation(block, target, drafter, EnumeratedChance) == wanted
        biases.append(total_variation(whole_generation(block, target, drafter, NumbersByPosition), wanted))
    assert 0 < max(biases) < Fraction(1, 10)


FAULTS = {
    "the token-wise residual": rewired(block, residual=lambda P, Q: residual(norm(P), norm(Q)) if Q.any() else P),
    "joint ratios without q": rewired(
        block,
        joint_ratios=lambda p, draft: [(1, 1), *((p[i][x], 1) for i, x in enumerate(draft.tokens))],
    ),
    "the last ratio for all": rewired(block, joint_ratios=lambda p, draft: [joint_ratios(p, draft)[-1]] * len(p)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found_and_shrunk(name: str) -> None:
    fault = Subject(name, "chain", FAULTS[name], drawn_chain)
    [result] = prove_all(scale=0.1, workers=1, subjects=[fault])
    assert not result.as_claimed
    assert result.counterexample is not None
    assert len(result.counterexample.instance.shape) - 1 <= 2


def test_zero_probabilities_are_never_divided_by() -> None:
    p = rational([0, 1])
    claimed = Draft.claimed([0, 0], [rational([0, 1]), rational([0, 1])])  # cannot have been drawn, and the target forbids it
    assert joint_ratios([p, p], claimed) == [(1, 1), (0, 1), (0, 1)]
    floats = [row.astype(float) for row in (p, p, p)]
    verdict = block(floats, Draft.claimed([0, 0], floats[:2]), SampledChance(0))
    assert verdict == Verified(0, 1)


def test_equal_laws_keep_everything_at_every_number() -> None:
    rows = [np.random.default_rng(i).dirichlet(np.ones(50)) for i in range(4)]
    for u in (0.0, 0.5, 1 - 2**-53):
        numbers = {("accept", i): u for i in range(3)} | {("emit",): u}
        draft = Draft.claimed([row.argmax() for row in rows[:3]], rows[:3])
        assert block(rows, draft, ReplayedChance(numbers)).accepted == 3


def test_an_empty_draft_emits_from_the_target() -> None:
    model = TableModel(3, 0)
    law = exact_law(lambda chance: block([model.next_law(())], Draft.claimed([], []), chance).next_token)
    assert law == dict(enumerate(model.next_law(())))
