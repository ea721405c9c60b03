"""An engine judged again from its evidence alone: the same audit, with the folder answering in the engine's place."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from conformance.audit import Pair, audit_engine
from conformance.components import Component
from conformance.evidence.files import EvidenceProblem, read_sealed
from conformance.evidence.plan import engine_of, pairs_of, read_plan, refuse_other_models, settings_of
from conformance.evidence.recording import ENVIRONMENT, LEDGER, SAID, Unkept, outputs_of
from conformance.evidence.store import Chunk, Store, key_of
from conformance.findings import EngineReport
from conformance.harness import EngineInfo
from conformance.problems import EngineFailed
from conformance.protocols import Mode, Output, Request
from conformance.statistics import Ledger, WrongUse
from conformance.subject import Subject

SAME_EVIDENCE = 1e-3
"""log10 E may differ by this between machines that read the same models."""


class EvidenceEnds(WrongUse):
    """The folder holds no answer to what is asked: the audit had not come so far."""


def judge_evidence(folder: Path, subjects: Sequence[Subject]) -> EngineReport:
    """The report of the audit whose evidence lies in `folder`: a complete one word for word, of an interrupted one what was
    judged, the longest prefix of every mode, as inconclusive. Raises EvidenceProblem for another target or damaged evidence.
    """
    plan, _ = read_plan(folder)
    refuse_other_models(plan, subjects)
    stored, settings = _Stored(folder, engine_of(plan)), settings_of(plan)
    runners = [partial(_Replay, stored, place) for place in range(len(subjects) + 1)]
    others = [Pair(*one) for one in zip(pairs_of(plan)[1:], runners[1:], subjects[1:])]
    report = audit_engine(
        plan["audited as"],
        runners[0],
        subjects[0],
        settings,
        evidence=_Sealed(plan),
        others=others,
        self_draft=runners[-1] if plan["self-draft"] else None,
    )
    starts = read_sealed(folder / ENVIRONMENT)[0] if (folder / ENVIRONMENT).exists() else []
    if starts:
        report = replace(report, started=starts[0]["started"], environment=starts[-1]["versions"] or report.environment)
    return replace(report, notes=(*report.notes, *_notes(folder, report, starts)))


def read_ledgers(folder: Path) -> dict[str, Ledger]:
    """The ledgers of an audit that has ended, by their part of the verdict, to merge or carry."""
    return {part: Ledger.from_state(state) for part, state in read_sealed(folder / LEDGER)[0].items()}


def _notes(folder: Path, report: EngineReport, starts: Sequence[Mapping[str, Any]]) -> list[str]:
    notes = ["Judged again from its evidence; the engine was not run. Its parts alone (components) are not in the evidence."]
    if len(starts) > 1:
        notes.append(f"The audit was interrupted and resumed: it was started {len(starts)} times.")
    if (folder / LEDGER).exists() and report.log10_evidence is not None:
        ledgers = read_ledgers(folder)
        before = ledgers["speculation"].look().log10_e if "speculation" in ledgers else report.log10_evidence
        if not (before == report.log10_evidence or math.isclose(before, report.log10_evidence, abs_tol=SAME_EVIDENCE)):
            notes.append(
                f"The stored ledger says log10 evidence {before:.3f}, not {report.log10_evidence:.3f}: one of both is wrong."
            )
    return notes


class _Sealed(Unkept):
    """Refuses to judge by another plan than was sealed."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self._sealed = {name: one["digest"] for name, one in plan["ledgers"].items()}

    def seal(self, ledgers: Mapping[str, Ledger]) -> None:
        """See `Evidence.seal`."""
        now = {part: ledger.plan.digest for part, ledger in ledgers.items()}
        if now != self._sealed:
            raise EvidenceProblem(
                "this version of specref would judge by other weights than the sealed plan has: "
                "judge with the version that sealed it"
            )


class _Stored:
    """What a folder holds, and how far it was asked for."""

    def __init__(self, folder: Path, info: EngineInfo) -> None:
        self.info = info
        self.chunks: dict[str, list[Chunk]] = {}
        self.asked: Counter[str] = Counter()
        self.said: dict[str, dict[str, Any]] = read_sealed(folder / SAID)[0] if (folder / SAID).exists() else {}
        store = Store(folder)
        for number, mode in enumerate(info.modes):
            for chunk in store.chunks(store.mode_folder(number, mode)):
                self.chunks.setdefault(chunk.key, []).append(chunk)

    def next(self, what: str) -> int:
        """How often this was asked before."""
        self.asked[what] += 1
        return self.asked[what] - 1


class _Replay:
    """A runner that answers from the folder, and never more than was stored."""

    def __init__(self, stored: _Stored, pair: int) -> None:
        self._stored, self._pair = stored, pair

    def describe(self, k: int) -> EngineInfo:
        """See `Runner.describe`."""
        return self._stored.info

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Runner.generate`."""
        key = key_of(mode, self._pair, requests)
        chunks, place = self._stored.chunks.get(key, []), self._stored.next(key)
        if place >= len(chunks):
            failed = self._stored.said.get(mode.name, {}).get(f"failed {key}")
            if failed is not None:
                raise EngineFailed(failed["kind"], failed["message"])
            raise EvidenceEnds("the evidence ends here; the audit was interrupted")
        return iter(outputs_of(chunks[place], len(requests)))

    def metrics(self, mode: Mode) -> Mapping[str, float] | None:
        """See `Runner.metrics`."""
        number = self._stored.next(f"metrics {mode.name} {self._pair}")
        found: Mapping[str, float] | None = self._stored.said.get(mode.name, {}).get(f"metrics {self._pair} {number}")
        return found

    def components(self) -> Sequence[Component]:
        """Components are not part of the evidence of samples."""
        return ()

    def renew(self) -> bool:
        """See `Runner.renew`: what was stored stays as it is."""
        return True

    def close(self) -> None:
        """Nothing is held."""
