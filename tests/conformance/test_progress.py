"""What a long run shows: how far it is, how long it will take, and what is held against the mode that is being sampled."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from conformance import progress
from conformance.audit import audit_engine
from conformance.controls import instance
from conformance.harness import InProcess
from tests.conformance.evidence.audits import SETTINGS, Small, subject


def shown(*, terminal: bool) -> str:
    """What a console shows of a small audit."""
    said = io.StringIO()
    with progress.watching(Console(file=said, force_terminal=terminal, width=160)) as watcher:
        audit_engine("small", lambda: InProcess(Small(*instance())), subject(), SETTINGS, watcher=watcher)
    return said.getvalue()


def test_a_log_has_a_line_at_every_tenth_with_time_left_and_evidence() -> None:
    lines = shown(terminal=False).splitlines()
    percents = [int(found[1]) for line in lines if (found := re.match(r"small: (\d+)% after \d+ s, \d+ s left \(", line))]
    assert percents == sorted(set(percents))
    assert percents[-1] == 100
    assert lines[-2].startswith("small: 100%")
    assert lines[-1].startswith("small: done")
    assert any(re.search(r"log10 evidence -?\d+\.\d, of \d+\.\d that would prove it wrong", line) for line in lines)


def test_time_left_follows_from_the_part_that_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    said, clock = io.StringIO(), iter([0.0, 30.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with progress.watching(Console(file=said)) as watcher:
        watcher.begin("slow", 400)
        watcher.advance("slow", 100, "fast")
    assert said.getvalue() == "slow: 20% after 30 s, 90 s left (fast)\n"


def test_a_terminal_has_a_bar() -> None:
    assert "small" in shown(terminal=True)


@pytest.mark.parametrize("terminal", [False, True])
def test_an_engine_that_does_not_answer_is_seen(terminal: bool) -> None:
    said = io.StringIO()
    with progress.watching(Console(file=said, force_terminal=terminal, width=160)) as watcher:
        watcher.begin("slow", 400)
        watcher.silent("slow", 60.4, 300.0)
    plain = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", said.getvalue())
    assert "slow: no answer for 60 s; one that takes more than 300 s is ended, and the rest goes on" in plain
