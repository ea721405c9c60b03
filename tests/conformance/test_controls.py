from __future__ import annotations

import math
import re
import secrets
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from conformance.controls import ALPHA, Audit, Control, as_stated, run
from conformance.controls.composed import composed
from conformance.controls.control import RESTARTS, RUNS, SHARE
from conformance.controls.exact import one_token
from conformance.controls.faults import FAULTS
from conformance.controls.lawful import LAWFUL
from conformance.controls.lossy import LOSSY
from conformance.controls.stages.verifiers import chain
from conformance.controls.table import cells, rows
from conformance.findings import Finding, Verdict
from conformance.requirements import BY_ID
from conformance.studies import faults as study
from conformance.studies.faults_results import Journal, result
from specref.rules import rewired
from specref.rules.chain import ratio

SEED = secrets.randbelow(2**31)
BY_NAME = {one.id: one for one in (*FAULTS, *LAWFUL)}


def test_the_registry_is_as_large_as_promised() -> None:
    assert len(FAULTS) >= 130
    assert len(LAWFUL) >= 14
    assert len(BY_NAME) == len(FAULTS) + len(LAWFUL)
    assert all(fault.requirements for fault in FAULTS)
    assert not any(one.requirements for one in LAWFUL)


KINDS = {
    "sampler",
    "randomness",
    "processors",
    "stopping",
    "state",
    "tree",
    "published snippets",
    "draft inputs",
    "batch",
    "reports",
    "numerics",
    "grammar",
    "lossy",
}


def test_every_kind_of_the_catalogue_has_faults() -> None:
    assert {fault.kind for fault in FAULTS} == KINDS


def test_every_requirement_has_a_fault_that_must_fail_it() -> None:
    named = {name for fault in FAULTS for name in fault.requirements}
    assert named <= set(BY_ID)
    assert set(BY_ID) - named == UNPLANTED


UNPLANTED: set[str] = set()


@pytest.mark.parametrize("control", [*FAULTS, *LAWFUL], ids=lambda control: control.id)
def test_a_control_is_whole(control: Control) -> None:
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+ \d+", report) for report in control.reports)
    assert control.replaces


# What the table of exact laws says, to three decimals: total variation, and how often the drafted token is kept.
FIGURES: dict[str, tuple[float, float | None]] = {
    "ratio rule with residual": (0, 0.600),
    "draft drawn from q, verified as if one-hot": (0, 0.278),
    "argmax draft, one-hot verification": (0, 0.600),
    "token matching, keeping the compared draw": (0, 0.278),
    "argmax draft, soft q in the ratio": (0.400, 1.000),
    "drawn from the top of q, all of q handed over": (0.083, 0.556),
    "residual subtracts q only at the drafted token": (0.042, 0.600),
    "resample from p after a rejection": (0.060, 0.600),
    "softmax of the residual": (0.180, 0.600),
    "argmax of the residual": (0.150, 0.600),
    "always accept": (0.400, 1.000),
    "token matching with a new draw on mismatch": (0.046, 0.278),
    "argmax verification at T > 0": (0.400, 0.350),
    "ratio upside down": (0.400, 0.794),
    "p at T = 1 while the request says T = .5": (0.228, 0.600),
    "softmax applied twice to the target": (0.260, 0.856),
    "rejected sibling not zeroed": (0.216, None),
    "a fresh draw per sibling": (0.216, None),
    "same Gumbel noise for draft and recovery": (0.025, None),
    "one coin for acceptance and residual": (0.056, 0.600),
    "target-only sampling with tau_acc = .5": (0.300, None),
    "target-only sampling with tau_single = .3": (0.700, None),
    "duplicate siblings in target-only sampling": (0.300, None),
    "an independent draw from the nucleus for every branch": (0.210, None),
    "deterministic siblings tested independently with p/q": (0.557, None),
    "a drafted token dropped because its own probability is low": (0.100, None),
    "without-replacement siblings, one raw q handed over for all": (0.648, None),
    "block verification with numbers by absolute position": (0.191, None),
}


def test_the_exact_laws_are_those_published() -> None:
    known = {row.name: row for row in rows()}
    for name, (variation, kept) in FIGURES.items():
        exact = known[name].exact
        assert round(float(exact.variation()), 3) == variation, name
        assert (exact.variation() == 0) == known[name].lawful, name  # lossless exactly, not nearly
        if kept is not None:
            assert exact.kept is not None
            assert round(float(exact.kept()), 3) == kept, name
    assert known["one coin for acceptance and residual"].variation == "9/160 (0.056)"
    assert len(cells()) == len(known)


def test_rational_laws_are_fractions() -> None:
    floats = {row.name for row in rows() if not isinstance(row.exact.variation(), Fraction) or "/" not in row.variation}
    lossless = {row.name for row in rows() if row.variation == "0"}
    exponentials = {
        "softmax of the residual",
        "softmax applied twice to the target",
        "same Gumbel noise for draft and recovery",
    }
    assert floats - lossless == exponentials


@pytest.mark.parametrize("fault", [f for f in FAULTS if f.exact and f.exact.kept], ids=lambda fault: fault.id)
def test_acceptance_sees_a_fault_exactly_if_it_changes_how_often_a_draft_is_kept(fault: Control) -> None:
    assert fault.exact is not None
    assert fault.exact.kept is not None
    lawful = {"ratio": Fraction(3, 5), "token_matching": Fraction(111, 400)}.get(fault.replaces, Fraction(3, 5))
    differs = abs(float(fault.exact.kept()) - float(lawful)) > 1e-9
    assert fault.acceptance_sees == differs or "as above" in fault.exact.on


# A few of each stage; the kill matrix (`nox -s faults`) runs all.
SOME = (
    "residual subtracts q only at the drafted token",
    "bonus dropped after full acceptance",
    "block: a prefix kept by its joint ratio alone",
    "one coin for acceptance and residual",
    "noise drawn once and reused every round",
    "bonus of another request",
    "NaN row accepted",
    "one rejected draft in a thousand let through",
    "half-precision ratio",
    "argmax draft, soft q in the ratio",
    "Jacobi: logits read at len + i",
    "auxiliary layer k - 1",
    "offsets read as absolute ids",
    "mask bits not cleared between calls",
    "wrong stride over top-k",
    "without-replacement siblings, elder ones zeroed but the law not renormalised",
    "rollback ignored after ring wrap",
    "draft cache never refreshed with true features",
    "a page hashed while it holds rejected tokens",
    "reset missing between two calls",
    "min-tokens counted in rounds",
    "text trimmed, ids not",
    "uniforms shared across rows",
    "log-probabilities off by a row",
    "first draft unverified under token matching",
)


@pytest.mark.parametrize("name", SOME)
def test_a_fault_is_killed_within_its_n(name: str) -> None:
    fault = BY_NAME[name]
    outcome = run(fault, SEED)
    assert as_stated(fault, outcome), (SEED, outcome.violated, [one.summary for one in outcome.findings])
    assert outcome.n <= max(fault.stated, 64)  # what is asked of a verifier first are 64 rows


PASSING = (
    "token matching",
    "top-k on the draft, the truncated q declared",
    "distinct siblings, target-only sampling",
    "rightmost n-gram match",
    "one-ulp noise that depends on the window's width",
    "the reference engine, chains",
    "a right draft net",
)


@pytest.mark.parametrize("name", PASSING)
def test_a_lawful_variation_passes(name: str) -> None:
    outcome = run(BY_NAME[name], SEED)
    assert as_stated(BY_NAME[name], outcome), (SEED, outcome.violated, [one.summary for one in outcome.findings])


@pytest.mark.parametrize("mode", LOSSY, ids=lambda mode: mode.id)
def test_a_lossy_mode_is_the_strict_rule_at_its_neutral_setting(mode: object) -> None:
    neutral, strict = mode.neutral_laws()  # type: ignore[attr-defined]
    assert neutral == strict
    assert mode.law().variation(mode.shown) > 0  # type: ignore[attr-defined]


def test_composed_faults_are_fresh_and_killed() -> None:
    first, second = composed(SEED), composed(SEED + 1)
    assert len({one.id for one in first}) == 20
    assert {one.id for one in first} != {one.id for one in second}
    fault = next(one for one in first + second if "always" in one.id)  # 20 hold none once in 27,000 times, 40 once in 7e8
    assert as_stated(fault, run(fault, SEED)), (SEED, fault.id)


def test_a_fault_that_an_audit_misses_is_audited_again_on_fresh_samples() -> None:
    seeds = []

    def looks(seed: int, n: int):  # type: ignore[no-untyped-def]
        seeds.append(seed)
        verdict = Verdict.VIOLATES if len(seeds) == 3 else Verdict.CONFORMS
        yield n, [Finding("LAW-3", "a control", verdict, "as told")]

    fault = Control("seen by the third audit", "sampler", "ratio", ("LAW-3",), Audit("told", "rows", 10, looks))
    outcome = run(fault, 1)
    assert (outcome.audits, outcome.n, as_stated(fault, outcome), len(set(seeds))) == (3, 30, True, 3)
    assert fault.stated == 80
    assert RESTARTS * SHARE == ALPHA
    assert 1 / math.comb(RUNS + RESTARTS, RESTARTS) < 1e-6 < 1 / math.comb(RUNS + RESTARTS - 1, RESTARTS - 1)
    passing = Control("audited once", "lawful", "rule", (), fault.audit)
    assert run(passing, 1).audits == 1


def test_the_long_form_lists_a_fault_that_a_first_audit_missed() -> None:
    one = study.Study(Journal(None, SEED), RUNS, 1, "Jacobi: logits")
    (control,) = one.controls.values()
    right = result(control, 0, run(control, SEED))
    for number in range(RUNS):
        one.journal.add(replace(right, number=number, audits=1 + (number == 7)))
    assert any("1 of 20 runs took more than one audit" in problem for problem in one.problems())


def test_a_new_fault_is_one_short_function_and_one_line() -> None:
    def halved(p, q):  # type: ignore[no-untyped-def]
        return p - p.min() / 2

    rule = rewired(ratio, residual=halved)
    fault = Control("half of the least likely", "sampler", "ratio", ("LAW-3",), chain(function=rule), exact=one_token(rule))
    assert as_stated(fault, run(fault, SEED))
    lawful = Control("nothing changed, called a fault", "sampler", "ratio", ("LAW-3",), chain(function=ratio, n=2048))
    outcome = run(lawful, SEED)
    assert not as_stated(lawful, outcome)
    assert not outcome.violated
    found = outcome.finding("LAW-3")
    assert found is not None
    assert found.verdict is Verdict.CONFORMS


def test_the_study_counts_what_is_not_as_stated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert study.main(["--only", "Jacobi", "--workers", "1"]) == 0
    assert "every fault killed" in capsys.readouterr().out
    mislabelled = {"x": Control("x", "sampler", "ratio", ("EDGE-1",), chain(n=1))}
    monkeypatch.setattr(study, "controls", lambda seed: mislabelled)
    monkeypatch.setattr(study, "ProcessPoolExecutor", _Inline)
    kept = tmp_path / "kept"
    assert study.main(["--keep", str(kept)]) == 1
    assert "NOT AS STATED: x" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    before = kept.read_text()
    assert study.main(["--keep", str(kept)]) == 1  # it goes on where it ended, and says the same
    assert "NOT AS STATED: x" not in capsys.readouterr().out.splitlines()[0]
    assert kept.read_text() == before


class _Inline:
    """Runs in this process what a pool would run in others."""

    def __init__(self, workers: int, initializer: Callable[[], None]) -> None:
        pass

    def __enter__(self) -> _Inline:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, function: Callable[..., object], job: object) -> Future[object]:
        done: Future[object] = Future()
        done.set_result(function(job))
        return done
