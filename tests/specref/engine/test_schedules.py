"""Random schedules of the reference engine: no invariant breaks, and everything that can happen does happen."""

from __future__ import annotations

from collections import Counter

import pytest

from specref.draft import Draft
from specref.engine import Engine
from specref.engine.memory import Memory
from specref.engine.request import Request
from specref.engine.rounds import Rounds
from specref.kv_cache import CacheFull

from .machine import Schedules, run


def counting() -> tuple[type[Schedules], Counter[str]]:
    """The machine, and a count of the events that its schedules are meant to bring about."""
    happened: Counter[str] = Counter()

    class CountingMemory(Memory):
        def open(self, request: Request) -> None:
            super().open(request)
            happened["a prefix found"] += request.read > 0
            happened["a request that comes back"] += bool(request.output)

    class CountingRounds(Rounds):
        def prefill(self, request: Request, chunk: int) -> None:
            happened["a prompt in several chunks"] += request.read + chunk < len(request.committed) - 1
            super().prefill(request, chunk)

        def abandon(self, request: Request) -> None:
            happened["a round given up after drafting"] += 1
            super().abandon(request)

        def verify(self, request: Request, draft: Draft) -> None:
            try:
                super().verify(request, draft)
            except CacheFull:
                happened["no memory in the middle of a round"] += 1
                raise
            done = request.steps[-1].round
            kind = "chain" if draft.tree is None else "tree"
            happened[f"an empty draft, {kind}"] += not done.drafted
            happened[f"a rejection, {kind}"] += done.accepted == 0 < len(done.drafted)
            happened[f"a stop inside the accepted part, {kind}"] += len(done.emitted) <= done.accepted
            happened[f"full acceptance, {kind}"] += done.accepted == request.speculation.k

    class CountingEngine(Engine):
        memory_type, rounds_type = CountingMemory, CountingRounds

        def verify_rows(self, rows: list[Request], drafts: dict[int, Draft]) -> None:
            happened["greedy and sampled rows in one batch"] += len({row.settings.temperature == 0 for row in rows}) == 2
            happened["rules mixed in one batch"] += len({row.speculation.rule for row in rows}) > 1
            super().verify_rows(rows, drafts)
            happened["pre-emption between draft and verification"] += any(row.status == "waiting" for row in rows)

    return type("Machine", (Schedules,), {"engine_type": CountingEngine}), happened


def test_no_schedule_breaks_an_invariant() -> None:
    run(Schedules, examples=60, shrink=True)


@pytest.mark.long
def test_no_schedule_breaks_an_invariant_2000_schedules() -> None:
    machine, happened = counting()
    run(machine, examples=2000)
    print(happened)
    assert min(happened.values()) > 0, happened
