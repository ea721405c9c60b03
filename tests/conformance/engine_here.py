"""Engines in environments of their own: where one is, a short audit of it, and what was found in it shown again."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from conformance.audit import audit_engine
from conformance.engines import BY_NAME
from conformance.findings import EngineReport
from conformance.harness import EngineProcess
from conformance.levels import AuditSettings, Level
from conformance.protocols import Models
from conformance.reproductions import show_again
from conformance.subject import read_subject
from specref import pretrained

ROOT = Path(__file__).parents[2]


def python_of(engine: str, package: str) -> str:
    """This interpreter, if it has the package, else the one that an audit of the engine would use."""
    return sys.executable if find_spec(package) else BY_NAME[engine].python


def short_audit(
    engine: str, package: str, factory: str, level: Level, start: type[EngineProcess] = EngineProcess
) -> EngineReport:
    """An audit of an engine at a level of the test's own, over our small models, with a fresh seed."""
    models, python = Models(pretrained.path("target"), pretrained.path("draft")), python_of(engine, package)
    settings = AuditSettings(level, seed=int.from_bytes(os.urandom(4), "big"))
    return audit_engine(
        engine, lambda: start(factory, models, patience=180, python=python, threads=1), read_subject(models), settings
    )


def shows_what_was_found(python: str, script: Path) -> str:
    """Run a published reproduction, which is short; what it says."""
    assert len(script.read_text(encoding="utf-8").splitlines()) < 40
    return show_again(python, script)


def needs(engine: str, package: str) -> pytest.MarkDecorator:
    """Skip, saying how to install it, where an engine is not found."""
    here = find_spec(package) is not None or python_of(engine, package) != sys.executable
    return pytest.mark.skipif(not here, reason=f'{package} not installed: not run (nox -s "audit({engine})" installs it)')
