"""An audit whose evidence is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from conformance.audit import Pair, Silent, Watcher, _Audit
from conformance.evidence.recording import Evidence, Unkept
from conformance.findings import EngineReport
from conformance.harness import Runner
from conformance.levels import AuditSettings
from conformance.protocols import Mode
from conformance.statistics import Ledger
from conformance.subject import Subject


@dataclass
class _KeptAudit(_Audit):
    evidence: Evidence = field(default_factory=Unkept)
    named: dict[str, Ledger] = field(default_factory=dict)

    def _ledgers(self, modes: Sequence[Mode]) -> dict[bool, Ledger]:
        found = super()._ledgers(modes)
        self.named = {"speculation" if speculating else "control": ledger for speculating, ledger in found.items()}
        if self.lossy is not None:
            self.named["lossy"] = self.lossy
        self.evidence.seal(self.named)
        return found


def audit_kept(
    name: str,
    make_runner: Callable[[], Runner],
    subject: Subject,
    settings: AuditSettings,
    *,
    evidence: Evidence,
    lanes: int = 1,
    watcher: Watcher | None = None,
    others: Sequence[Pair] = (),
    self_draft: Callable[[], Runner] | None = None,
) -> EngineReport:
    """`audit_engine`, with everything that the engine answers kept in `evidence`."""

    def kept(make: Callable[[], Runner], pair: int) -> Callable[[], Runner]:
        return lambda: evidence.recording(make(), pair)

    audit = _KeptAudit(
        name,
        kept(make_runner, 0),
        subject,
        settings,
        watcher or Silent(),
        [replace(pair, make_runner=kept(pair.make_runner, place)) for place, pair in enumerate(others, start=1)],
        kept(self_draft, len(others) + 1) if self_draft else None,
        evidence=evidence,
    )
    report = audit.run(lanes)
    evidence.finish(audit.named)
    return report
