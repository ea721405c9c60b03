"""The adapter to economize: its modes, and (where it is installed) that a short audit of it conforms."""

from __future__ import annotations

import pytest
from engine_here import needs, short_audit

from conformance.engines.economize.modes import TREE, all_modes
from conformance.findings import Verdict
from conformance.harness import check_modes
from conformance.levels import Level

NAME, PACKAGE = "economize", "economize"


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
