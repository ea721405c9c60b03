"""An engine judged again from its evidence alone: the same audit, with the folder answering in the engine's place."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from conformance.components import Component
from conformance.evidence.audited import audit_kept
from conformance.evidence.files import EvidenceProblem, read_sealed
from conformance.evidence.plan import engine_of, read_plan, refuse_other_models, settings_of
from conformance.evidence.recording import ENVIRONMENT, LEDGER, SAID, Unkept, outputs_of
from conformance.evidence.store import Chunk, Store, key_of
from conformance.findings import EngineReport
from conformance.harness import EngineFailed, EngineInfo
from conformance.protocols import Mode, Output, Request
from conformance.statistics import Ledger, WrongUse
from conformance.subject import Subject

SAME_EVIDENCE = 1e-3
"""log10 E may differ by this between machines that read the same models."""


class EvidenceEnds(WrongUse):
    """The folder holds no answer to what is asked: the audit had not come so far."""


def judge_evidence(folder: Path, subject: Subject) -> EngineReport:
    """The report of the audit whose evidence lies in `folder`: a complete one word for word, of an interrupted one what was
    judged, the longest prefix of every mode, as inconclusive. Raises EvidenceProblem for another target or damaged evidence.
    """
    plan, _ = read_plan(folder)
    refuse_other_models(plan, subject)
    replay, rules = _Replay(folder, engine_of(plan)), _Sealed(plan)
    report = audit_kept(plan["engine"]["name"], lambda: replay, subject, settings_of(plan), evidence=rules)
    starts = read_sealed(folder / ENVIRONMENT)[0] if (folder / ENVIRONMENT).exists() else []
    if starts:
        report = replace(report, started=starts[0]["started"], environment=starts[-1]["versions"] or report.environment)
    return replace(report, notes=(*report.notes, *_notes(folder, report, starts)))


def read_ledgers(folder: Path) -> dict[bool, Ledger]:
    """The ledgers of an audit that has ended: of speculation (True) and of the control (False), to merge or carry."""
    return {name == "speculation": Ledger.from_state(state) for name, state in read_sealed(folder / LEDGER)[0].items()}


def _notes(folder: Path, report: EngineReport, starts: Sequence[Mapping[str, Any]]) -> list[str]:
    notes = ["Judged again from its evidence; the engine was not run."]
    if len(starts) > 1:
        notes.append(f"The audit was interrupted and resumed: it was started {len(starts)} times.")
    if (folder / LEDGER).exists() and report.log10_evidence is not None:
        ledgers = read_ledgers(folder)
        before = ledgers[True].look().log10_e if True in ledgers else report.log10_evidence
        if not (before == report.log10_evidence or math.isclose(before, report.log10_evidence, abs_tol=SAME_EVIDENCE)):
            notes.append(
                f"The stored ledger says log10 evidence {before:.3f}, not {report.log10_evidence:.3f}: one of both is wrong."
            )
    return notes


class _Sealed(Unkept):
    """Refuses to judge by another plan than was sealed."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self._sealed = {name: one["digest"] for name, one in plan["ledgers"].items()}

    def seal(self, ledgers: Mapping[bool, Ledger]) -> None:
        """See `Evidence.seal`."""
        now = {"speculation" if speculating else "control": ledger.plan.digest for speculating, ledger in ledgers.items()}
        if now != self._sealed:
            raise EvidenceProblem(
                "this version of specref would judge by other weights than the sealed plan has: "
                "judge with the version that sealed it"
            )


class _Replay:
    """A runner that answers from the folder, and never more than was stored."""

    def __init__(self, folder: Path, info: EngineInfo) -> None:
        self._info = info
        self._chunks: dict[str, list[Chunk]] = {}
        self._asked: Counter[str] = Counter()
        self._said = read_sealed(folder / SAID)[0] if (folder / SAID).exists() else {}
        store = Store(folder)
        for number, mode in enumerate(info.modes):
            for chunk in store.chunks(store.mode_folder(number, mode)):
                self._chunks.setdefault(chunk.key, []).append(chunk)

    def describe(self, k: int) -> EngineInfo:
        """See `Runner.describe`."""
        return self._info

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Runner.generate`."""
        key = key_of(mode, requests)
        stored, place = self._chunks.get(key, []), self._asked[key]
        self._asked[key] += 1
        if place >= len(stored):
            failed = self._said.get(mode.name, {}).get(f"failed {key}")
            if failed is not None:
                raise EngineFailed(failed["kind"], failed["message"])
            raise EvidenceEnds("the evidence ends here; the audit was interrupted")
        return iter(outputs_of(stored[place], len(requests)))

    def metrics(self, mode: Mode) -> Mapping[str, float] | None:
        """See `Runner.metrics`."""
        found: Mapping[str, float] | None = self._said.get(mode.name, {}).get("metrics")
        return found

    def components(self) -> Sequence[Component]:
        """Components are not part of the evidence of samples."""
        return ()

    def close(self) -> None:
        """Nothing is held."""
