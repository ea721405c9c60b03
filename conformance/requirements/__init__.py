"""The requirements: what must hold in an engine that speculates, each with its source, the check that decides it, and when."""

from __future__ import annotations

from conformance.requirements.behaviour import BEHAVIOUR
from conformance.requirements.company import COMPANY
from conformance.requirements.grammar import GRAMMAR
from conformance.requirements.kinds import Requirement, When
from conformance.requirements.law import LAW
from conformance.requirements.state import STATE

__all__ = ["BY_ID", "REQUIREMENTS", "Requirement", "When", "catalogue"]

REQUIREMENTS = (*LAW, *STATE, *BEHAVIOUR, *COMPANY, *GRAMMAR)

BY_ID = {requirement.id: requirement for requirement in REQUIREMENTS}


def catalogue() -> str:
    """All requirements as a Markdown table."""
    titles = ("id", "what must hold", "when", "level", "check", "source", "kills", "public reports")
    rows = [titles, ("---",) * len(titles)]
    for r in REQUIREMENTS:
        kills, reports = "; ".join(r.kills), ", ".join(r.reports)
        rows.append((r.id, r.sentence, r.when, r.level, f"`{r.check}`", r.source, kills, reports))
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)
