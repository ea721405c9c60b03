"""Parts that are audited alone share the seconds of a level: a slow one does less, and says how much."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from conformance.component_audit import (
    LEAST_DRAFTED,
    LEAST_ROWS,
    LEAST_TRIED,
    cache_finding,
    drafter_finding,
    verifier_findings,
)
from conformance.components import Proposal
from conformance.engines.own_components import CACHES, ReferenceChain
from conformance.findings import Verdict
from conformance.levels import LEVELS
from conformance.protocols import Tokens
from conformance.run import models_named
from conformance.subject import Subject, read_subject


@pytest.fixture(scope="module")
def subject() -> Subject:
    return read_subject(models_named(None, None))


class Coin:
    """Drafts fair coins, and says so; rare: only after a prompt of one length."""

    name = "coin"

    def __init__(self, rare: bool = False) -> None:
        self.rare = rare

    def propose(self, context: Tokens, k: int, seed: int) -> Proposal:
        tokens = np.random.default_rng(seed).integers(2, size=k)
        return Proposal(()) if self.rare and seed % 50 else Proposal(tuple(tokens.tolist()), np.full((k, 2), 0.5))


def test_a_drafter_out_of_time_does_less_and_says_so(subject: Subject) -> None:
    whole = drafter_finding(Coin(), subject, 1_024, 1, 1e-6)
    assert (whole.verdict, whole.planned) == (Verdict.CONFORMS, 1_024)
    less = drafter_finding(Coin(), subject, 1_024, 1, 1e-6, until=time.monotonic())
    assert less.verdict is Verdict.CONFORMS
    assert LEAST_DRAFTED <= less.n == less.planned < 512
    assert less.detects != whole.detects


def test_too_few_drafts_in_time_are_inconclusive(subject: Subject) -> None:
    few = drafter_finding(Coin(rare=True), subject, 1_024, 1, 1e-6, until=time.monotonic())
    assert (few.verdict, few.planned) == (Verdict.INCONCLUSIVE, LEAST_DRAFTED)


def test_a_verifier_and_a_cache_out_of_time_do_less() -> None:
    law = verifier_findings(ReferenceChain("ratio"), 4 * LEAST_ROWS, 1, 1e-6, until=-math.inf)[0]
    assert (law.verdict, law.n) == (Verdict.CONFORMS, LEAST_ROWS)
    whole, less = (cache_finding(CACHES[0], 64, 1, 50, until) for until in (math.inf, -math.inf))
    assert whole.verdict is less.verdict is Verdict.CONFORMS
    assert less.n < whole.n / 2
    assert less.n > LEAST_TRIED


def test_every_level_but_the_open_one_limits_the_time_of_parts() -> None:
    assert [bool(level.seconds) for level in LEVELS.values()] == [True, True, True, False]
