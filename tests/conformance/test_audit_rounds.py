"""What an audit sees of an engine from within: the reference conforms, and each broken part is named where it shows.

Everything goes through `audit_engine`. Of each requirement two faults are tried, one of them in the long run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from conformance.checks.draft import DraftInput, draft_inputs_finding
from conformance.components import Component, Ints
from conformance.controls.faults.draft_nets import FeatureNet, NoShift, OnePosition
from conformance.controls.faults.grammars import InvalidDropped, LagsOneToken, MaskOfTheRound, NoMaskAtVerification
from conformance.engines.own_components import ReferenceTree
from conformance.engines.reference_drafters import Drafting, RecordedReader, by_eagle
from conformance.engines.reference_engine import SpecrefEngine, make
from conformance.findings import EngineReport, Verdict
from conformance.levels import Level
from conformance.protocols import Models
from conformance.requirements import BY_ID
from specref import pretrained
from specref.chance import SampledChance
from specref.drafters import eagle
from specref.drafters.eagle import EagleDrafter, EagleReader
from specref.engine import CachedTableModel, Engine
from specref.models import Tokens
from specref.processors import SamplingSettings
from specref.rules import Rule
from tests.conformance import broken_rounds as broken
from tests.conformance.audited_tables import LEVEL, SMALL, TARGET, audited, engine_with, violated

MODE, TREE = "draft model, ratio", "tree, without replacement"
ROUNDS, TREES = f"component: rounds, {MODE}", f"component: rounds, {TREE}"
SHAPE = (-1, 0, 0, 1, 1)
MANY = replace(LEVEL, prompts=32, requests=24)


@dataclass(frozen=True)
class Map:
    """A vocabulary map of three tokens into the target's eight."""

    ids: Ints
    name: str = "a map"
    convention: str = "absolute"
    vocabulary: int = 8

    def table(self) -> Ints:
        return self.ids

    def texts(self) -> None:
        return None


RIGHT_MAP = Map(np.array([1, 4, 6]))


def net(kind: type[FeatureNet]) -> Drafting:
    return Drafting("net", "one_hot", lambda k: lambda prompt, settings: broken.ByNet(kind(TARGET), prompt, settings))


def drawn(kind: type[Any], shape: Tokens | None = None, rule: str = "ratio", name: str = "drawn") -> Drafting:
    nodes = None if shape is None else lambda k: len(shape) - 1
    return Drafting(name, rule, lambda k: partial(kind, CachedTableModel(SMALL), shape=shape), nodes)


def test_the_reference_conforms_and_every_requirement_is_judged() -> None:
    names = ("off", MODE, TREE, "hostile, one-hot")
    report = audited(names=names, draftings=[net(FeatureNet)], maps=[RIGHT_MAP])  # type: ignore[list-item]
    bad = [one for one in report.findings if one.verdict in (Verdict.VIOLATES, Verdict.ERROR, Verdict.INCONCLUSIVE)]
    assert not bad
    judged = {one.requirement for one in report.findings if one.verdict is Verdict.CONFORMS}
    assert set(BY_ID) - judged == {
        "GREEDY-2",
        "ACCEPT-2",
    }  # single tokens convict; the engine was not started with its own draft
    assert {one.requirement for one in report.findings} == set(BY_ID)


@dataclass(frozen=True)
class Fault:
    """A broken engine, the modes and components that are looked at, and where which requirement must fail."""

    requirement: str
    where: str
    engine: type[Engine] = Engine
    names: tuple[str, ...] = (MODE,)
    draftings: tuple[Drafting, ...] = ()
    maps: tuple[Map, ...] = ()
    level: Level = LEVEL

    def report(self) -> EngineReport:
        def wanted(one: Component) -> bool:
            return f"component: {one.name}" == self.where

        maps: Any = self.maps
        return audited(self.engine, self.names, components=wanted, draftings=self.draftings, maps=maps, level=self.level)


def rounds(kind: type[Any], requirement: str, where: str = ROUNDS, **rest: Any) -> Fault:
    return Fault(requirement, where, engine_with(rounds_type=kind), **rest)


UNAWARE = {"names": (), "draftings": (drawn(broken.Unaware),), "where": "component: rounds, drawn"}
FAULTS = {
    "rollback one too few": rounds(broken.OneTooFew, "KV-1"),
    "rejected drafts kept in the draft's cache": rounds(broken.DraftKeepsARejectedEntry, "KV-2"),
    "a page hashed while it holds rejected tokens": rounds(broken.HashedAmidDrafts, "KV-3"),
    "siblings drawn independently": Fault(
        "TREE-3", "component: rounds, drawn", names=(), draftings=(drawn(broken.Independent, SHAPE, "without_replacement"),)
    ),
    "a window's rows off by one": rounds(broken.RowsOffByOne, "GREEDY-3"),
    "first draft unverified": rounds(broken.FirstUnverified, "GREEDY-4", MODE, names=("off", MODE)),
    "one bit of a logit changed by the batch": rounds(broken.OneBit, "BATCH-3", MODE),
    "no shift of the draft's inputs": Fault("DRAFT-4", "component: rounds, net", names=(), draftings=(net(NoShift),)),
    "offsets read as absolute ids": Fault("DRAFT-3", "component: a map", maps=(Map(np.array([1, 3, 3])),)),
    "matcher lags one token": rounds(broken.under_a_grammar(LagsOneToken), "GRAMMAR-1"),
    "one mask for a whole round": rounds(broken.under_a_grammar(MaskOfTheRound), "GRAMMAR-2"),
    "no mask at verification": rounds(
        broken.under_a_grammar(NoMaskAtVerification), "GRAMMAR-3", **{**UNAWARE, "where": "drawn"}
    ),
}
MORE = {
    "the draft's context shrinks each round": rounds(broken.DraftShrinks, "KV-2"),
    "dummy rows written to published slots": Fault("KV-3", ROUNDS, engine_with(memory_type=broken.DummyRows)),
    "the second sibling repeats the first": Fault(
        "TREE-3", "component: rounds, drawn", names=(), draftings=(drawn(broken.Twins, SHAPE, "without_replacement"),)
    ),
    "a window's last row does not see the draft before it": rounds(broken.LastDraftUnseen, "GREEDY-3"),
    "the bonus of the row before": rounds(broken.BonusOfTheRowBefore, "GREEDY-4", MODE, names=("off", MODE), level=MANY),
    "some requests' log-probabilities rounded": rounds(broken.InSinglePrecision, "BATCH-3", MODE),
    "one position for a whole window": Fault("DRAFT-4", "component: rounds, net", names=(), draftings=(net(OnePosition),)),
    "a draft id beyond the target's": Fault("DRAFT-3", "component: a map", maps=(Map(np.array([1, 9, 3])),)),
    "no mask at any drafted position": rounds(broken.under_a_grammar(NoMaskAtVerification), "GRAMMAR-2", **UNAWARE),
    "the best token alone under a grammar": rounds(broken.BestUnderTheMask, "GRAMMAR-4", MODE, level=MANY),
    "invalid drafts dropped before verification": rounds(
        broken.under_a_grammar(InvalidDropped), "GRAMMAR-4", **{**UNAWARE, "where": "drawn"}, level=replace(MANY, requests=96)
    ),
}
CASES = [pytest.param(fault, id=name) for name, fault in FAULTS.items()]
CASES += [pytest.param(fault, id=name, marks=pytest.mark.long) for name, fault in MORE.items()]


@pytest.mark.parametrize("fault", CASES)
def test_a_broken_engine_is_named_where_it_shows(fault: Fault) -> None:
    report = fault.report()
    found = [one for one in report.findings if (one.requirement, one.mode) == (fault.requirement, fault.where)]
    assert [one.verdict for one in found] == [Verdict.VIOLATES], (found, violated(report))
    (one,) = found
    if one.violations:
        assert "expected" in one.violations[0]
        assert "found" in one.violations[0]
    if fault.where.startswith("component: rounds"):
        assert one.reproduction.startswith("a prompt of "), one.reproduction
        assert "accepted" in one.reproduction


@pytest.mark.parametrize("rule", [broken.drops_the_last, broken.bonus_of_the_root], ids=lambda rule: rule.__name__)
def test_a_broken_verification_of_trees_is_named(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = SpecrefEngine.components

    def components(self: SpecrefEngine) -> list[Component]:
        return [*parts(self), ReferenceTree("without_replacement", rule, "broken")]

    monkeypatch.setattr(SpecrefEngine, "components", components)
    wanted: Callable[[Component], bool] = lambda one: one.name in ("broken", "round, ratio")  # noqa: E731
    found = violated(audited(names=("off",), components=wanted))
    assert {"TREE-4", "TREE-6"} <= set(found)
    assert found["TREE-4"].mode == found["TREE-6"].mode == "component: broken"
    assert "expected path" in found["TREE-4"].violations[0]
    assert "accepted: expected" in found["TREE-6"].violations[0] or "next_token: expected" in found["TREE-6"].violations[0]


class Unshifted(EagleReader):
    """Beside the feature of a position stands its own token."""

    def _forward(self, features: torch.Tensor, tokens: Tokens, positions: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        shifted = (tokens[0], *tokens[:-1]) if len(tokens) > 1 else tokens
        return super()._forward(features, shifted, positions, seen)


@pytest.mark.long
def test_what_a_real_net_is_fed_is_written_down() -> None:
    """The recorded reader tells what reaches the net, not what should."""
    models = Models(pretrained.path("target"), pretrained.path("draft"))
    engine = make(models)
    prompt = (1, 40, 41, 71, 6)
    found = {}
    for reader in (RecordedReader, Unshifted):
        proposer = by_eagle(eagle.load(pretrained.path("eagle"), engine.target.model), EagleDrafter, reader)  # type: ignore[attr-defined]
        made = proposer(prompt, SamplingSettings(max_tokens=4))
        made.propose(prompt, 2, SampledChance(0))
        passes = [(prompt, [DraftInput(*pair) for pair in made.fed])]  # type: ignore[attr-defined]
        found[reader] = draft_inputs_finding("m", passes, 1).verdict
    assert found == {RecordedReader: Verdict.CONFORMS, Unshifted: Verdict.VIOLATES}
