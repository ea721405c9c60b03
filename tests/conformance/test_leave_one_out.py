"""Leaving out the bets on a fault's own law: what is left out, and that the rest still decides."""

from __future__ import annotations

import secrets
from pathlib import Path

import numpy as np
import pytest

from conformance.controls import Control, as_stated, run
from conformance.controls.faults import FAULTS
from conformance.findings import Verdict
from conformance.statistics import STANDARD_BETS, Ledger, ModePlan, Plan
from conformance.statistics.bets import law_of, seals
from conformance.statistics.step_bets import StepBets
from conformance.statistics.step_log import NOTHING, Steps
from conformance.studies import leave_one_out as study
from conformance.studies.leave_one_out import Left, own_bets, parts, summary, without

SEED = secrets.randbelow(2**31)
RNG = np.random.default_rng(SEED)
BY_NAME = {one.id: one for one in FAULTS}


def fault(name: str) -> Control:
    return BY_NAME[name]


def test_every_bet_names_its_law() -> None:
    rows = RNG.dirichlet(np.ones(6), size=(2, 3))
    known = {bet.name for bet in STANDARD_BETS}
    ledger = Ledger(Plan((ModePlan.standard("mode", 100),)), "run", 1)
    assert {law_of(name) for name in ledger.judges["mode"].bank.names} == known
    assert {law_of(name) for name in StepBets(*rows).names["draft follows q"]} >= {"argmax", "uniform", "head of mass 50%"}


def test_a_bank_holds_the_bets_that_its_plan_seals() -> None:
    plan = ModePlan.standard("mode", 100, bets=seals({"same coin", "leak to the draft"}))
    bank = Ledger(Plan((plan,)), "run", 1).judges["mode"].bank
    assert {bet.name for bet in STANDARD_BETS} - {bet.name for bet in bank.bets} == {"same coin", "leak to the draft"}


def test_the_other_step_bets_are_what_they_were() -> None:
    p, q = RNG.dirichlet(np.ones(6), size=(2, 3))
    steps = Steps(np.array([0, 1, 2]), np.array([1, 2, 3]), np.array([True, False, False]), np.array([1, NOTHING, 4]))
    left = ("rejected drafts let through", "argmax", "accept coin again, token order from below", "residual squared")
    whole, some = StepBets(p, q), StepBets(p, q, without=left)
    assert sum(map(len, whole.names.values())) - sum(map(len, some.names.values())) == 5 + 3 + 2 + 3
    factors, fewer = whole.log_factors(steps), some.log_factors(steps)
    for account, names in some.names.items():
        columns = [whole.names[account].index(name) for name in names]
        assert np.array_equal(fewer[account], factors[account][:, columns])
        assert some.accounts()[account].names == names


def test_the_bets_that_killed_a_fault_are_left_out_and_others_kill_it() -> None:
    control = fault("the other residual, q minus p")
    left = own_bets(control, run(control, SEED))
    assert left, SEED
    again = without(control, left)
    assert again.audit.n == 3 * control.audit.n
    outcome = run(again, SEED + 1)
    assert as_stated(again, outcome), (SEED, left)
    held = {law_of(one.holder.partition(": ")[2] or one.holder) for found in outcome.findings for one in found.statistics}
    assert not held & set(left), SEED


def test_a_fault_that_no_bet_kills_has_none_to_leave_out() -> None:
    control = fault("block: a prefix kept by its joint ratio alone")
    outcome = run(control, SEED)
    assert as_stated(control, outcome), SEED
    assert own_bets(control, outcome) == ()


@pytest.mark.parametrize("name", ["invalid drafts dropped before verification", "drafts drawn at another temperature than q"])
def test_every_stage_that_bets_leaves_bets_out(name: str) -> None:
    looks = fault(name).audit.without
    assert looks is not None
    every = {bet.name for bet in STANDARD_BETS} - {"temperature 1.005"}
    *_, (_, found) = looks(SEED, 64, every)
    held = {law_of(statistic.holder) for one in found for statistic in one.statistics if statistic.name == "bank"}
    assert held == {"temperature 1.005"}
    assert any(one.verdict is not Verdict.ERROR for one in found)


def test_a_missed_fault_is_listed() -> None:
    id = "no coin: accept where p/q is above one half"
    killed = Left(id, ("temperature 0.758",), 6_144, 18_432, True, ("LAW-3: omnibus",))
    missed = Left(id, ("temperature 0.758",), 2_048, 393_216, False, ("LAW-3: omnibus",), ("LAW-4",))
    unbet = Left("one seed for all tokens of a round", (), 512)
    assert "1 faults were killed by bets; none is missed" in summary([killed, unbet])
    assert f"not killed within 3 times their n: {id}" in summary([killed, missed])
    text = "\n".join(parts([killed, missed, unbet]))
    most = 3 * BY_NAME[id].stated
    assert f"| 393216, 393216 | {most} rows | 1 of 2 (LAW-4 did not fail) | LAW-3: omnibus |" in text
    assert "no bet on a law would have convicted alone: one seed for all tokens of a round." in text


def test_the_study_tells_its_progress_and_ends_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert study.main(["--only", "absolute value of the residual", "--runs", "1", "--seed", str(SEED)]) == 0
    told = capsys.readouterr().out
    assert "1 of 1 in " in told
    assert f"none is missed without their own, in 1 runs; seed {SEED}" in told
    assert not [*tmp_path.iterdir()]
