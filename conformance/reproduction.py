"""How to see a violation again: the command that was given, where a check has no smaller way of its own."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from conformance.findings import EngineReport, Finding, Verdict
from conformance.levels import AuditSettings, level_named


def audit_command(name: str, settings: AuditSettings, target: Path | None, draft: Path | None) -> str:
    """The audit of one engine as a command. Folders are named without where they lie, servers not at all: it is shared.

    >>> audit_command("http://me:key@host/v1", AuditSettings(level_named("smoke"), seed=7), Path("/home/me/tiny"), None)
    'specref audit URL --level smoke --seed 7 --target tiny'
    """
    words = ["specref", "audit", "URL" if "//" in name else name, "--level", settings.level.name, "--seed", str(settings.seed)]
    usual = AuditSettings(settings.level)
    if settings.level.tokens != level_named(settings.level.name).tokens:
        words += ["--tokens", str(settings.level.tokens)]
    for option, field in (("-k", "k"), ("--temperature", "temperature"), ("--alpha", "alpha")):
        value = getattr(settings, field)
        words += [] if value == getattr(usual, field) else [option, f"{value:g}"]
    return shlex.join([*words, *models(target, draft)])


def models(target: Path | None, draft: Path | None) -> Sequence[str]:
    """The options that name the models, where any are named."""
    some = (("--target", target), ("--draft", draft))
    return [word for option, folder in some if folder is not None for word in (option, folder.name)]


def with_command(report: EngineReport, command: str) -> EngineReport:
    """The report with the command as the reproduction of every violation that has none, and after how many tokens it shows."""
    alarms = {mode.name: _alarm(mode.evidence_growth, report.alpha) for mode in report.modes}

    def told(finding: Finding) -> Finding:
        if finding.verdict is not Verdict.VIOLATES or finding.reproduction:
            return finding
        tokens = alarms.get(finding.mode) if finding.requirement.startswith("LAW") else None
        where = f"# mode '{finding.mode}'" + (f": the evidence is an alarm after {tokens:,} tokens" if tokens else "")
        return replace(finding, reproduction=f"{command}\n{where}")

    return replace(report, findings=tuple(map(told, report.findings)))


def _alarm(growth: Sequence[tuple[int, float]], alpha: float) -> int | None:
    return next((tokens for tokens, evidence in growth if evidence >= -math.log10(alpha)), None)
