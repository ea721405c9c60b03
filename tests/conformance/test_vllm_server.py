"""vLLM 0.32.0's server, live: what an audit finds as shipped, and that with one function corrected the same audit conforms.

The adapter knows nothing of the correction: the test gives the server's processes a plugin, as vLLM takes them from anybody.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from engine_here import ROOT, needs, python_of

from conformance.audit import audit_engine
from conformance.findings import EngineReport, Verdict
from conformance.harness import EngineInfo, EngineProcess
from conformance.levels import AuditSettings, level_named
from conformance.protocols import Models
from conformance.subject import read_subject
from specref import pretrained

PYTHON = python_of("vllm-server", "vllm")
pytestmark = [pytest.mark.long, needs("vllm-server", "vllm")]

SERVER = "conformance.engines.vllm:make_server"
MODELS = Models(pretrained.path("target"), pretrained.path("draft"))
SPECULATING = ("ngram", "draft_model")
PLUGIN = "[vllm.general_plugins]\ncorrected = tests.conformance.vllm_corrected:correct\n"


class Some(EngineProcess):
    """The server in three of its modes."""

    def describe(self, k: int) -> EngineInfo:
        info = super().describe(k)
        return replace(info, modes=tuple(mode for mode in info.modes if mode.name in ("off", *SPECULATING)))


@pytest.fixture(params=["as shipped", "corrected"])
def corrected(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether whatever is started now corrects itself: a package on its path asks vLLM to."""
    given: Sequence[str] = (str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")]))
    if request.param == "corrected":
        package = tmp_path / "corrected-1.dist-info"
        package.mkdir()
        (package / "METADATA").write_text("Metadata-Version: 2.1\nName: corrected\nVersion: 1\n", encoding="utf-8")
        (package / "entry_points.txt").write_text(PLUGIN, encoding="utf-8")
        given = (str(tmp_path), *given)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(given))
    return bool(request.param == "corrected")


def verdicts(report: EngineReport, requirement: str) -> dict[str, Verdict]:
    return {one.mode: one.verdict for one in report.findings if one.requirement == requirement}


def test_the_live_server_is_wrong_as_shipped_and_right_once_corrected(corrected: bool) -> None:
    level = replace(level_named("smoke"), tokens=1_000, prompts=8, budget=0, rows=0, requests=int(corrected))
    settings = AuditSettings(level, seed=int(time.time()), max_tokens=32)
    report = audit_engine(
        "vllm-server", lambda: Some(SERVER, MODELS, patience=600, python=PYTHON), read_subject(MODELS), settings
    )
    found = Verdict.CONFORMS if corrected else Verdict.VIOLATES
    assert verdicts(report, "LAW-1") == {"off": Verdict.CONFORMS} | dict.fromkeys(SPECULATING, found)
    assert set(verdicts(report, "GREEDY-1").values()) == {Verdict.CONFORMS}
    if corrected:
        assert set(verdicts(report, "LAW-2").values()) == {Verdict.CONFORMS}
        counted = verdicts(report, "ACCEPT-3")
        assert {counted[mode] for mode in SPECULATING} == {Verdict.CONFORMS}, "its page of metrics was read"
