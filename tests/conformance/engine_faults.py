"""Broken variants of the reference engine for whole audits, family by family: where which requirement must fail."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from conformance.components import Component, Ints
from conformance.controls.faults.batches import GlobalGenerator, GreedyRowsSampled, SeedsByArrival, SeedsByRow
from conformance.controls.faults.draft_nets import FeatureNet, NoShift, OnePosition
from conformance.controls.faults.grammars import InvalidDropped, LagsOneToken, MaskOfTheRound, NoMaskAtVerification
from conformance.controls.faults.reports import BonusCounted, NoneForTheLast, OffByARow, VerifiedDraftsOnly
from conformance.controls.faults.stopping import NotClamped, TextTrimmedOnly
from conformance.engines.own_components import ReferenceChain, ReferenceTree
from conformance.engines.reference_drafters import Drafting
from conformance.findings import EngineReport
from conformance.levels import Level
from specref.engine import CachedTableModel, Engine, by_draft_model
from specref.models import Tokens
from specref.rules import Rule, rewired
from specref.rules.chain import ratio
from tests.conformance import broken_rounds as broken
from tests.conformance.audited_tables import LEVEL, SMALL, TARGET, audited, engine_with

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


def net(kind: type[FeatureNet]) -> Drafting:
    return Drafting("net", "one_hot", lambda k: lambda prompt, settings: broken.ByNet(kind(TARGET), prompt, settings))


def drawn(kind: type[Any], shape: Tokens | None = None, rule: str = "ratio") -> Drafting:
    nodes = None if shape is None else lambda k: len(shape) - 1
    return Drafting("drawn", rule, lambda k: partial(kind, CachedTableModel(SMALL), shape=shape), nodes)


@dataclass(frozen=True)
class Fault:
    """A broken engine, and where (in which mode or component) which requirement must fail.

    names: the modes that are audited, that one alone if it is a mode. parts: broken parts beside the engine's own.
    """

    requirement: str
    where: str
    engine: type[Engine] = Engine
    names: tuple[str, ...] = ()
    draftings: tuple[Drafting, ...] = ()
    maps: tuple[Map, ...] = ()
    parts: tuple[Any, ...] = ()
    level: Level = LEVEL

    def report(self) -> EngineReport:
        def wanted(one: Component) -> bool:
            return f"component: {one.name}" == self.where or one in self.parts

        maps: Any = self.maps
        names = self.names or (("off",) if self.where.startswith("component") else (self.where,))
        more = {"draftings": self.draftings, "maps": maps, "parts": self.parts, "level": self.level}
        return audited(self.engine, names, components=wanted, **more)


def rounds(kind: type[Any], requirement: str, where: str = ROUNDS, **rest: Any) -> Fault:
    return Fault(requirement, where, engine_with(rounds_type=kind), **rest)


def chain_part(part: ReferenceChain, requirement: str) -> Fault:
    return Fault(requirement, f"component: {part.name}", parts=(part,))


def tree_rule(rule: Rule, requirement: str) -> Fault:
    parts = ReferenceTree("without_replacement", rule, "broken"), ReferenceChain("ratio")
    return Fault(requirement, "component: broken", parts=parts)


def siblings(kind: type[Any]) -> Fault:
    return Fault("TREE-3", "component: rounds, drawn", draftings=(drawn(kind, SHAPE, "without_replacement"),))


FROM_THE_TARGET = rewired(ratio, residual=lambda p, q: p)
NOTHING_LEFT = rewired(ratio, residual=broken.first_where_nothing_is_left)
OWN_DRAFT = Drafting("own draft", "ratio", lambda k: by_draft_model(CachedTableModel(TARGET)))
UNAWARE: dict[str, Any] = {"draftings": (drawn(broken.Unaware),), "where": "component: rounds, drawn"}
FAULTS = {
    "the first draft is certain": rounds(broken.FirstUnverified, "LAW-2", MODE, level=replace(LEVEL, tokens=1_500)),
    "drawn from the target after a rejection": chain_part(ReferenceChain("ratio", FROM_THE_TARGET, "broken"), "LAW-6"),
    "first draft unverified": rounds(broken.FirstUnverified, "GREEDY-4", MODE, names=("off", MODE)),
    "rollback one too few": rounds(broken.OneTooFew, "KV-1"),
    "rejected drafts kept in the draft's cache": rounds(broken.DraftKeepsARejectedEntry, "KV-2"),
    "a page hashed while it holds rejected tokens": rounds(broken.HashedAmidDrafts, "KV-3"),
    "siblings drawn independently": siblings(broken.Independent),
    "the last node of a path not counted": tree_rule(broken.drops_the_last, "TREE-4"),
    "the bonus of a tree's root": tree_rule(broken.bonus_of_the_root, "TREE-6"),
    "a window's rows off by one": rounds(broken.RowsOffByOne, "GREEDY-3"),
    "one bit of a logit changed by the batch": rounds(broken.OneBit, "BATCH-3", MODE),
    "greedy rows sampled among others": Fault("BATCH-2", MODE, GreedyRowsSampled),
    "no shift of the draft's inputs": Fault("DRAFT-4", "component: rounds, net", draftings=(net(NoShift),)),
    "offsets read as absolute ids": Fault("DRAFT-3", "component: a map", maps=(Map(np.array([1, 3, 3])),)),
    "a round's tokens kept after a stop sequence": rounds(TextTrimmedOnly, "STOP-2", MODE),
    "a round is not cut to the limit": rounds(NotClamped, "STOP-3", MODE),
    "any token where nothing is left": chain_part(ReferenceChain("ratio", NOTHING_LEFT, "broken"), "EDGE-1"),
    "ids wrapped into the vocabulary": chain_part(broken.IdsWrapped("ratio"), "EDGE-3"),
    "min_p ignored": Fault("LOUD-1", MODE, broken.ignoring(min_p=0.0)),
    "top_k ignored": Fault("LOUD-1", MODE, broken.ignoring(top_k=None)),
    "seeds by order of arrival": Fault("SEED-2", MODE, SeedsByArrival),
    "a generator for all requests": Fault("SEED-1", MODE, type("Broken", (GlobalGenerator,), {})),
    "bonus counted as accepted": Fault("ACCEPT-3", MODE, engine_with(metrics_type=BonusCounted)),
    "drafts behind a rejection not counted": Fault("ACCEPT-3", MODE, engine_with(metrics_type=VerifiedDraftsOnly)),
    "log-probabilities off by a row": rounds(OffByARow, "LOGPROB-1", MODE),
    "no log-probability for a round's last token": rounds(NoneForTheLast, "LOGPROB-2", MODE),
    "matcher lags one token": rounds(broken.under_a_grammar(LagsOneToken), "GRAMMAR-1"),
    "one mask for a whole round": rounds(broken.under_a_grammar(MaskOfTheRound), "GRAMMAR-2"),
    "no mask at verification": rounds(
        broken.under_a_grammar(NoMaskAtVerification), "GRAMMAR-3", **{**UNAWARE, "where": "drawn"}
    ),
}
MORE = {
    "the draft's context shrinks each round": rounds(broken.DraftShrinks, "KV-2"),
    "dummy rows written to published slots": Fault("KV-3", ROUNDS, engine_with(memory_type=broken.DummyRows)),
    "the second sibling repeats the first": siblings(broken.Twins),
    "a window's last row does not see the draft before it": rounds(broken.LastDraftUnseen, "GREEDY-3"),
    "the bonus of the row before": rounds(
        broken.BonusOfTheRowBefore, "GREEDY-4", OWN_DRAFT.name, names=("off", OWN_DRAFT.name), draftings=(OWN_DRAFT,)
    ),
    "some requests' log-probabilities rounded": rounds(broken.InSinglePrecision, "BATCH-3", MODE),
    "seeds by batch row": Fault("SEED-2", MODE, SeedsByRow),
    "one position for a whole window": Fault("DRAFT-4", "component: rounds, net", draftings=(net(OnePosition),)),
    "a draft id beyond the target's": Fault("DRAFT-3", "component: a map", maps=(Map(np.array([1, 9, 3])),)),
    "rejected drafts not taken back by the matcher": rounds(broken.under_a_grammar(broken.DraftNotRolledBack), "GRAMMAR-1"),
    "no mask at any drafted position": rounds(broken.under_a_grammar(NoMaskAtVerification), "GRAMMAR-2", **UNAWARE),
    "the end allowed where a text is not complete": rounds(
        broken.under_a_grammar(broken.EndAllowedAnywhere), "GRAMMAR-3", **{**UNAWARE, "where": "drawn"}, level=MANY
    ),
    "the best token alone under a grammar": rounds(broken.BestUnderTheMask, "GRAMMAR-4", MODE, level=MANY),
    "invalid drafts dropped before verification": rounds(
        broken.under_a_grammar(InvalidDropped), "GRAMMAR-4", **{**UNAWARE, "where": "drawn"}, level=replace(MANY, requests=96)
    ),
}
"""Tried in the long run."""
