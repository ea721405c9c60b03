"""Where an engine of another environment is: the interpreter that `nox -s "audit(NAME)"` makes, or this one."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def python_of(engine: str, package: str) -> str:
    """The interpreter that has the package, if any does."""
    made = ROOT / ".nox" / f"audit-{engine}" / "bin" / "python"
    return sys.executable if find_spec(package) or not made.exists() else str(made)


def needs(engine: str, package: str) -> pytest.MarkDecorator:
    """Skip, saying how to install it, where an engine is not found."""
    here = find_spec(package) is not None or python_of(engine, package) != sys.executable
    return pytest.mark.skipif(not here, reason=f'{package} not installed: not run (nox -s "audit({engine})" installs it)')
