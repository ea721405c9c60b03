"""The invariants find every planted fault, by the error that says what was found and what was expected, and nothing else."""

from __future__ import annotations

import pytest

from .faults import FAULTS, LAWFUL
from .invariants import Broken
from .machine import run


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found(fault: str) -> None:
    """The number of schedules is a cap: a run ends with the first that shows the fault."""
    with pytest.raises(Broken):
        run(FAULTS[fault], examples=1500)


@pytest.mark.parametrize("variation", LAWFUL)
def test_lawful_variation_passes(variation: str) -> None:
    run(LAWFUL[variation], examples=15)
