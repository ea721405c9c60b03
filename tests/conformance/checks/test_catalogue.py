"""The catalogue of requirements against the checks that decide them, and the faults that it claims against the tests."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

import conformance.checks
from conformance.levels import LEVELS
from conformance.reporting.violation import FAMILIES
from conformance.requirements import BY_ID, REQUIREMENTS, Requirement, catalogue

HELPERS = {"places", "seen", "outputs", "instances", "component_rounds"}
ELSEWHERE = {"conformance.checks.law", "conformance.checks.greedy"}
"""Their faults are engines, killed by whole audits."""


def source(module: str) -> str:
    spec = find_spec(module)
    assert spec is not None, f"{module} does not exist"
    assert spec.origin is not None
    return Path(spec.origin).read_text()


def ids_in(module: str) -> set[str]:
    words = [node.value for node in ast.walk(ast.parse(source(module))) if isinstance(node, ast.Constant)]
    return {word for word in words if isinstance(word, str) and re.fullmatch(r"[A-Z]+-\d+", word)}


def test_every_check_module_has_its_requirements_in_the_catalogue() -> None:
    modules = {found.name for found in pkgutil.iter_modules(conformance.checks.__path__)} - HELPERS
    named = {requirement.check.rpartition(".")[2] for requirement in REQUIREMENTS}
    assert modules == named


@pytest.mark.parametrize("module", sorted({requirement.check for requirement in REQUIREMENTS}))
def test_a_module_decides_the_requirements_that_name_it(module: str) -> None:
    named = {requirement.id for requirement in REQUIREMENTS if requirement.check == module}
    helped = ids_in(module) if module in ELSEWHERE else {one for one in ids_in(module) if BY_ID[one].check == module}
    assert named == helped
    importlib.import_module(module)


def test_every_family_of_the_reports_has_requirements() -> None:
    assert {requirement.family for requirement in REQUIREMENTS} == set(FAMILIES)


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda requirement: requirement.id)
def test_a_requirement_is_whole(requirement: Requirement) -> None:
    assert requirement.id.rpartition("-")[0] == requirement.family
    assert requirement.level in LEVELS
    assert requirement.sentence.endswith(".")
    assert requirement.source
    assert requirement.reports
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+ \d+", report) for report in requirement.reports)
    assert f"| {requirement.id} | " in catalogue()


def test_ids_are_unique() -> None:
    assert len(BY_ID) == len(REQUIREMENTS)


@pytest.mark.parametrize(
    "requirement", [r for r in REQUIREMENTS if r.check not in ELSEWHERE], ids=lambda requirement: requirement.id
)
def test_the_faults_that_a_check_kills_are_keys_of_its_tests(requirement: Requirement) -> None:
    assert requirement.kills
    tested: set[str] = set()
    for path in Path(__file__).parent.glob("test_check_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Dict):
                tested |= {key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    if requirement.id == "LOUD-1":
        from conformance.checks.loud import probes

        tested |= {f"{probe.setting} ignored without a word" for probe in probes(4, [1], [2])}
    assert set(requirement.kills) <= tested
