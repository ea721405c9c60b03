"""Our kernels as components: they conform, planted faults in their source do not, and a missing compiler is said."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.checks import component_law, edge, tree
from conformance.checks.component_exact import exact_finding
from conformance.checks.component_law import component_findings, mixup_finding, rounds_of
from conformance.checks.instances import draw_trial, make_laws
from conformance.components import kind_of
from conformance.controls import instance
from conformance.engines.own import OwnPaths
from conformance.engines.own_kernels import CHAIN_KERNELS, TREE_KERNELS, KernelChain, KernelMasks, KernelTree, numbers
from conformance.findings import Finding, Verdict
from conformance.protocols import Unsupported
from conformance.studies import kernels as study
from specref.cuda import emulated, emulator, emulator_unavailable_reason
from specref.cuda.proof.faults import planted_faults

ROWS = 1_536  # a batch of each shape, in its share
SEED = secrets.randbits(24)


@pytest.fixture
def compiler() -> None:
    reason = emulator_unavailable_reason()
    if reason is not None:
        pytest.skip(f"not run: {reason}")


def audit(verifier: Any, rows: int = ROWS) -> list[Finding]:
    found = component_findings(verifier.name, verifier.rule, rounds_of(verifier, rows, SEED), planned=rows, seed=SEED)
    return [*found, mixup_finding(verifier, batches=4, seed=SEED)]


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(component_law, "ROWS", 512)


@pytest.mark.parametrize("rule", CHAIN_KERNELS)
def test_chain_kernels_conform(compiler: None, rule: str) -> None:
    verifier = KernelChain(rule)
    found = [*audit(verifier), *edge.edge_findings(verifier.name, edge.ask_edges(verifier))]
    assert [one.requirement for one in found] == ["LAW-3", "LAW-4", "LAW-5", "EDGE-1", "EDGE-2", "EDGE-3"]
    assert {one.verdict for one in found} == {Verdict.CONFORMS}, (SEED, [one.violations for one in found])


def test_the_law_of_a_chain_kernel_is_exact(compiler: None) -> None:
    assert exact_finding(KernelChain("ratio"), vocabulary=4, seed=SEED).verdict is Verdict.CONFORMS, SEED


@pytest.mark.parametrize("rule", TREE_KERNELS)
def test_tree_kernels_conform(compiler: None, rule: str) -> None:
    verifier = KernelTree(rule)
    found = audit(verifier)
    assert {one.verdict for one in found} == {Verdict.CONFORMS}, (SEED, [one.violations for one in found])
    assert verifier.decided > 0.8 * ROWS
    assert (verifier.others > 0) == (rule == "without_replacement")  # siblings that no draw without replacement gives


FAULTS = {
    "drawn from p, not from the residual": ("LAW-4", KernelChain("ratio"), 4 * ROWS),  # 400 steps that the rule forbids
    "siblings tested against the same p": ("LAW-3", KernelTree("without_replacement"), 16 * ROWS),  # log10 evidence of 40 to 65
}
"""The requirement that fails, the kernel, and rows by which it surely does."""


CHAIN_FAULT, TREE_FAULT = FAULTS


@pytest.mark.parametrize("name", [CHAIN_FAULT, pytest.param(TREE_FAULT, marks=pytest.mark.long)])
def test_a_fault_in_a_kernels_source_is_found(compiler: None, name: str, tmp_path: Path) -> None:
    requirement, verifier, rows = FAULTS[name]
    (variant,) = [one for one in planted_faults() if one.name == name]
    with emulated(sources=variant.write(tmp_path), flags=("-O1",)):
        found = {one.requirement: one.verdict for one in audit(verifier, rows)}
    assert found[requirement] is Verdict.VIOLATES, (SEED, found)


def test_tree_build_gives_the_inputs_of_a_tree(compiler: None) -> None:
    masks = KernelMasks()
    found = tree.input_findings(masks.name, tree.build_all(masks, tree.trees(60, SEED)), 60)
    assert {one.verdict for one in found} == {Verdict.CONFORMS}


@pytest.mark.parametrize(("rule", "chain"), [("without_replacement", "ratio"), ("one_hot", "one_hot")])
def test_a_tree_of_width_one_is_a_chain(compiler: None, rule: str, chain: str) -> None:
    rng = np.random.default_rng(SEED)
    trial = draw_trial(make_laws(4, 4, 8, rng), (-1, 0, 1, 2), 600, rng)
    asked = (component_law.ask(one, trial, SEED) for one in (KernelTree(rule), KernelChain(chain)))
    assert tree.width_one_finding(rule, *asked, planned=600).verdict is Verdict.CONFORMS, SEED


def test_without_a_compiler_the_component_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    emulator.emulator_unavailable_reason.cache_clear()
    try:
        with monkeypatch.context() as patch:
            patch.setattr("shutil.which", lambda name: None)
            with pytest.raises(Unsupported, match=r"^no g\+\+: kernel ratio not run \(.*apt install g\+\+"):
                audit(KernelChain("ratio"))
            with pytest.raises(Unsupported, match=r"^no g\+\+: kernel tree one_hot not run"):
                audit(KernelTree("one_hot"))
            with pytest.raises(Unsupported, match=r"^no g\+\+: kernel tree_build not run"):
                KernelMasks().build(1, [0], [-1])
            assert [str(line[2])[:23] for line, _ in study.audit_kernels(1, 0)] == ["no g++: kernels not run"]
    finally:
        emulator.emulator_unavailable_reason.cache_clear()


def test_our_engine_offers_every_fast_path() -> None:
    offered = OwnPaths(*instance()).components()
    kinds = [kind_of(one) for one in offered]
    assert (kinds.count("verifier"), kinds.count("masks"), kinds.count("caches")) == (13, 1, 3)
    assert len({one.name for one in offered}) == len(offered)


def test_uniforms_stay_below_one() -> None:
    u = numbers(np.array([[0.0, 1 - 2.0**-53, 0.5 + 2.0**-25]]), (1, 3), seed=0)
    assert u.tolist() == [[0.0, 1 - 2.0**-24, 0.5]]


def test_a_section_of_the_report_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "kernels.md"
    for title, body in (("A", "one"), ("B", "two"), ("A", "three")):
        study.put_section(path, title, body)
    assert re.findall(r"^## (\w)\n\n(\w+)$", path.read_text(), re.MULTILINE) == [("A", "three"), ("B", "two")]


@pytest.mark.long
def test_all_fast_paths_conform_at_length(compiler: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(component_law, "ROWS", 2048)
    monkeypatch.setattr(component_law, "VOCABULARY", study.V)
    parts = study.audit_kernels(20_000, SEED), study.audit(study.batched(), 60_000, SEED)
    assert all(good for part in parts for _, good in part), SEED
