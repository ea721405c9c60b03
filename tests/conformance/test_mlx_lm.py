"""The adapter to mlx-lm, where it is installed: its modes write the same greedily, and what was found in it is shown again."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from engine_here import needs, python_of, shows_what_was_found

from conformance.reproductions import reproductions_of
from specref import pretrained

NAME, PACKAGE = "mlx-lm", "mlx_lm"
GREEDY = """
import json, pathlib, sys
from conformance.engines.mlx_lm import make
from conformance.protocols import Models, Request, Unsupported
from specref.processors import SamplingSettings
engine = make(Models(*map(pathlib.Path, sys.argv[1:])))
def written(mode, **settings):
    request = Request((1, 60, 70, 80), SamplingSettings(max_tokens=16, temperature=0.0, **settings), seed=0)
    output = next(iter(engine.generate(mode, [request])))
    assert len(output.logprobs) == len(output.tokens)
    return output.tokens
modes = engine.modes(3)
found = [written(mode) for mode in modes]
ended = [written(mode, eos=(found[0][5],)) for mode in modes]
try:
    refused = written(modes[0], presence_penalty=0.5)
except Unsupported as refusal:
    refused = str(refusal)
print(json.dumps([found, ended, refused, [engine.metrics(mode) for mode in modes]]))
"""
REPRODUCTIONS = reproductions_of(NAME)


@pytest.mark.long
@needs(NAME, PACKAGE)
def test_all_modes_write_the_same_greedily_and_end_where_they_should() -> None:
    asked = [python_of(NAME, PACKAGE), "-c", GREEDY, *(str(pretrained.path(name)) for name in ("target", "draft"))]
    done = subprocess.run(asked, check=True, capture_output=True, text=True)
    written, ended, refused, counts = json.loads(done.stdout.splitlines()[-1])
    assert written == [written[0]] * 4
    end = written[0][5]
    assert ended == [written[0][: written[0].index(end) + 1]] * 4
    assert refused.startswith("presence_penalty")
    assert counts[0] is counts[2] is None
    assert all(counted["emitted"] == len(written[0]) + len(ended[0]) for counted in (counts[1], counts[3]))
    assert all(0 < counted["accepted"] < counted["emitted"] for counted in (counts[1], counts[3]))


@pytest.mark.long
@needs(NAME, PACKAGE)
@pytest.mark.parametrize("script", REPRODUCTIONS, ids=[script.stem for script in REPRODUCTIONS])
def test_a_reproduction_shows_what_was_found(script: Path) -> None:
    assert shows_what_was_found(python_of(NAME, PACKAGE), script).strip()
