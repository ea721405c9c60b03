"""The one audit of a session."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from conformance.levels import AuditSettings, level_named
from conformance.problems import UsageProblem

EXAMPLE = "pytest --pyargs conformance.suite --engine my_package.my_module:make_engine"


def audited(options: argparse.Namespace) -> str:
    """Audit the engine that the options name, with progress on stderr and reports in the folder that they give; the reports as
    JSON text. Raises pytest.UsageError, in one line, for wrong settings."""
    try:
        return _audited(options)
    except UsageProblem as problem:
        raise pytest.UsageError(f"specref: {' '.join(str(problem).split())}") from problem


def _audited(options: argparse.Namespace) -> str:
    engine: str | None = options.specref_engine
    if not engine:
        raise UsageProblem(f"which engine? Give --engine, for instance: {EXAMPLE}")
    if "//" in engine:
        raise UsageProblem(f"a server is audited by the command: specref audit {engine} --target MODEL")
    settings = AuditSettings(level_named(options.specref_level), options.specref_alpha, options.specref_seed)
    from conformance.run import run_audits

    name = engine.partition(":")[0]
    folder = options.specref_out or Path("audits") / f"{name}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    console = Console(stderr=True, width=None if sys.stderr.isatty() else 160)
    models = (options.specref_target, options.specref_draft)
    run_audits([engine], settings, *models, options.specref_expected, folder, console)
    return (folder / "report.json").read_text(encoding="utf-8")
