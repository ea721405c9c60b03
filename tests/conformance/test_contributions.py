"""Which tokens and contexts add most to the evidence, and how a violation is seen again."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conformance.asked_law import Asked
from conformance.contributions import MOST_TOKENS, contributions
from conformance.findings import EngineReport, Finding, ModeReport, Verdict
from conformance.levels import AuditSettings, level_named
from conformance.protocols import Output, Request
from conformance.reproduction import audit_command, with_command
from conformance.statistics import FaultBank
from specref.processors import SamplingSettings

TEXTS = ("a", "b", "c", "d")
BET = "leak to the draft, size 0.3"
P = np.array([0.4, 0.3, 0.2, 0.1])
Q = np.array([0.05, 0.05, 0.1, 0.8])


def state(requests: int, draw: np.ndarray, vocabulary: int = 4) -> Any:
    """A case whose every token follows `draw` after a "b", and the target's law elsewhere."""
    rng = np.random.default_rng(0)
    scored = []

    def laws(_: SamplingSettings, sequences: list[tuple[tuple[int, ...], tuple[int, ...]]], outputs: list[Output]) -> Asked:
        assert len(outputs) == len(sequences)
        n = sum(len(output) for _, output in sequences)
        scored.append(n)
        return Asked(np.tile(P, (n, 1)), np.tile(Q, (n, 1)))

    first = []
    for _ in range(requests):
        tokens: list[int] = [0]
        for _ in range(20):
            tokens.append(int(rng.choice(4, p=draw if tokens[-1] == 1 else P)))
        settings = SamplingSettings(max_tokens=20, eos=())
        first.append((Request((0,), settings, 0), Output(tuple(tokens[1:]))))
    subject = SimpleNamespace(texts=TEXTS, target=SimpleNamespace(vocabulary=vocabulary))
    return SimpleNamespace(subject=subject, first=first, laws=laws, scored=scored)


def test_the_token_and_the_context_that_are_wrong_come_first() -> None:
    found = contributions(state(60, Q), FaultBank(), BET)
    tokens = [one for one in found if one.kind == "token"]
    contexts = [one for one in found if one.kind == "context"]
    assert tokens[0].text == "d"
    assert tokens[0].expected is not None
    assert tokens[0].times > 1.5 * tokens[0].expected
    assert contexts[0].text.endswith("b")
    assert all(one.expected is None and one.log10 > 0 for one in contexts)


def test_each_part_sums_to_the_bets_own_wealth() -> None:
    some = state(8, Q)
    found = contributions(some, FaultBank(), BET)
    tokens = np.array([token for _, output in some.first for token in output.tokens])
    bets = FaultBank().from_counts(P, Q, np.bincount(tokens, minlength=4))
    (d,) = [one for one in found if one.kind == "token" and one.text == "d"]
    alone = FaultBank().from_counts(P, Q, np.array([0, 0, 0, (tokens == 3).sum()]))
    assert d.log10 == pytest.approx(alone[FaultBank().names.index(BET)] / np.log(10))
    assert d.log10 > bets[FaultBank().names.index(BET)] / np.log(10)  # the other tokens cost it


def test_it_scores_a_bounded_number_of_tokens_some_at_a_time() -> None:
    some = state(300, Q)
    contributions(some, FaultBank(), BET)
    assert MOST_TOKENS <= sum(some.scored) < MOST_TOKENS + 40
    wide = state(30, Q, vocabulary=1 << 17)
    contributions(wide, FaultBank(), BET)
    assert max(wide.scored) <= 52


def test_a_bet_that_the_bank_does_not_hold_explains_nothing() -> None:
    assert contributions(state(2, Q), FaultBank(), "projection 3") == ()


def report(*findings: Finding) -> EngineReport:
    growth = ModeReport("m", "ratio", "on", evidence_growth=((100, 1.0), (200, 7.5), (300, 9.0)))
    return EngineReport("e", "1", "smoke", 1e-6, 0, "", 0.0, "t", "d", findings, (growth,))


def test_every_violation_can_be_seen_again() -> None:
    law = Finding("LAW-1", "m", Verdict.VIOLATES, "")
    findings = (
        law,
        dataclasses.replace(law, requirement="STOP-1"),
        dataclasses.replace(law, reproduction="its own"),
        dataclasses.replace(law, verdict=Verdict.CONFORMS),
    )
    shown = [one.reproduction for one in with_command(report(*findings), "specref audit e").findings]
    assert shown == [
        "specref audit e\n# mode 'm': the evidence is an alarm after 200 tokens",
        "specref audit e\n# mode 'm'",
        "its own",
        "",
    ]


def test_the_command_tells_what_was_set_and_no_folder_and_no_server() -> None:
    settings = AuditSettings(level_named("quick"), alpha=1e-4, seed=3, k=2, temperature=0.5)
    said = audit_command("my engine:make", settings, Path("/secret/model"), Path("/secret/draft"))
    asked = "--level quick --seed 3 -k 2 --temperature 0.5 --alpha 0.0001 --target model --draft draft"
    assert said == f"specref audit 'my engine:make' {asked}"
    assert "key" not in audit_command("https://me:key@host:1/v1?key=key", settings, None, None)
