"""The n of a fault from the bets that are held: its pieces are exact, and what it states is kept."""

from __future__ import annotations

import secrets
from dataclasses import replace

import numpy as np
import pytest

from conformance.controls import as_stated, run
from conformance.controls.bounded import first_tokens, rows_needed
from conformance.controls.control import Control
from conformance.controls.faults import FAULTS
from conformance.controls.faults.sampler import with_odds
from specref.chance import Chance, exact_law
from specref.draft import Draft
from specref.laws import rational
from specref.proof.first_token import P, Q
from specref.rules import Rule
from specref.rules.chain import ratio

SEED = secrets.randbelow(2**31)
OVER_ONE_DRAFT = [fault for fault in FAULTS if fault.bound is not None]
BOUNDED = ("softmax of the residual", "resample from p after a rejection", "bonus dropped after full acceptance")


def rule_of(fault: Control) -> Rule:
    rule: Rule = fault.bound.args[0]  # type: ignore[union-attr]
    return rule


def law_of_first(rule: Rule, k: int) -> np.ndarray:
    """The first token's law by enumeration, with k drafts in the round and another law at every later position."""
    later = [rational([1, 5, 2, 2]), rational([3, 1, 1, 5])]

    def one_round(chance: Chance) -> int:
        chance.begin_round(0)
        draft = Draft.drawn(lambda so_far: Q if not so_far else later[1], k, chance)
        verified = rule([P, *later[:k]], draft, chance)
        return draft.tokens[0] if verified.accepted else verified.next_token

    law = exact_law(one_round)
    return np.array([float(law.get(token, 0)) for token in range(4)])


@pytest.mark.parametrize("fault", OVER_ONE_DRAFT, ids=lambda fault: fault.id)
def test_the_first_tokens_law_is_that_of_enumeration_however_many_drafts_follow(fault: Control) -> None:
    kept, replaced = first_tokens(rule_of(fault), P.astype(float), Q.astype(float))
    followed = kept + replaced.sum(axis=0)
    for k in (1, 2):
        assert followed == pytest.approx(law_of_first(rule_of(fault), k), abs=1e-9), k


@pytest.mark.parametrize("name", BOUNDED)
def test_a_fault_is_killed_within_what_the_bound_states(name: str) -> None:
    fault = next(one for one in FAULTS if one.id == name)
    assert fault.bounded is not None
    assert fault.stated == fault.bounded < 8 * fault.audit.n
    outcome = run(fault, SEED)
    assert as_stated(fault, outcome), (SEED, outcome.n, outcome.violated)
    late = replace(outcome, n=fault.bounded + 1)
    assert not as_stated(fault, late)


def test_nothing_is_stated_where_nothing_is_wrong_or_no_bet_comes_near() -> None:
    assert rows_needed(ratio, ["LAW-3"], 16_384) is None
    assert rows_needed(ratio, ["LAW-4"], 16_384) is None
    no_step_is_forbidden = with_odds(ratio, lambda p, q: (int(2 * p > q), 1))
    assert rows_needed(no_step_is_forbidden, ["LAW-4"], 16_384) is None


def test_a_smaller_fault_needs_more_rows() -> None:
    sizes = [
        rows_needed(with_odds(ratio, lambda p, q, more=more: (more * p, q)), ["LAW-3"], 3 * 16_384) for more in (9, 2, 1.5)
    ]
    assert all(sizes)
    assert sizes == sorted(sizes)  # type: ignore[type-var]
    assert sizes[0] < sizes[-1]  # type: ignore[operator]


def test_a_rule_with_several_coins_for_a_draft_is_refused() -> None:
    def twice(p, draft, chance):  # type: ignore[no-untyped-def]
        chance.accepts(1, 2, slot=("accept", 7))
        return ratio(p, draft, chance)

    with pytest.raises(NotImplementedError, match="several coins"):
        first_tokens(twice, P.astype(float), Q.astype(float))
