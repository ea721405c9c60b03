"""Modes that only complete pairs: what probes found of their speculation is said of them too."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from conformance.diagnosis import Diagnosis
from conformance.findings import Finding, Verdict
from conformance.protocols import Mode
from conformance.triage import first_of_each_mode


def test_a_mode_that_completes_pairs_has_the_cause_of_its_speculation() -> None:
    fast, odd = Mode("fast", {"k": 2}), Mode("odd", {"k": 3})
    some = [replace(one, name=f"{one.name}, static", options={"cache": "static"}, brief=True) for one in (fast, odd)]
    modes = [some[0], fast, some[1], replace(some[1], name="odd, prefix")]
    states: list[Any] = [SimpleNamespace(mode=mode, case=SimpleNamespace(name=mode.name)) for mode in (*modes, odd)]
    found = {("LAW-1", mode.name): Finding("LAW-1", mode.name, Verdict.VIOLATES, "wrong") for mode in modes}
    together = [[state.mode.name for state in alike] for alike in first_of_each_mode(states, found)]
    assert together == [["fast", "fast, static"], ["odd, static", "odd, prefix"]], "and what conforms is not probed"
    probed = Diagnosis("rule", "why", ("seen",))
    assert probed.of_mode("fast", "fast") is probed
    assert probed.of_mode("fast", "fast, static").evidence == ("the cause as probed in mode 'fast'",)
