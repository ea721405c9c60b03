"""Modes that cannot run here: the plan promises nothing of them, and the report says what was not run, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from conformance.audit import audit_engine
from conformance.controls import instance
from conformance.coverage import MISSED
from conformance.findings import Verdict
from conformance.harness import InProcess
from conformance.protocols import Mode, Request
from conformance.watcher import Silent
from tests.conformance.promising_engine import TwoModes, settings, subject
from tests.conformance.test_audit_cases import ALL, audited


class WithoutGraphs(TwoModes):
    """Has a mode, and one that only completes pairs, for which this machine lacks something."""

    def modes(self, k: int) -> Sequence[Mode]:
        off, ratio = super().modes(k)
        graphs = replace(ratio, name="graphs", options={"cache": "graphs"}, not_here="graphs: they need a GPU")
        return (off, replace(graphs, name="graphs alone"), ratio, graphs, replace(graphs, name="brief", brief=True))

    def generate(self, mode: Mode, requests: Sequence[Request]):  # type: ignore[no-untyped-def]
        assert not mode.not_here, "what is known not to run is not asked for"
        return super().generate(mode, requests)


class Told(Silent):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.said, self.total, self.done = "", 0, 0

    def plan(self, engine: str, said: Callable[[], str]) -> None:
        self.said = said()

    def begin(self, engine: str, total: int) -> None:
        self.total += total

    def advance(self, engine: str, amount: int, doing: str) -> None:
        self.done += amount


@pytest.mark.parametrize(("what", "requests"), [("plain", 1), ("share", 0), ("all", 0)])
def test_the_plan_promises_nothing_of_modes_that_are_not_here_and_says_why_once(what: str, requests: int) -> None:
    level, told = replace(ALL, cases=what, requests=requests, tokens=100, budget=1_000), Told()
    engine = WithoutGraphs(*instance())
    with_them = audit_engine("tables", lambda: InProcess(engine), subject(), settings(level), watcher=told)
    without = audited(TwoModes(*instance()), level)
    assert told.said.startswith("2 modes in ")
    assert told.said.count("graphs: they need a GPU") == 1
    assert told.done == told.total
    for name in ("tokens of each case", "prompts per greedy mode", "modes that these are asked of"):
        assert with_them.plan[name] == without.plan[name]
    judged = {(one.requirement, one.mode): one for one in without.findings}
    for one in with_them.findings:
        if one.mode.startswith(("graphs", "brief")):
            assert one.verdict is Verdict.NOT_RUN
            assert "they need a GPU" in one.summary or what == "plain"
        elif one.verdict is Verdict.CONFORMS:
            assert judged[one.requirement, one.mode].n == one.n
    left = {(one.requirement, one.mode) for one in with_them.findings if one.verdict is Verdict.NOT_RUN}
    families = ("STOP-1", "BATCH-1") if requests else ()
    assert left >= {(one, "graphs alone") for one in ("LAW-1", "LAW-2", "GREEDY-1", *families)}
    assert (("LAW-1", "graphs alone [top-p 0.9]") in left) is (what == "all")
    if what == "all":
        assert with_them.plan[MISSED]["not run: graphs: they need a GPU"][0] == "graphs alone: graphs"
