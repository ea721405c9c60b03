from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from conformance.checks import law
from conformance.findings import EngineReport
from tests.conformance.evidence.audits import kept, left_alone


@pytest.fixture(autouse=True)
def what_was_detectable_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes three quarters of a small audit's time, and follows from the rest."""
    monkeypatch.setattr(law, "detectable", lambda *_: "")


@pytest.fixture
def undisturbed() -> EngineReport:
    """The audit without any evidence kept."""
    return left_alone()


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evidence")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(law, "detectable", lambda *_: "")
        kept(folder)
    return folder


@pytest.fixture
def complete(once: Path, tmp_path: Path) -> Path:
    """The evidence of a complete audit, to be damaged."""
    shutil.copytree(once, tmp_path / "complete")
    return tmp_path / "complete"
