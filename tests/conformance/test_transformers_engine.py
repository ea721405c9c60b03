"""The transformers adapter passes on what the request says, and nothing else; what it cannot pass on it refuses by name."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from conformance.checks.greedy import drafter_swap_finding, greedy_finding
from conformance.checks.logprob import logprob_findings
from conformance.checks.outputs import differences
from conformance.engines.transformers import TransformersEngine
from conformance.engines.transformers.modes import ORDER
from conformance.engines.transformers.pairs import NAMES
from conformance.engines.transformers.pairs import make as make_pairs
from conformance.engines.transformers.settings import generation_config
from conformance.findings import Verdict
from conformance.protocols import Mode, Models, NotHere, Output, Request, Unsupported
from conformance.sampling import check_output
from conformance.scoring import GuidedScorer, TransformersScorer, laws_at
from conformance.subject import Subject, TextPrompts, read_subject
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
EVERYTHING = SamplingSettings(
    max_tokens=14,
    temperature=0.7,
    top_k=12,
    top_p=0.9,
    min_p=0.03,
    repetition_penalty=1.3,
    logit_bias={6: -1.5, 74: 1.0},
    bad_words=((90,), (78, 74)),
    min_tokens=9,
    eos=(2, 75),
)
SPECULATING = ("assistant model", "prompt lookup", "early exit")


@pytest.fixture(scope="module")
def engine() -> TransformersEngine:
    return TransformersEngine(Models(pretrained.path("target"), pretrained.path("draft")))


def mode_named(engine: TransformersEngine, name: str) -> Mode:
    return next(mode for mode in engine.modes(4) if mode.name == name)


def requests(engine: TransformersEngine, number: int, settings: SamplingSettings, seed: int = 0) -> list[Request]:
    text = "The statement is the same as the one that the standard library has. " * 3
    prompts = TextPrompts(engine.tokenizer(text, add_special_tokens=False)["input_ids"], (1,))
    return [Request(prompts.prompt(seed + i), settings, seed + i) for i in range(number)]


def answers(engine: TransformersEngine, name: str, asked: list[Request]) -> list[Output]:
    return list(engine.generate(mode_named(engine, name), asked))


def with_opinions(folder: Path, of: str) -> Path:
    """A model whose generation_config.json has defaults of its own, as published models often do."""
    shutil.copytree(pretrained.path(of), folder)
    file = folder / "generation_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | OPINIONS))
    return folder


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_defaults_that_a_model_brings_do_not_reach_the_audit(
    engine: TransformersEngine, tmp_path: Path, temperature: float
) -> None:
    other = TransformersEngine(Models(with_opinions(tmp_path / "t", "target"), with_opinions(tmp_path / "d", "draft")))
    asked = requests(engine, 2, SamplingSettings(max_tokens=10, temperature=temperature, eos=(2,)))
    for name in ("off", *SPECULATING):
        assert answers(engine, name, asked) == answers(other, name, asked)


def test_the_declared_order_of_processors_is_the_librarys_own(engine: TransformersEngine) -> None:
    config = generation_config(mode_named(engine, "off"), EVERYTHING, None, 0)
    config._eos_token_tensor = torch.tensor(EVERYTHING.eos)
    made = engine._target._get_logits_processor(config, input_ids_seq_length=3, logits_processor=[])
    names = {
        "SequenceBiasLogitsProcessor": "logit_bias",
        "RepetitionPenaltyLogitsProcessor": "repetition_penalty",
        "NoBadWordsLogitsProcessor": "bad_words",
        "MinNewTokensLengthLogitsProcessor": "min_tokens",
        "TemperatureLogitsWarper": "temperature",
        "TopKLogitsWarper": "top_k",
        "TopPLogitsWarper": "top_p",
        "MinPLogitsWarper": "min_p",
    }
    assert tuple(names[type(processor).__name__] for processor in made) == ORDER[: len(names)]
    assert all(mode.order == ORDER for mode in engine.modes(4))


@pytest.mark.parametrize("name", ["off", "off, guidance", *SPECULATING])
def test_every_setting_reaches_the_law_and_log_probabilities_are_of_it(engine: TransformersEngine, name: str) -> None:
    """The engine's own log-probabilities are those of our processors, in the engine's order, along what it wrote."""
    asked = requests(engine, 3, EVERYTHING)
    outputs = answers(engine, name, asked)
    mode, target = mode_named(engine, name), TransformersScorer.load(pretrained.path("target"))
    scorer = target if mode.guidance == 1 else GuidedScorer(target, mode.guidance)
    processors, rows = EVERYTHING.processors(ORDER), []
    for request, output in zip(asked, outputs):
        found = []
        for place, row in enumerate(scorer.logits([(request.prompt, output.tokens)])[0]):
            for processor in processors:
                row = processor(row, request.prompt, output.tokens[:place])
            found.append(row - np.log(np.exp(row - row.max()).sum()) - row.max())
        rows.append(np.array(found))
    returned = [output.logprobs or () for output in outputs]
    for finding in logprob_findings(name, outputs, returned, rows, planned=1, promised=True, tolerance=1e-4):
        assert finding.verdict is Verdict.CONFORMS, finding.violations


@pytest.mark.parametrize("name", ["presence_penalty", "frequency_penalty"])
def test_a_setting_that_transformers_does_not_have_is_refused_by_name(engine: TransformersEngine, name: str) -> None:
    asked = requests(engine, 1, replace(SamplingSettings(max_tokens=4), **{name: 0.5}))
    with pytest.raises(Unsupported, match=name):
        answers(engine, "off", asked)


def test_stop_sequences_need_a_tokenizer_and_are_refused_with_an_assistant(engine: TransformersEngine) -> None:
    settings = SamplingSettings(max_tokens=6, temperature=0.0, stop_sequences=((6,),))
    with pytest.raises(Unsupported, match="stop_sequences"):
        generation_config(mode_named(engine, "off"), settings, None, 0)
    asked = requests(engine, 1, settings)
    assert all(output.tokens == settings.stops().cut((), output.tokens) for output in answers(engine, "off", asked))
    with pytest.raises(Unsupported, match="stop_sequences with an assistant"):
        answers(engine, "assistant model", asked)


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("multi-token prediction", "use_mtp"),
        ("single position", "single_position"),
        ("dflash", "speculation_type"),
        ("multi-token prediction, static cache", "use_mtp"),
    ],
)
def test_a_mode_whose_models_are_not_here_is_not_run_and_says_what_to_do(
    engine: TransformersEngine, name: str, named: str
) -> None:
    with pytest.raises(NotHere, match=rf"{named}.*(give a model with them|judged alone)"):
        answers(engine, name, requests(engine, 1, SamplingSettings(max_tokens=8)))


def test_a_target_that_names_layers_and_has_none_is_not_run(other_architectures: dict[str, Models]) -> None:
    engine = TransformersEngine(other_architectures["deepseek_v3"])
    with pytest.raises(NotHere, match="use_mtp: the target has no layers"):
        answers(engine, "multi-token prediction", requests(engine, 1, SamplingSettings(max_tokens=8)))


@pytest.fixture(scope="module")
def other_architectures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Models]:
    return dict(make_pairs(tmp_path_factory.mktemp("models")))


def test_other_architectures_draft_often_but_not_always_what_their_target_says(other_architectures: dict[str, Models]) -> None:
    assert tuple(other_architectures) == NAMES
    for name, models in other_architectures.items():
        subject = read_subject(models)
        assert subject.architecture == name
        assert subject.target.vocabulary == 114
        assert subject.margin.value < 1e-3
        p, q = (
            laws_at(one.logits([(subject.prompts.prompt(0), (5, 6, 7) * 9)])[0], 1.0) for one in (subject.target, subject.draft)
        )
        assert 0.3 < np.minimum(p, q).sum(axis=1).mean() < 0.98


@pytest.mark.parametrize(
    ("architecture", "name", "named"),
    [
        (None, "assistant model, quantized cache", "with speculation"),
        ("mistral", "off, quantized cache", "with this architecture"),
        ("gemma3_text", "early exit, static cache", "with speculation"),
    ],
)
def test_a_cache_that_cannot_be_had_is_refused_by_name(
    engine: TransformersEngine, other_architectures: dict[str, Models], architecture: str | None, name: str, named: str
) -> None:
    asked = engine if architecture is None else TransformersEngine(other_architectures[architecture])
    with pytest.raises(Unsupported, match=f"cache='(quantized|static)' {named}"):
        answers(asked, name, requests(asked, 1, SamplingSettings(max_tokens=8)))


def test_a_cache_that_the_adapter_does_not_know_is_refused(engine: TransformersEngine) -> None:
    mode = replace(mode_named(engine, "off"), options={"cache": "paged"})
    with pytest.raises(Unsupported, match="cache='paged'"):
        list(engine.generate(mode, requests(engine, 1, SamplingSettings(max_tokens=4))))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rounds_are_heard_without_changing_anything(engine: TransformersEngine, temperature: float) -> None:
    """The same call without the listener gives the same tokens, and the rounds tell of them."""
    settings = SamplingSettings(max_tokens=20, temperature=temperature, eos=(2,))
    for name in SPECULATING:
        mode = mode_named(engine, name)
        asked = requests(engine, 1, settings, seed=3)[0]
        output = next(iter(engine.generate(mode, [asked])))
        check_output(asked, output, 114)
        assert output.rounds is not None
        assert any(one.drafted for one in output.rounds)
        assert all(len(one.drafted) <= 4 for one in output.rounds)
        torch.manual_seed(asked.seed)
        ids = torch.tensor([asked.prompt])
        alone = engine._target.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            generation_config=generation_config(mode, settings, None, 0),
            **engine._assistance(mode, temperature > 0),
        )
        assert tuple(alone.sequences[0, ids.shape[1] :].tolist()) == output.tokens
        assert "_get_candidate_generator" not in vars(engine._target)


def test_speculation_changes_nothing_at_temperature_zero(engine: TransformersEngine) -> None:
    asked = requests(engine, 3, SamplingSettings(max_tokens=24, temperature=0.0, eos=(2,)))
    usual = [output.tokens for output in answers(engine, "off", asked)]
    for name in (*SPECULATING, "assistant model, confidence", "other tokenizer", "assistant model, static cache"):
        assert not differences(usual, [output.tokens for output in answers(engine, name, asked)], name)


@pytest.mark.parametrize("options", ["", ", guidance", ", cached prefix"])
def test_what_speculation_corrupts_at_the_pinned_version(engine: TransformersEngine, ours: Subject, options: str) -> None:
    """GREEDY-4 sees it: drafts enter the cache of guidance and never leave; a prompt is read again onto its cached part."""
    asked = requests(engine, 3, SamplingSettings(max_tokens=16, temperature=0.0, eos=(2,)))
    outputs = {name: [output.tokens for output in answers(engine, name + options, asked)] for name in ("off", "prompt lookup")}
    read = ours.under(mode_named(engine, "off" + options))
    logits = read.target.logits([(request.prompt, output) for request, output in zip(asked, outputs["off"])])
    assert greedy_finding("off", outputs["off"], logits, read.margin, planned=1).verdict is Verdict.CONFORMS
    finding = drafter_swap_finding(options, outputs, logits, read.margin, planned=1)
    if not options:
        assert finding.verdict is Verdict.CONFORMS
    elif engine.version == "5.24.0":
        assert finding.verdict is Verdict.VIOLATES


@pytest.fixture(scope="module")
def ours() -> Subject:
    return read_subject(Models(pretrained.path("target"), pretrained.path("draft")))


def test_what_the_engine_is_spared_is_named_with_scripts_that_are_there(engine: TransformersEngine) -> None:
    folder = Path(f"reports/transformers-{engine.version}/reproductions")
    for said in engine.not_asked():
        scripts = re.findall(r"\w+\.py", said)
        assert scripts
        assert engine.version != "5.24.0" or all((folder / script).exists() for script in scripts)


def test_under_guidance_lawful_ways_of_computing_lie_further_apart(engine: TransformersEngine, ours: Subject) -> None:
    guided = ours.under(mode_named(engine, "assistant model, guidance"))
    assert ours.under(mode_named(engine, "assistant model")) is ours
    assert guided.under(mode_named(engine, "off, guidance")) is guided
    assert guided.margin.value == 2 * ours.margin.value  # 1.5 of one reading and 0.5 of the other


def test_a_prompt_whose_first_part_is_cached_is_answered_as_any_other(engine: TransformersEngine) -> None:
    asked = requests(engine, 2, SamplingSettings(max_tokens=12, temperature=0.0, eos=(2,)))
    usual, cached = ([output.tokens for output in answers(engine, name, asked)] for name in ("off", "off, cached prefix"))
    assert usual == cached
