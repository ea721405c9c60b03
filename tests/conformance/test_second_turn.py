"""Second turns, through the whole audit: right where pages keep what was committed, wrong where one keeps a rejected draft."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conformance.findings import Finding, Verdict
from conformance.levels import LEVELS, AuditSettings
from conformance.protocols import Mode
from conformance.reproduction import worth_a_search
from conformance.scoring import TableScorer
from conformance.second_turn import conversations, has_second_turn, name_of, tokens_asked
from specref.engine import CachedTableModel, Engine
from specref.models import TableModel
from tests.conformance.audited_tables import LEVEL, audited, engine_with, finding, subject
from tests.conformance.broken_rounds import PublishedWithARejectedDraft

OFF, KEPT = "off, kept pages", "draft model, ratio, kept pages"
TARGET = TableModel(8, "target", exact=False)
"""Its laws hang on the whole text, so that a wrong entry anywhere in a cache shows."""
REQUIREMENTS = ("GREEDY-1", "LAW-1")


def second_turns(engine_type: type[Engine], requests: int = 4) -> dict[tuple[str, str], Finding]:
    report = audited(
        engine_type,
        (OFF, KEPT),
        components=lambda one: False,
        level=replace(LEVEL, requests=requests),
        judge=replace(subject(), target=TableScorer(TARGET)),
        target=CachedTableModel(TARGET),
    )
    assert not [one for one in worth_a_search(report) if one.mode == name_of(KEPT)]  # no prompt shows it alone
    return {
        (one, mode): finding(report, one, mode) for one in REQUIREMENTS for mode in (OFF, KEPT, name_of(OFF), name_of(KEPT))
    }


def test_a_rejected_drafts_entry_that_a_prefix_cache_keeps_shows_in_the_second_turn_alone() -> None:
    found = second_turns(engine_with(rounds_type=PublishedWithARejectedDraft), requests=8)
    wrong = {key for key, one in found.items() if one.verdict is Verdict.VIOLATES}
    assert wrong == {(one, name_of(KEPT)) for one in REQUIREMENTS}, {key: one.summary for key, one in found.items()}
    assert not any(found[key].not_speculation for key in wrong)


def test_second_turns_conform_and_state_how_many_tokens_were_judged() -> None:
    found = second_turns(Engine)
    assert {one.verdict for one in found.values()} == {Verdict.CONFORMS}
    law, greedy = found["LAW-1", name_of(KEPT)], found["GREEDY-1", name_of(KEPT)]
    settings = AuditSettings(replace(LEVEL, requests=4), max_tokens=16)
    assert (law.n, law.planned) == (tokens_asked(settings, 16),) * 2
    assert law.detects.startswith("a leak to the draft of ")
    assert (greedy.n, greedy.unit) == (conversations(settings), "prompts")


@pytest.mark.parametrize("level", ["standard", "deep"])
def test_there_are_tokens_enough_to_catch_something(level: str) -> None:
    assert tokens_asked(AuditSettings(LEVELS[level]), 24) >= 3_000


def test_modes_without_a_law_or_a_cache_have_none() -> None:
    kept = Mode("kept", prefix_block=4)
    assert [has_second_turn(one) for one in (kept, Mode("off"), replace(kept, lossy="yes"), replace(kept, brief=True))] == [
        True,
        False,
        False,
        False,
    ]
