"""The adapter to economize: its modes, and (where it is installed) that a short audit of it conforms, and what was found."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_here import needs, python_of, short_audit, shows_what_was_found

from conformance.engines.economize.modes import TREE, all_modes
from conformance.findings import Verdict
from conformance.harness import check_modes
from conformance.levels import Level
from conformance.reproductions import reproductions_of

NAME, PACKAGE = "economize", "economize"
REPRODUCTIONS = reproductions_of(NAME)


def test_every_mode_has_a_name_of_its_own_and_lossy_ones_say_so() -> None:
    modes = all_modes(3)
    check_modes(modes)
    assert not modes[0].speculates
    for mode in modes[1:]:
        assert mode.speculation["k"] == 3
        assert bool(mode.lossy) == (mode.speculation.get("verifier") in ("typical", "accept_all")), mode.name


def test_the_tree_lists_every_parent_before_its_children() -> None:
    assert all(len(path) == 1 or path[:-1] in TREE[:at] for at, path in enumerate(TREE))


@pytest.mark.long
@needs(NAME, PACKAGE)
def test_a_short_audit_conforms() -> None:
    level = Level("test", 1_000, 5, "for this test", requests=2)
    report = short_audit(NAME, PACKAGE, "conformance.engines.economize:make", level)
    bad = [one for one in report.findings if one.verdict in (Verdict.ERROR, Verdict.VIOLATES)]
    assert not bad, [f"{one.requirement} {one.mode}: {one.summary}" for one in bad]


@pytest.mark.long
@needs(NAME, PACKAGE)
@pytest.mark.parametrize("script", REPRODUCTIONS, ids=[script.stem for script in REPRODUCTIONS])
def test_a_reproduction_shows_what_was_found(script: Path) -> None:
    assert shows_what_was_found(python_of(NAME, PACKAGE), script).strip()
