"""Every drafter and every rule of the reference is in some mode of the audited engine, or is said to be in none, and why."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

import specref.drafters
import specref.generate
import specref.rules
from conformance.engines.reference_drafters import NOT_MODES
from conformance.engines.reference_engine import SpecrefEngine, make
from conformance.protocols import Models, Request
from specref import pretrained
from specref.engine.speculation import DraftModel
from specref.processors import SamplingSettings

K = 3
PROMPT = (1, 40, 71, 6, 40, 71, 6)


@cache
def engine() -> SpecrefEngine:
    return make(Models(pretrained.path("target"), pretrained.path("draft")))


def modules(package: ModuleType) -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        yield importlib.import_module(found.name)


def name(one: Any) -> str:
    return f"{one.__module__}.{one.__qualname__}"


def rules() -> set[str]:
    """The functions that verify a draft."""
    functions = [one for module in modules(specref.rules) for _, one in inspect.getmembers(module, inspect.isfunction)]
    return {
        name(one) for one in functions if [*inspect.signature(one).parameters][:3] == ["p", "draft", "chance"] and verifies(one)
    }


def verifies(function: Any) -> bool:
    return str(inspect.signature(function).return_annotation) == "Verified"


def drafters() -> set[str]:
    """The classes that draft, and the models that are made to draft."""
    classes = [
        one
        for module in (*modules(specref.drafters), specref.generate)
        for _, one in inspect.getmembers(module, inspect.isclass)
        if one.__module__.startswith("specref") and not inspect.isabstract(one) and not getattr(one, "_is_protocol", False)
    ]
    return {name(one) for one in classes if hasattr(one, "draft")}


def used() -> set[str]:
    """The rules of all modes, and the kinds of whatever their proposers hold."""
    found: set[str] = set()
    for mode in engine().modes(K):
        speculation = engine().speculation(mode)
        proposer = speculation.proposer(PROMPT, SamplingSettings(max_tokens=8))
        found |= {name(speculation.rule), name(type(getattr(proposer, "drafter", proposer)))}
    return found


def test_every_rule_and_drafter_is_in_a_mode_or_has_its_reason() -> None:
    known = rules() | drafters()
    assert len(rules()) >= 12
    assert len(drafters()) >= 12
    assert known - used() == set(NOT_MODES)
    assert name(DraftModel) in used()


def test_every_further_way_to_draft_drafts() -> None:
    """Sampled and greedy."""
    asked = [Request(PROMPT, SamplingSettings(max_tokens=10, temperature=heat), 5) for heat in (0.0, 1.0)]
    for mode in engine().modes(K):
        if mode.name in engine().draftings:
            assert [len(output.tokens) for output in engine().generate(mode, asked)] == [10, 10]
            counts = engine().metrics(mode)
            assert counts is not None
            assert counts["draft_tokens"] > 0, mode.name
