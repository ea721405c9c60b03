"""The reference engine through the whole audit: it conforms, and each broken variant of it is named where it shows.

Everything goes through `audit_engine`. Of every family two broken engines or more are tried, some of them in the long run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from conformance.checks.draft import DraftInput, draft_inputs_finding
from conformance.components import Component
from conformance.controls.faults.draft_nets import FeatureNet
from conformance.engines.reference_drafters import RecordedReader, by_eagle
from conformance.engines.reference_engine import make
from conformance.findings import Verdict
from conformance.protocols import Models
from conformance.reporting.wording import family
from conformance.reproduction import with_command
from conformance.requirements import BY_ID
from specref import pretrained
from specref.chance import SampledChance
from specref.drafters import eagle
from specref.drafters.eagle import EagleDrafter, EagleReader
from specref.models import Tokens
from specref.processors import SamplingSettings
from tests.conformance.audited_tables import audited, violated
from tests.conformance.engine_faults import FAULTS, MODE, MORE, ROUNDS, TREE, TREES, Fault, Map, net

COMMAND = "specref audit specref-engine"


def test_the_reference_conforms_and_every_requirement_is_judged() -> None:
    """Of its rules one of chains and one of trees stand for all; tests/conformance/test_reference_engine.py has the others."""
    unwanted = [f"round, {rule}" for rule in ("block", "token_matching", "one_hot")]
    unwanted += [f"round of a tree, {rule}" for rule in ("traversal", "one_hot")]
    wanted: Callable[[Component], bool] = lambda one: one.name not in unwanted  # noqa: E731
    right_map: Any = Map(np.array([1, 4, 6]))
    names = ("off", MODE, TREE, "hostile, one-hot", "net")
    report = audited(names=names, components=wanted, draftings=[net(FeatureNet)], maps=[right_map])
    bad = [one for one in report.findings if one.verdict in (Verdict.VIOLATES, Verdict.ERROR, Verdict.INCONCLUSIVE)]
    assert not bad
    judged = {one.requirement for one in report.findings if one.verdict is Verdict.CONFORMS}
    assert set(BY_ID) - judged == {
        "GREEDY-2",
        "ACCEPT-2",
    }  # single tokens convict; the engine was not started with its own draft
    assert {one.requirement for one in report.findings} == set(BY_ID)
    assert {ROUNDS, TREES} <= {one.mode for one in report.findings}


def test_every_family_has_two_broken_engines_or_more() -> None:
    count = Counter(family(fault.requirement) for fault in {**FAULTS, **MORE}.values())
    assert {name for name, faults in count.items() if faults >= 2} == set(map(family, BY_ID))


CASES = [pytest.param(fault, id=name) for name, fault in FAULTS.items()]
CASES += [pytest.param(fault, id=name, marks=pytest.mark.long) for name, fault in MORE.items()]


@pytest.mark.parametrize("fault", CASES)
def test_a_broken_engine_is_named_where_it_shows(fault: Fault) -> None:
    report = with_command(fault.report(), COMMAND)
    found = [one for one in report.findings if (one.requirement, one.mode) == (fault.requirement, fault.where)]
    assert [one.verdict for one in found] == [Verdict.VIOLATES], (found, violated(report))
    (one,) = found
    for place in one.violations:
        assert "expected" in place
        assert "found" in place
    assert one.violations or one.log10_evidence  # of a law the evidence; of all else the places
    if fault.where.startswith("component: rounds"):
        assert one.reproduction.startswith("a prompt of "), one.reproduction
        assert "accepted" in one.reproduction
    else:
        assert one.reproduction.startswith(COMMAND)


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
