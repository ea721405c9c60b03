"""The adapter to OpenVINO GenAI: its modes; and where it is installed, what they write, and what was found in it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from engine_here import needs, python_of, shows_what_was_found

from conformance.engines.openvino_genai.modes import all_modes
from conformance.harness import check_modes
from conformance.reproductions import reproductions_of
from specref import pretrained

NAME, PACKAGE = "openvino-genai", "openvino_genai"
WRITES = """
import json, pathlib, sys
from conformance.engines.openvino_genai import make
from conformance.protocols import Models, Request, Unsupported
from specref.processors import SamplingSettings
engine = make(Models(*map(pathlib.Path, sys.argv[1:])))
def written(mode, temperature=0.0, **settings):
    request = Request((1, 60, 70, 80), SamplingSettings(max_tokens=16, temperature=temperature, **settings), seed=0)
    output = next(iter(engine.generate(mode, [request])))
    assert len(output.logprobs or output.tokens) == len(output.tokens)
    return output.tokens
modes = engine.modes(3)
found = [written(mode) for mode in modes]
ended = [written(mode, eos=(found[0][5],)) for mode in modes]
stopped = [written(mode, stop_sequences=(found[0][5:7],)) for mode in modes]
counts = [engine.metrics(mode) for mode in modes]
refused = []
unknown = ({"logit_bias": {3: 1.0}}, {"stop_sequences": ((2,),)})
others = ({"presence_penalty": 0.5}, {"frequency_penalty": 0.25})  # of another meaning than ours
for settings in (*unknown, {"temperature": 1.0, "min_p": 1.0}, *others):
    try:
        written(modes[0], **settings)
    except Unsupported as refusal:
        refused.append(str(refusal).split(":")[0])
print(json.dumps([found, ended, stopped, counts, refused]))
"""
REPRODUCTIONS = reproductions_of(NAME)


def test_every_mode_has_a_control_and_a_name_of_its_own() -> None:
    modes = all_modes(3)
    check_modes(modes)
    for mode in modes:
        assert any(not one.speculates and one.options == mode.options for one in modes), mode.name
        assert mode.speculation.get("num_assistant_tokens", 3) == 3
        assert bool(mode.logprobs) == ("logprobs" in mode.options) == ("LOGPROB-1" in mode.promises)


@pytest.mark.long
@needs(NAME, PACKAGE)
def test_all_modes_write_the_same_greedily_and_end_where_they_should() -> None:
    asked = [python_of(NAME, PACKAGE), "-c", WRITES, *(str(pretrained.path(name)) for name in ("target", "draft"))]
    done = subprocess.run(asked, check=True, capture_output=True, text=True)
    written, ended, stopped, counts, refused = json.loads(done.stdout.splitlines()[-1])
    assert written == [written[0]] * len(written)
    end = written[0][5]
    assert ended == [written[0][: written[0].index(end) + 1]] * len(written)
    pairs = list(zip(written[0], written[0][1:]))
    assert stopped == [written[0][: pairs.index((end, written[0][6])) + 2]] * len(written)
    emitted = sum(map(len, (written[0], ended[0], stopped[0])))
    for mode, counted in zip(all_modes(3), counts, strict=True):
        if "ACCEPT-3" not in mode.promises:
            assert not counted, mode.name
            continue
        assert counted["emitted"] == emitted, mode.name
        assert ("draft_model" in mode.speculation) == (counted.get("accepted", 0) > 0), mode.name
    assert refused == ["logit_bias", "stop_sequences", "min_p", "presence_penalty", "frequency_penalty"]


@pytest.mark.long
@needs(NAME, PACKAGE)
@pytest.mark.parametrize("script", REPRODUCTIONS, ids=[script.stem for script in REPRODUCTIONS])
def test_a_reproduction_shows_what_was_found(script: Path) -> None:
    assert shows_what_was_found(python_of(NAME, PACKAGE), script).strip()
