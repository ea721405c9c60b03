"""The comparison with a fresh prefill finds every planted fault."""

from __future__ import annotations

import pytest

from .faults import FAULTS
from .kinds import Mismatch
from .machines import run


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found(fault: str) -> None:
    with pytest.raises(Mismatch):
        run(FAULTS[fault], examples=300, shrink=False)
