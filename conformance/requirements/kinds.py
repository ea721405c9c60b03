"""What a requirement is, and when it holds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class When(StrEnum):
    """When a requirement holds."""

    ALWAYS = "always"
    IF_PROMISED = "if promised"
    """Only where the engine's own documentation promises it; unpromised is never a violation."""
    IF_OFFERED = "if offered"


@dataclass(frozen=True)
class Requirement:
    """One requirement. kills: the faults that its check rejects. reports: public reports of that kind (project and number)."""

    id: str
    family: str
    sentence: str
    source: str
    check: str
    when: When
    level: str
    kills: tuple[str, ...] = ()
    reports: tuple[str, ...] = ()
