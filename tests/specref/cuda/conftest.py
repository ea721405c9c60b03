from __future__ import annotations

import pytest
import torch

import specref.cuda
from specref.cuda import emulator_unavailable_reason


@pytest.fixture(autouse=True)
def _one_torch_thread():
    torch.set_num_threads(1)


@pytest.fixture
def emulator():
    """Kernels run on the emulator in this test; without g++ the test can't run, and says so."""
    reason = emulator_unavailable_reason()
    if reason is not None:
        pytest.skip(f"not run: {reason}")
    return specref.cuda
