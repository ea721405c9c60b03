"""The transformers adapter passes on what the request says, and nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from conformance.engines.transformers import TransformersEngine
from conformance.protocols import Models, Request
from specref import pretrained
from specref.processors import SamplingSettings

OPINIONS = {
    "do_sample": True,
    "temperature": 0.3,
    "top_k": 2,
    "top_p": 0.2,
    "min_p": 0.4,
    "repetition_penalty": 3.0,
    "no_repeat_ngram_size": 2,
    "min_new_tokens": 12,
}


def with_opinions(folder: Path, of: str) -> Path:
    """A model whose generation_config.json has defaults of its own, as published models often do."""
    shutil.copytree(pretrained.path(of), folder)
    file = folder / "generation_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | OPINIONS))
    return folder


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_defaults_that_a_model_brings_do_not_reach_the_audit(tmp_path: Path, temperature: float) -> None:
    plain = TransformersEngine(Models(pretrained.path("target"), pretrained.path("draft")))
    other = TransformersEngine(Models(with_opinions(tmp_path / "t", "target"), with_opinions(tmp_path / "d", "draft")))
    settings = SamplingSettings(max_tokens=12, temperature=temperature, eos=(2,))
    requests = [Request((1, *range(20, 26 + n)), settings, n) for n in range(2)]
    modes = {mode.name: mode for mode in plain.modes(3)}
    for name in ("off", "assistant model", "prompt lookup", "early exit", "ensemble"):
        assert list(plain.generate(modes[name], requests)) == list(other.generate(modes[name], requests))
