"""Random schedules of the reference engine: no invariant breaks."""

from __future__ import annotations

import pytest

from .machine import Schedules, run


def test_no_schedule_breaks_an_invariant() -> None:
    run(Schedules, examples=40, shrink=True)


@pytest.mark.long
def test_no_schedule_breaks_an_invariant_2000_schedules() -> None:
    run(Schedules, examples=2000, steps=16, shrink=True)
