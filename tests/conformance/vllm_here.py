"""Where vLLM is: the interpreter that `nox -s "audit(vllm)"` makes, or this one."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MADE = ROOT / ".nox" / "audit-vllm" / "bin" / "python"
PYTHON = sys.executable if find_spec("vllm") else str(MADE)

needs_vllm = pytest.mark.skipif(
    not find_spec("vllm") and not MADE.exists(), reason='vllm not installed: not run (nox -s "audit(vllm)" installs it)'
)
