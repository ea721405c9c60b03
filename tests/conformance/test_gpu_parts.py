"""FlashInfer and sgl-kernel without a GPU: audits of the adapters over functions of the documented shapes."""

from __future__ import annotations

import secrets
import tomllib
from dataclasses import replace
from functools import partial
from typing import Any

import fake_gpu_functions as fake
import numpy as np
import pytest
import torch
from engine_here import ROOT

from conformance.component_audit import OFFERS, audit_components, label, tree_findings, verifier_findings
from conformance.components import Component
from conformance.engines import BY_NAME, REGISTRY
from conformance.engines.flashinfer.chain import ChainSampling
from conformance.engines.isolated import Isolated
from conformance.engines.parts_alone import PartsAlone
from conformance.engines.sgl_kernel.building import Inputs, Links, as_beams
from conformance.engines.sgl_kernel.verifying import Greedy, TargetOnly, depth_of
from conformance.findings import JUDGED, Finding, Verdict
from conformance.harness import EngineProcess, InProcess
from conformance.levels import AuditSettings, Level
from conformance.not_here import OF_A_PART, not_run
from conformance.protocols import Mode, NotHere, Request, Unsupported
from conformance.run import missing_of, models_named
from conformance.subject import Subject, read_subject
from conformance.worker import load_factory
from conformance.workers import Workers
from specref.processors import SamplingSettings
from specref.tree import TokenTree

ROWS = 3_072
SEED = secrets.randbits(24)
LEVEL = Level("tiny", 0, 0, "for tests", rows=ROWS)
CHAINS, TREES, MASKS = (OF_A_PART[kind] for kind in ("chain verifier", "tree verifier", "masks"))


@pytest.fixture(scope="module")
def subject() -> Subject:
    return read_subject(models_named(None, None))


class OnACpu(PartsAlone):
    """An engine whose parts are on the CPU, in this process."""

    def __init__(self, *here: Any) -> None:
        super().__init__("fake", "0", ())
        self.here = here

    def components(self) -> list[Component]:
        return list(self.here)


def audited(subject: Subject, *parts: Any) -> dict[tuple[str, str], Finding]:
    settings = AuditSettings(LEVEL, seed=SEED)
    found = audit_components(InProcess(OnACpu(*parts)), subject, settings, 1e-6, lambda name: None)
    return {(one.requirement, one.mode): one for one in found}


def test_correct_functions_conform_in_everything_that_is_said_to_be_judged(subject: Subject) -> None:
    chain, target = ChainSampling(fake.Chain(), "cpu"), TargetOnly(fake.TargetOnly(), "cpu")
    greedy, build = Greedy(fake.Greedy(), "cpu"), fake.Build()
    found = audited(subject, chain, target, greedy, Inputs(build, "cpu"), Links(build, "cpu"))
    judged = {place: one for place, one in found.items() if one.verdict in JUDGED}
    assert {one.verdict for one in judged.values()} == {Verdict.CONFORMS}, [one.summary for one in judged.values()]
    assert {one.verdict for one in found.values()} == {Verdict.CONFORMS, Verdict.NOT_EXPOSED}
    said = [(chain, CHAINS), (target, TREES), (greedy, TREES), (Inputs(build, "cpu"), MASKS), (Links(build, "cpu"), MASKS)]
    assert set(judged) == {(requirement, label(part)) for part, requirements in said for requirement in requirements}
    assert {requirement for requirement, _ in found} == set(OFFERS)


@pytest.mark.parametrize("fault", ["no residual", "another row's laws"])
def test_a_fault_of_a_verification_of_chains_is_found(fault: str) -> None:
    found = verifier_findings(ChainSampling(fake.Chain(fault), "cpu"), ROWS, SEED, 1e-6)
    assert Verdict.VIOLATES in {one.verdict for one in found if one.requirement in ("LAW-3", "LAW-4", "LAW-5")}, SEED


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        (TargetOnly, fake.TargetOnly("thresholds of its own")),
        (TargetOnly, fake.TargetOnly("the root's law everywhere")),
        (Greedy, fake.Greedy("the eldest child alone")),
        (Greedy, fake.Greedy("the token before")),
    ],
    ids=lambda one: getattr(one, "fault", ""),
)
def test_a_fault_of_a_verification_of_trees_is_found(part: Any, wrong: Any) -> None:
    verifier = part(wrong, "cpu")
    found = [*verifier_findings(verifier, ROWS, SEED, 1e-6), *tree_findings(verifier, (), 64, SEED)]
    assert Verdict.VIOLATES in {one.verdict for one in found}, SEED


@pytest.mark.parametrize(
    ("fault", "part", "requirement"),
    [
        ("only the parent", Inputs, "TREE-1"),
        ("the first request's prefix", Inputs, "TREE-2"),
        ("a sibling lost", Links, "TREE-1"),
    ],
)
def test_a_fault_of_what_builds_trees_is_found(fault: str, part: Any, requirement: str, subject: Subject) -> None:
    builder = part(fake.Build(fault), "cpu")
    assert audited(subject, builder)[requirement, label(builder)].verdict is Verdict.VIOLATES


def test_a_count_that_contradicts_the_tokens_is_an_error() -> None:
    def overcounting(**named: Any) -> Any:
        emitted, alone, number = fake.Chain()(**named)
        return emitted, alone, number + 1

    laws = np.full((1, 3, 4), 0.25)
    with pytest.raises(ValueError, match="says that"):
        ChainSampling(overcounting, "cpu").verify(laws, laws[:, :2], np.array([[1, 2]]), uniforms=None, seed=0)


def test_a_path_whose_tokens_were_not_written_is_an_error() -> None:
    def silent(*arguments: Any, **named: Any) -> None:
        fake.TargetOnly()(*arguments, **named)
        arguments[0].zero_()

    p = np.tile(np.eye(4)[1], (1, 2, 1))
    with pytest.raises(ValueError, match="and wrote"):
        TargetOnly(silent, "cpu").verify(
            p, None, np.array([[0, 1]]), np.array([[-1, 0]]), uniforms=np.array([[0.5, 0.5]]), seed=0
        )


def test_every_tree_can_be_told_as_beams() -> None:
    rng = np.random.default_rng(SEED)
    for size in rng.integers(1, 20, size=200).tolist():
        tree = TokenTree(list(range(size)), [-1, *(int(rng.integers(0, node)) for node in range(1, size))])
        topk, parent_list, numbers = as_beams(tree)
        assert fake.Build().tree(parent_list, numbers, topk).parents == tree.parents
        assert depth_of(np.array([tree.parents])) == max(tree.depths)


def failing(*_: Any, **__: Any) -> Any:
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def test_a_part_lives_in_a_process_of_its_own_that_ends_with_what_it_raises() -> None:
    laws, drafts = np.full((2, 2, 4), 0.25), np.array([[1], [2]])
    part = Isolated(ChainSampling, partial(ChainSampling, fake.chain_speculative_sampling, "cpu"))
    wrong = Isolated(ChainSampling, partial(ChainSampling, failing, "cpu"))
    try:
        one: Any = part.component
        assert (one.name, one.rule, one.trees, one.takes_uniforms) == ("chain_speculative_sampling", "ratio", False, False)
        first, again = (one.verify(laws, laws[:, :1], drafts, uniforms=None, seed=5) for _ in range(2))
        assert first.accepted.tolist() == again.accepted.tolist()
        other: Any = wrong.component
        with pytest.raises(RuntimeError, match="illegal memory access"):
            other.verify(laws, laws[:, :1], drafts, uniforms=None, seed=5)
        assert not wrong._process.running
    finally:
        part.close()
        wrong.close()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_the_process_says_so_too(subject: Subject) -> None:
    with EngineProcess("conformance.engines.flashinfer:make", models_named(None, None), patience=120) as process:
        found = list(audit_components(process, subject, AuditSettings(LEVEL), 1e-6, lambda name: None))
    assert [one.verdict for one in found] == [Verdict.NOT_RUN]
    assert found[0].summary.startswith("not run: no GPU")


def test_what_needs_a_gpu_is_installed_only_where_there_is_one() -> None:
    recipes = tomllib.loads((ROOT / "conformance" / "engines" / "environments.toml").read_text(encoding="utf-8"))
    alone = {entry.name for entry in REGISTRY if entry.gpu}
    assert {name for name, recipe in recipes.items() if recipe.get("gpu")} == alone
    assert alone <= set(recipes)


def test_on_a_cluster_the_gpu_may_be_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.engines.gpu.gpus", lambda: 0)
    entry = replace(BY_NAME["flashinfer"], package="numpy")
    assert missing_of(entry, Workers()).startswith("no GPU")
    assert missing_of(entry, Workers(ray="auto", gpus=1.0)) == ""
    assert missing_of(replace(entry, package="no_such_package"), Workers(ray="auto", gpus=1.0)) != ""


@pytest.mark.parametrize("name", ["flashinfer", "sgl-kernel"])
def test_without_a_gpu_every_part_is_not_run(name: str, subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.engines.gpu.gpus", lambda: 0)
    models, entry = models_named(None, None), BY_NAME[name]
    engine = load_factory(entry.factory)(models)
    parts = {label(part.component) for part in engine.parts}
    report = not_run(entry, entry.missing, models, subject, AuditSettings(LEVEL))
    assert {one.mode for one in report.findings} == parts
    assert {one.verdict for one in report.findings} == {report.verdict} == {Verdict.NOT_RUN}
    assert all(one.summary.startswith("no GPU") and f"audit({name})" in one.summary for one in report.findings)
    with pytest.raises(Unsupported, match="only its parts"):
        engine.generate(Mode("parts alone"), [Request((1,), SamplingSettings(max_tokens=1), 0)])
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(NotHere, match="no GPU"):
        engine.components()
    engine.close()
