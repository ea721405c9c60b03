"""Lossy rules: their exact laws, and settings at which they are the strict rule."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

import pytest
from hypothesis import given, settings

from specref import strategies
from specref.chance import EnumeratedChance, exact_law
from specref.draft import Draft
from specref.laws import rational
from specref.models import TableModel
from specref.proof import EXAMPLE, chosen_siblings, first_token, prove_all, subject
from specref.proof.first_token import P, Q
from specref.proof.prove import variation_on_example
from specref.proof.subjects import SUBJECTS
from specref.rules import Verified
from specref.rules.chain import ratio
from specref.rules.tree import greedy
from specref.rules.typical import ensemble, lenient, typical, typical_threshold
from specref.tree import TokenTree

LOSSY = {one.name: one for one in SUBJECTS if one.claim == "lossy"}


def test_sizes_on_the_example() -> None:
    """Over the worst single draft, p = (.5, .3, .2), q = (.2, .5, .3)."""
    assert {name: variation_on_example(one) for name, one in LOSSY.items()} == {
        "typical": Fraction(4, 5),  # child 2: p = .2 passes .09, so token 2 always comes
        "typical, next token sampled": Fraction(4, 5),
        "target_only, tau_acc 1/2": Fraction(1, 2),  # child 0 is always taken
        "ensemble, weight 1/2": Fraction(3, 20),  # half of TV(p, q)
        "lenient, lenience 1/2": Fraction(3, 10),  # every draft is kept: TV(p, q)
    }
    assert EXAMPLE.k == 1


def test_lossy_rules_are_proven_lossy() -> None:
    for result in prove_all(scale=0.05, workers=1, subjects=list(LOSSY.values())):
        assert result.as_claimed
        assert not result.equal
        assert result.counterexample is None
        assert result.on_example is not None


def test_ensemble_follows_the_mixture_exactly() -> None:
    for weight in (Fraction(0), Fraction(1, 3), Fraction(3, 4), Fraction(1)):
        found = first_token(partial(ensemble, weight=weight))
        assert found.variation(weight * P + (1 - weight) * Q) == 0


@settings(max_examples=50)
@given(strategies.drafted_rounds())
def test_neutral_settings_are_the_strict_rule(round) -> None:
    strict = exact_law(partial(ratio, round.p, round.draft))
    assert exact_law(partial(lenient, round.p, round.draft, lenience=1)) == strict
    assert exact_law(partial(ensemble, round.p, round.draft, weight=1)) == strict


def test_lenience_accepts_more_and_departs_more() -> None:
    found = [first_token(partial(lenient, lenience=Fraction(n, 4))) for n in (4, 3, 2, 1)]
    assert [one.kept for one in found] == sorted(one.kept for one in found)
    assert [one.variation() for one in found] == sorted(one.variation() for one in found)
    assert found[0].variation() == 0


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_settings_out_of_range_are_named(value) -> None:
    draft = Draft.claimed([0], [Q])
    for rule, name in ((ensemble, "weight"), (lenient, "lenience")):
        with pytest.raises(ValueError, match=f"{name} is {value}"):
            rule([P, P], draft, EnumeratedChance(), **{name: value})


def test_the_threshold_of_typical_acceptance() -> None:
    """Half a bit more entropy halves nothing by itself: min(epsilon, delta exp(-H)), H from log(p + 1e-5)."""
    uniform = rational([1] * 10)
    assert typical_threshold(uniform, 0.09, 0.3) == pytest.approx(0.3 * math.exp(math.log(0.1 + 1e-5)))
    assert typical_threshold(rational([1, 0]), 0.09, 0.3) == 0.09
    assert typical_threshold(rational([1, 0]), 0.5, 0.3) == pytest.approx(0.3, rel=1e-4)


def test_typical_takes_the_longest_then_the_most_probable_path() -> None:
    tree = TokenTree([9, 0, 1, 0, 1, 2], [-1, 0, 0, 1, 2, 2])
    p = [rational(weights) for weights in ([5, 4, 1], [5, 4, 1], [2, 2, 6], [1, 1, 1], [1, 1, 1], [1, 3, 1])]
    # (1, 2) has probability .4 * .6 = .24; (0, 0) has .25, and (1, 1) .08
    assert typical(p, Draft.chosen(tree.tokens, tree), EnumeratedChance()).path == (1, 3)
    p[1] = rational([4, 5, 1])  # now (0, 0) has .20
    assert typical(p, Draft.chosen(tree.tokens, tree), EnumeratedChance()) == Verified(2, 1, (2, 5))


def test_typical_without_an_accepted_child_keeps_the_root() -> None:
    found = exact_law(partial(typical, [rational([97, 2, 1])] * 2, chosen_siblings([2])(EnumeratedChance())))
    assert found == {Verified(0, 0): 1}


def test_typical_can_be_sampled_after_the_path() -> None:
    rule = partial(typical, sampled=True)
    p = rational([97, 2, 1])
    assert first_token(rule, chosen_siblings([2]), shown=p).variation(p) == 0  # nothing accepted: plain sampling
    assert first_token(rule, chosen_siblings([0]), shown=p).variation(p) == Fraction(3, 100)


def test_a_high_epsilon_and_delta_reject_everything_but_certainty() -> None:
    model = TableModel(3, 1)
    tree = TokenTree([0, *greedy_path(model, 2)], [-1, 0, 1])
    p = [model.next_law(tree.spells(node)) for node in range(3)]
    draft = Draft.chosen(tree.tokens, tree)
    assert typical(p, draft, EnumeratedChance(), epsilon=1.0, delta=99.0).accepted == 0
    assert typical(p, draft, EnumeratedChance(), epsilon=0.0, delta=0.3).accepted == 2
    assert greedy(p, draft, EnumeratedChance()).accepted == 2


def greedy_path(model, length: int):
    tokens: tuple[int, ...] = ()
    while len(tokens) < length:
        tokens += (int(model.next_law(tokens).argmax()),)
    return tokens


def test_subjects_are_found_by_name() -> None:
    assert subject("typical").claim == "lossy"
    with pytest.raises(KeyError, match="nothing to prove is called 'typcal'; there are: ratio"):
        subject("typcal")
