"""The invariants find every planted fault, by the error that says what was found and what was expected.

The number of schedules tried is a cap: a run ends with the first that shows the fault.
"""

from __future__ import annotations

import pytest

from .faults import FAULTS
from .invariants import Broken
from .machine import run


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found(fault: str) -> None:
    with pytest.raises(Broken):
        run(FAULTS[fault], examples=1500)
