"""Which jobs are given up after which failures, and what shows only beside another mode."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from conformance.findings import Finding, Verdict
from conformance.jobs import FAMILIES, GREEDY, MOST_HANGS, MOST_IN_A_ROW, Failures, Job
from conformance.problems import EngineFailed
from conformance.protocols import Mode
from conformance.silent import chosen_instead_of_drawn, seeds_that_end_it

FAST, OTHER = Mode("fast", {"k": 2}), Mode("other", {"k": 3})


def job(what: str, mode: Mode = FAST) -> Job:
    return Job(what, mode, print, 1)


def failed(*jobs: Job, kind: str = "crash") -> Failures:
    failures = Failures()
    for one in jobs:
        failures.note(one, EngineFailed(kind, "it fell over"))
    return failures


def test_a_setting_that_ends_an_engine_says_nothing_about_the_mode() -> None:
    failures = failed(job("top-k 5"), job("top-p 0.9"))
    assert failures.against(job("min-p 0.1")) is not None
    assert failures.against(job(FAMILIES)) is None
    assert failures.against(job("top-k 5", OTHER)) is None


def test_a_mode_that_ends_by_itself_is_given_up_whole() -> None:
    failures = failed(job("plain"), job(GREEDY))
    assert "it fell over" in (failures.against(job(FAMILIES)) or "")
    assert failures.against(job("plain", OTHER)) is None


@pytest.mark.parametrize(("kind", "most"), [("crash", MOST_IN_A_ROW), ("hang", MOST_HANGS)])
def test_an_engine_that_only_fails_is_given_up(kind: str, most: int) -> None:
    failures = failed(*(job("plain", Mode(f"mode {i}")) for i in range(most)), kind=kind)
    assert failures.against(job("plain", OTHER)) is not None
    failures.went_well()
    assert (failures.against(job("plain", OTHER)) is None) == (kind == "crash")


def test_refusals_are_no_failures_and_what_is_lacking_is_said_of_the_whole_mode() -> None:
    assert failed(*[job("plain")] * 20, kind="unsupported").against(job("plain")) is None
    assert failed(job("plain"), kind="not run").against(job(FAMILIES)) == "not run: it fell over"


BEST = Mode("best", {"k": 2}, "one_hot", "draft model")
DRAWN = Mode("drawn", {"k": 2, "sample": True}, "ratio", "draft model")


@pytest.mark.parametrize("seed", range(20))
def test_drafts_that_are_drawn_accuse_nobody(seed: int) -> None:
    rng = np.random.default_rng()
    q = rng.dirichlet(np.full(6, 0.3), size=200)
    drafts = np.array([rng.choice(6, p=row) for row in q])
    assert chosen_instead_of_drawn(DRAWN, [BEST, DRAWN], q, drafts, 1e-6, None) is None


def test_best_tokens_violate_loud_only_where_a_simpler_mode_declares_them() -> None:
    q = np.random.default_rng().dirichlet(np.ones(6), size=200)
    best, known = q.argmax(axis=1), Finding("LOUD-1", "drawn", Verdict.VIOLATES, "top_k", n=10, violations=("top_k",))
    found = chosen_instead_of_drawn(DRAWN, [BEST, DRAWN], q, best, 1e-6, known)
    assert found is not None
    assert found.n == 10
    assert "sample=True" in found.violations[0]
    assert found.violations[1] == "top_k"
    assert chosen_instead_of_drawn(DRAWN, [DRAWN], q, best, 1e-6, None) is None
    assert chosen_instead_of_drawn(BEST, [BEST, DRAWN], q, best, 1e-6, None) is None
    assert chosen_instead_of_drawn(DRAWN, [BEST, DRAWN], np.eye(6)[best], best, 1e-6, None) is None  # a certain draft


def test_seeds_that_end_an_engine_violate_what_it_promises_of_them() -> None:
    plain = Mode("off", options={"chunked": True})
    seeded = replace(plain, name="off, seeds", options={"chunked": True, "seed": True}, promises={"SEED-1": "https://x"})
    found = {
        ("LAW-1", "off"): Finding("LAW-1", "off", Verdict.CONFORMS, ""),
        ("LAW-1", "off, seeds"): Finding("LAW-1", "off, seeds", Verdict.ERROR, "crash: no offset"),
        ("SEED-1", "off, seeds"): Finding("SEED-1", "off, seeds", Verdict.ERROR, "crash: no offset"),
    }
    one = seeds_that_end_it(seeded, [plain, seeded], found)
    assert one is not None
    assert one.verdict is Verdict.VIOLATES
    assert "no offset" in one.summary
    assert seeds_that_end_it(seeded, [seeded], found) is None
    assert seeds_that_end_it(plain, [plain, seeded], found) is None
