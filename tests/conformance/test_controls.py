from __future__ import annotations

import pytest

from conformance.controls import Control, audit_control
from conformance.controls.faults import FAULTS
from conformance.controls.lawful import LAWFUL
from conformance.findings import Verdict

SEEDS = (11, 12, 13)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_killed_within_its_n(fault: Control, seed: int) -> None:
    report = audit_control(fault, seed=seed)
    verdicts = {(one.requirement, one.mode): one for one in report.findings}
    speculating = [one for one in report.findings if one.requirement == fault.requirement and one.mode != "off"]
    assert [one.verdict for one in speculating] == [Verdict.VIOLATES]
    assert speculating[0].n <= fault.n
    assert not speculating[0].not_speculation
    assert verdicts[fault.requirement, "off"].verdict is Verdict.CONFORMS


@pytest.mark.parametrize("seed", SEEDS[:1])
@pytest.mark.parametrize("variation", LAWFUL, ids=lambda variation: variation.name)
def test_a_lawful_variation_passes(variation: Control, seed: int) -> None:
    report = audit_control(variation, seed=seed)
    assert {one.verdict for one in report.findings} == {Verdict.CONFORMS}
    assert all(one.n >= one.planned for one in report.findings)
