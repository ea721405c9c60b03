"""The adapter to ONNX Runtime GenAI: what it asks for, which models it takes, and (where it is installed) what it answers."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from engine_here import ROOT, needs, python_of, short_audit, shows_what_was_found

from conformance.engines import BY_NAME
from conformance.engines.llama_folder import LlamaFolder
from conformance.engines.onnxruntime_genai.modes import all_modes
from conformance.engines.onnxruntime_genai.pairs import make as make_pairs
from conformance.engines.onnxruntime_genai.pairs import tables
from conformance.engines.onnxruntime_genai.settings import search_options
from conformance.findings import Verdict
from conformance.harness import check_modes
from conformance.levels import Level
from conformance.protocols import Request, Unsupported
from conformance.run import further_pairs
from conformance.statistics.chi_square import chi_square_next_given_previous
from conformance.subject import read_subject
from specref import pretrained
from specref.processors import SamplingSettings

NAME, PACKAGE = "onnxruntime-genai", "onnxruntime_genai"
PLAIN = SamplingSettings(max_tokens=8)
WRITES = """
import json, pathlib, sys
from conformance.engines.onnxruntime_genai import make
from conformance.protocols import Models, NotHere, Request
from specref.processors import SamplingSettings
engine = make(Models(*map(pathlib.Path, sys.argv[1:])))
modes = {mode.name: mode for mode in engine.modes(4)}
requests = [Request((1, 60), SamplingSettings(max_tokens=6), seed=seed) for seed in range(3_000)]
written = [[one.tokens for one in engine.generate(modes[name], requests)] for name in ("off", "draft model")]
refused = []
for name in ("own drafts", "MTP"):
    try:
        list(engine.generate(modes[name], requests[:1]))
    except NotHere as why:
        refused.append(str(why))
print(json.dumps([written, refused, engine.metrics(modes["draft model"])]))
"""
REPRODUCTIONS = sorted((ROOT / "reports" / "onnxruntime-genai-0.18.0" / "reproductions").glob("*.py"))


def test_every_mode_has_a_control_and_a_name_of_its_own() -> None:
    modes = all_modes(3)
    check_modes(modes)
    assert not modes[0].speculates
    for mode in modes:
        assert any(not one.speculates and one.options == mode.options for one in modes), mode.name
        assert mode.speculation.get("max_draft_tokens", 3) == 3
        assert (mode.rule == "target") == (not mode.speculates)


@pytest.mark.parametrize(
    "asked",
    [
        {"min_p": 0.1},
        {"presence_penalty": 1.0},
        {"frequency_penalty": 1.0},
        {"logit_bias": {3: 1.0}},
        {"bad_words": ((3,),)},
        {"stop_sequences": ((3, 4),)},
    ],
)
def test_what_genai_has_no_option_for_is_refused_by_name(asked: dict[str, object]) -> None:
    request = Request((1,), replace(PLAIN, **asked), seed=1)  # type: ignore[arg-type]
    with pytest.raises(Unsupported, match=next(iter(asked))):
        search_options(request)


def test_greedy_requests_name_no_temperature() -> None:
    options = search_options(Request((1,), replace(PLAIN, temperature=0.0), seed=1))
    assert not options["do_sample"]
    assert "temperature" not in options


def test_a_llama_folder_is_read_as_transformers_reads_it() -> None:
    from transformers import AutoModelForCausalLM

    folder = pretrained.path("target")
    model, theirs = LlamaFolder.read(folder), AutoModelForCausalLM.from_pretrained(folder)
    for name in ("model.embed_tokens.weight", "model.layers.3.self_attn.k_proj.weight", "lm_head.weight"):
        np.testing.assert_array_equal(model.tensor(name), theirs.state_dict()[name].numpy())
    rotary = theirs.model.rotary_emb.inv_freq.numpy()
    np.testing.assert_allclose(model.rotations()[0][7], np.cos(7 * rotary), rtol=1e-6)


@pytest.mark.parametrize("changed", [{"model_type": "gpt2"}, {"rope_scaling": {"rope_type": "yarn"}}, {"attention_bias": True}])
def test_a_model_that_is_no_plain_llama_is_refused(tmp_path: Path, changed: dict[str, object]) -> None:
    config = json.loads((pretrained.path("draft") / "config.json").read_text())
    config.pop("rope_parameters")
    (tmp_path / "config.json").write_text(json.dumps(config | changed))
    with pytest.raises(Unsupported, match="Llama"):
        LlamaFolder.read(tmp_path)


def test_the_further_pair_is_an_exact_markov_model(tmp_path: Path) -> None:
    ((name, models),) = make_pairs(tmp_path)
    assert further_pairs(BY_NAME[NAME], tmp_path / "again").keys() == {name}
    subject = read_subject(models)
    for scorer, logits in zip((subject.target, subject.draft), tables(), strict=True):
        (rows,) = scorer.logits([((1, 60), (70, 5, 2))])
        np.testing.assert_allclose(rows, logits[[60, 70, 5]], atol=1e-5)
    assert LlamaFolder.read(models.target).layers == 0
    assert subject.margin.value < 1e-3


@pytest.mark.long
@needs(NAME, PACKAGE)
def test_the_tables_law_is_written_with_and_without_drafts(tmp_path: Path) -> None:
    ((_, models),) = make_pairs(tmp_path)
    asked = [python_of(NAME, PACKAGE), "-c", WRITES, str(models.target), str(models.draft)]
    done = subprocess.run(asked, check=True, capture_output=True, text=True)
    written, refused, counts = json.loads(done.stdout.splitlines()[-1])
    assert [why.split(":")[0] for why in refused] == ["own drafts", "MTP"]
    assert 0 < counts["accepted"] < counts["draft_tokens"]
    logits = tables()[0]
    laws = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    for outputs in written:
        pairs = np.zeros(laws.shape, dtype=np.int64)
        for tokens in outputs:
            np.add.at(pairs, ([60, *tokens[:-1]], tokens), 1)
        assert chi_square_next_given_previous(pairs, laws).p > 1e-6


@pytest.mark.long
@needs(NAME, PACKAGE)
def test_a_short_audit_finds_the_scrambled_cache_and_nothing_else() -> None:
    level = Level("test", 1_500, 12, "for this test", requests=2)
    report = short_audit(NAME, PACKAGE, "conformance.engines.onnxruntime_genai:make", level)
    assert not [one for one in report.findings if one.verdict is Verdict.ERROR]
    wrong = {one.mode for one in report.findings if one.verdict is Verdict.VIOLATES}
    assert "draft model, logits read" in wrong
    assert wrong <= {"draft model, logits read", "draft model, rewound", "n-gram, rewound"}


@pytest.mark.long
@needs(NAME, PACKAGE)
@pytest.mark.parametrize("script", REPRODUCTIONS, ids=lambda script: script.stem)
def test_a_reproduction_shows_what_was_found(script: Path) -> None:
    shows_what_was_found(python_of(NAME, PACKAGE), script)
