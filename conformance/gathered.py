"""All that an audit gathered about an engine, and the findings that follow once everything was asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np

from conformance.case_plan import CasePlan
from conformance.checks.accept import acceptance_finding
from conformance.checks.draft import hostile_finding
from conformance.checks.greedy import drafter_swap_finding
from conformance.checks.places import not_exposed, not_promised
from conformance.coverage import covered
from conformance.families import STATISTICAL, control_of
from conformance.findings import Finding, Verdict
from conformance.greedy_audit import Continued, has_margin, paired_of
from conformance.law_audit import findings_of_cases
from conformance.levels import AuditSettings
from conformance.parts_found import with_parts_that_explain
from conformance.protocols import Mode, Output, Request
from conformance.sampled_case import SampledCase
from conformance.second_turn import conversations, name_of
from conformance.silent import chosen_instead_of_drawn, seeds_that_end_it
from conformance.statistics import Ledger
from conformance.statistics.acceptance import FLOAT32_ETA, RATIO_RULES
from conformance.stop_requests import ends_findings
from conformance.subject import Subject
from conformance.unfinished import Findings, mark_unfinished, not_speculations

WHOLE = "all"
"""In the place of a mode, for what concerns all of them."""


@dataclass
class Gathered:
    """What was asked and answered. asked: names of the modes that the family checks ask. answers: by mode, with their requests.
    continued: by mode, the prompts continued at temperature 0.
    """

    subject: Subject
    settings: AuditSettings
    modes: Sequence[Mode] = ()
    plan: CasePlan = field(default_factory=lambda: CasePlan(()))
    asked: Sequence[str] = ()
    states: list[SampledCase] = field(default_factory=list)
    findings: Findings = field(default_factory=dict)
    continued: dict[str, Continued] = field(default_factory=dict)
    answers: dict[str, list[tuple[Request, Output]]] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def put(self, finding: Finding) -> None:
        """Keep a finding; a later one of the same requirement and name takes its place."""
        self.findings[finding.requirement, finding.mode] = finding

    def answered(self, mode: Mode, some: Iterable[tuple[Request, Output]]) -> None:
        """Keep answers for the checks that look at all of them."""
        with self.lock:
            self.answers.setdefault(mode.name, []).extend(some)

    @property
    def prompts(self) -> int:
        """Prompts that each mode continues greedily."""
        return self.settings.level.prompts_of(sum(not (mode.brief or mode.not_here) for mode in self.modes))

    @property
    def alpha_of_mode(self) -> float:
        """The false-alarm rate that the statistical family checks of one mode share."""
        return self.settings.alpha / 4 / max(1, len(self.modes))

    def names(self, modes: Sequence[Mode] | None = None) -> list[str]:
        """Every name under which something is reported of some modes (all of them), in the report's order."""
        cases = [(case.mode.name, case.name) for case in self.plan.cases]
        return [
            name
            for mode in (self.modes if modes is None else modes)
            for name in dict.fromkeys([mode.name, *(case for of, case in cases if of == mode.name), name_of(mode.name)])
        ]

    def judged(self, ledgers: Mapping[str, Ledger]) -> list[Finding]:
        """All findings. ledgers: by what they are about."""
        before = {key: one for key, one in self.findings.items() if one.requirement in ("LAW-1", "LAW-2")}
        greedy = [one for one in self.findings.values() if one.requirement == "GREEDY-1"]
        wrong = {one.mode for one in greedy if one.verdict is Verdict.VIOLATES}
        for finding in findings_of_cases(self.states, ledgers, wrong):
            self.put(finding)
            unfinished = before.get((finding.requirement, finding.mode))
            if unfinished is not None:
                mark_unfinished(self.findings, finding.requirement, finding.mode, unfinished.summary)
        for state in self.states:
            if not state.case.pair:
                self.answered(state.mode, state.first)
        for mode in self.modes:
            self._ends(mode)
            self._compare_greedy(mode)
            if mode.speculates and mode.name in self.asked:
                self._acceptance(mode)
            self._beside_others(mode)
        self._whole()
        order = {name: place for place, name in enumerate(self.names())}
        found = sorted(self.findings.values(), key=lambda one: (order.get(one.mode, len(order)), one.mode, one.requirement))
        modes = {mode.name: mode for mode in self.modes} | {state.case.name: state.mode for state in self.states}
        return with_parts_that_explain(not_speculations(found, self.controls()), modes)

    def _ends(self, mode: Mode) -> None:
        """STOP in one mode, over all that it answered."""
        answered, asked = self.answers.get(mode.name), mode.name in self.asked
        if not answered:
            return
        planned = min(4, self.settings.level.requests) if asked else 1
        for finding in ends_findings(mode, answered, planned, self.settings.k, self.subject.texts):
            if finding.n or (asked and (finding.requirement, mode.name) not in self.findings):
                self.put(finding)

    def _beside_others(self, mode: Mode) -> None:
        """LOUD-1 and SEED-1, so far as they show only beside another mode."""
        plain = next((one for one in self.states if one.case.name == mode.name and one.drafts), None)
        seen: list[Finding | None] = [seeds_that_end_it(mode, self.modes, self.findings)]
        if plain is not None:
            parts: list[Any] = list(zip(*plain.drafts, strict=True))
            q, drafts = np.concatenate(parts[1]), np.concatenate(parts[2])
            alpha, known = self.alpha_of_mode / STATISTICAL, self.findings.get(("LOUD-1", mode.name))
            seen.append(chosen_instead_of_drawn(mode, self.modes, q, drafts, alpha, known))
        for one in seen:
            if one is not None:
                self.put(one)

    def _acceptance(self, mode: Mode) -> None:
        """ACCEPT-1 from the rounds of the mode's first case that shows any, and what is to be said where ACCEPT-2 was not
        tried.
        """
        known = mode.exposes_rounds and (mode.exact_draft or mode.rule not in RATIO_RULES) and mode.rule != "undeclared"
        could = '; it could be judged with promises={"ACCEPT-1": "where the rule is documented"}' if known else ""
        for requirement, what in (
            ("ACCEPT-1", f"its acceptance{could}"),
            ("ACCEPT-2", "full acceptance of the target's own drafts"),
        ):
            if requirement not in mode.promises:
                self.put(not_promised(requirement, mode.name, what))
        if "ACCEPT-2" in mode.promises and ("ACCEPT-2", mode.name) not in self.findings:
            self.put(not_exposed("ACCEPT-2", mode.name, "a way to let the target draft for itself"))
        if "ACCEPT-1" not in mode.promises:
            return
        if mode.rule in RATIO_RULES and not mode.exact_draft:
            self.put(not_exposed("ACCEPT-1", mode.name, "the law of its drafts (exact_draft: the draft model's)"))
            return
        state = next((one for one in self.states if one.mode.name == mode.name and one.drafts), None)
        if state is None:
            self.put(not_exposed("ACCEPT-1", mode.name, "its rounds"))
            return
        parts: list[Any] = list(zip(*state.drafts, strict=True))
        p, q, drafts, flags = (np.concatenate(some) for some in parts)
        alpha, eta = self.alpha_of_mode / STATISTICAL, max(FLOAT32_ETA, state.subject.tolerance.eta)
        self.put(acceptance_finding(mode.name, mode.rule, p, q, drafts, flags, planned=1, alpha=alpha, eta=eta))

    def _compare_greedy(self, mode: Mode) -> None:
        """Greedy outputs beside the control's: GREEDY-2 where no token convicts alone, else GREEDY-4, and DRAFT-2 of hostile
        drafts. The control is the drafter that drafts nothing: by another one it could not be said which is wrong.
        """
        control = control_of(mode, self.modes)
        on, off = (self.continued.get(one.name) for one in (mode, control or mode))
        if on is None or off is None or control is None or not mode.speculates or mode.lossy:
            return
        subject = self.subject.under(mode)
        if not has_margin(subject):
            alpha = self.alpha_of_mode / STATISTICAL
            self.put(paired_of(mode, on, off, subject, self.prompts, alpha))
            why = "no single token convicts here (GREEDY-1), so outputs are compared in pairs (GREEDY-2) and not token by token"
            for requirement in ("GREEDY-4", *(["DRAFT-2"] if mode.speculation.get("hostile") else [])):
                self.put(Finding(requirement, mode.name, Verdict.NOT_RUN, why))
            return
        logits, margin = subject.target.logits(off.sequences), subject.margin
        outputs = {control.name: off.outputs, mode.name: on.outputs}
        self.put(drafter_swap_finding(mode.name, outputs, logits, margin, self.prompts))
        if mode.speculation.get("hostile"):
            hostile = {str(mode.speculation["hostile"]): on.outputs}
            self.put(hostile_finding(mode.name, off.outputs, hostile, self.prompts, logits=logits, margin=margin))

    def _whole(self) -> None:
        """What is to be said once of an engine, and not of each mode."""
        if not self.asked:
            return
        offered = [mode.name for mode in self.modes if "GRAMMAR-3" in mode.promises]
        for requirement in ("GRAMMAR-3", "GRAMMAR-4") if not offered else ():
            self.put(not_exposed(requirement, WHOLE, "requests with a grammar (no mode promises GRAMMAR-3)"))
        if not any(mode.speculation.get("hostile") for mode in self.modes):
            self.put(not_exposed("DRAFT-2", WHOLE, "a mode with hostile drafts, whose speculation has the key 'hostile'"))
        if has_margin(self.subject) and any(mode.speculates for mode in self.modes):
            why = f"single tokens convict in {self.subject.dtype} (GREEDY-1), so pairs of prompts need not"
            self.put(Finding("GREEDY-2", WHOLE, Verdict.NOT_RUN, why))

    def controls(self) -> dict[str, str]:
        """By the name of a report, that of the same thing without speculation."""
        found = {}
        for mode in self.modes:
            control = control_of(mode, self.modes) if mode.speculates else mode
            for name in self.names([mode]):
                found[name] = name.replace(mode.name, control.name, 1) if control else ""
        return found

    def notes(self) -> list[str]:
        """What a reader must know beside the findings."""
        notes = []
        for mode in self.modes:
            beyond = sum(state.beyond for state in self.states if state.mode.name == mode.name)
            beyond += self.continued[mode.name].beyond if mode.name in self.continued else 0
            if beyond:
                said = f"outputs that went on after their end (EOS or the limit): {beyond}"
                notes.append(f"{mode.name}: {said}. What follows the end was not judged.")
        left = [mode.name for mode in self.modes if mode.name not in self.asked and not (mode.brief or mode.not_here)]
        if self.settings.level.requests and left:
            notes.append(f"At this level the families beside LAW, GREEDY and STOP were not asked of: {', '.join(left)}.")
        return notes

    def planned(self) -> dict[str, Any]:
        """The plan, as the report shows it."""
        level = self.settings.level
        return {
            "tokens of each case": {case.name: case.tokens for case in self.plan.cases},
            **covered(self.plan, self.findings.values()),
            "prompts per greedy mode": self.prompts,
            "requests per group of the other families": level.requests,
            "second turns of each mode that keeps what it read, greedy ones": conversations(self.settings),
            "modes that these are asked of": list(self.asked),
            "rows per component": level.rows,
            "seconds for all components (0: no limit)": level.seconds,
            "drafts per round (k)": self.settings.k,
            "temperature": self.settings.temperature,
            "new tokens per request": self.settings.max_tokens,
        }
