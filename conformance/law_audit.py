"""LAW over all cases of an engine: one ledger for what speculates, one for its control, and what they say of each case."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from conformance.asked_law import forbids
from conformance.cases import Case, part
from conformance.checks.law import DRAFT, dependence, detectable, law_findings, sample_of_laws
from conformance.contributions import contributions
from conformance.findings import Finding, Statistic, Verdict
from conformance.levels import AuditSettings
from conformance.reporting.text import plural
from conformance.sampled_case import SampledCase
from conformance.statistics import Ledger, ModePlan, Plan
from conformance.statistics.bank_checks import BankCheck
from conformance.statistics.bets import seals
from conformance.statistics.check import Check
from conformance.statistics.dependence import LagCheck
from conformance.subject import Subject

POOLED = "all cases together"
"""The part of a ledger in which every case adds to one account of each pooled check: what is wrong everywhere shows soonest."""
ELSEWHERE = "judged elsewhere"
"""The part of a ledger that stands for what is judged by statistics outside of it."""
POOLED_WEIGHT = 0.1
POOLED_CHECKS = {"bank": 0.8, "lag": 0.2}
"""What is added up over cases, and its part of that weight: LAW-1, and LAW-2, for which a single case has few tokens."""
MOST_LEAST = 1_000
"""Tokens that a case needs before its own bound is worth stating."""


def sealed_ledgers(
    cases: Sequence[Case],
    name: str,
    settings: AuditSettings,
    subjects: Sequence[Subject],
    without: Collection[str] = (),
) -> dict[str, Ledger]:
    """A ledger for each part ("speculation", "control", "lossy") that has cases, with a sealed plan: one part per case.

    A ledger has the run's whole false-alarm rate where nothing else is judged by statistics. Else both ledgers, the families
    and the components have a quarter each: the rest of a ledger's weight lies elsewhere, on a part that never speaks.
    without: laws that are not bet on.
    """
    here = 0.25 if settings.level.requests or settings.level.rows else 1.0
    ledgers = {}
    for what in ("control", "speculation", "lossy"):
        some = [case for case in cases if part(case.mode) == what]
        if not some:
            continue
        pooled = POOLED_WEIGHT if len(some) > 1 and settings.level.cases != "plain" else 0.0
        plans = [_plan(case, settings, subjects[case.pair], here * case.weight * (1 - pooled), without) for case in some]
        if pooled:
            tokens = sum(case.tokens for case in some)
            plans.append(ModePlan(POOLED, here * pooled, POOLED_CHECKS, tokens, k=settings.k, bets=seals(without)))
        if here < 1:
            plans.append(ModePlan(ELSEWHERE, 1 - here, {"greedy": 1.0}, 1))
        ledgers[what] = Ledger(Plan(tuple(plans), settings.alpha), f"{name} seed {settings.seed}", settings.seed)
    return ledgers


def _plan(case: Case, settings: AuditSettings, subject: Subject, weight: float, without: Collection[str]) -> ModePlan:
    mode, edges = case.mode, forbids(case.asks(settings, subject))
    drafted = mode.exposes_rounds and mode.speculates
    return ModePlan.standard(
        case.name,
        case.tokens,
        weight=weight,
        outside=("edges",) if edges else (),
        k=settings.k,
        segments=drafted,
        slots=drafted,
        batch=False,
        ratio_rule=drafted and not edges and mode.ensemble == 1 and mode.rule == "ratio" and mode.exact_draft,
        requests_per_shard=max(1, case.tokens // settings.max_tokens // 8),
        bets=seals(without),
    )


def can_catch(
    cases: Sequence[Case], ledgers: Mapping[str, Ledger], subjects: Sequence[Subject], settings: AuditSettings
) -> str:
    """What the sealed plan holds, and what it will have shown of speculation with probability 99.9%, in words."""
    modes = len({case.mode.name for case in cases})
    said = f"{plural(modes, 'mode')} in {plural(len(cases), 'case')}, {sum(case.tokens for case in cases):,} tokens"
    ledger, plain = ledgers.get("speculation"), [case for case in cases if case.is_plain and part(case.mode) == "speculation"]
    if ledger is None or not plain:
        return f"{said}."
    rows = sample_of_laws(subjects[0].target, subjects[0], settings), sample_of_laws(subjects[0].draft, subjects[0], settings)

    def caught(name: str, tokens: int) -> str:
        return detectable(ledger.judges[name].bank, ledger.plan[name], ledger.plan.alpha, rows, tokens)

    least = min(plain, key=lambda case: case.tokens)
    said += f". Caught with probability 99.9% in a mode (of {least.tokens:,} tokens): {caught(least.name, least.tokens)}"
    if POOLED in ledger.judges:
        said += f"; in all modes at once: {caught(POOLED, sum(case.tokens for case in cases if case.name in ledger.judges))}"
    return f"{said}; or more."


def pool(ledger: Ledger, cases: Sequence[Case]) -> None:
    """Add up every case's account of the pooled checks, in the order of the plan. Bets on the tokens of independent requests
    multiply, and counts of pairs add, whichever case they are of: what is added up is one fair bet on all of them."""
    if POOLED not in ledger.judges:
        return
    whole = ledger.judges[POOLED]
    accounts: list[Check] = [BankCheck(whole.bank), LagCheck(whole.plan.has_q, whole.plan.k + 1)]
    judges = [ledger.judges[case.name] for case in cases if case.name in ledger.judges]
    for account in accounts:
        for judge in judges:
            account.merge(judge.checks[account.name])
    whole.checks = {account.name: account for account in accounts}
    whole.tokens = sum(judge.tokens for judge in judges)


def findings_of_cases(
    states: Sequence[SampledCase], ledgers: Mapping[str, Ledger], wrong: Collection[str] = ()
) -> list[Finding]:
    """LAW-1 and LAW-2 of every case that gave tokens, and of each ledger's cases together. wrong: modes known to be wrong by
    other tokens than these; as cases that are proven wrong, theirs are left out of what cases say together.
    """
    found: list[Finding] = []
    for what, ledger in ledgers.items():
        some = [state for state in states if part(state.mode) == what]
        look = ledger.look()
        for state in some:
            if not state.tokens:
                continue
            case = state.case
            leaks_to = "a copied n-gram" if case.mode.draft_law == "n-gram" else DRAFT
            pair = law_findings(
                ledger, case.name, look, state.rows, tokens=state.tokens, planned=case.tokens, leaks_to=leaks_to
            )
            found += [_as_declared(_with_refusals(_explained(one, state, ledger), state), state) for one in pair]
        found = _ended_early(found)
        proven = {one.mode for one in found if one.verdict is Verdict.VIOLATES}
        rest = [state for state in some if state.tokens]
        if what != "lossy":  # which are not expected to follow any law that is known
            rest = [state for state in rest if state.done and state.case.name not in proven and state.mode.name not in wrong]
        if POOLED in ledger.judges and rest:
            found += _pooled(ledger, what, rest)
    return found


def _ended_early(found: Sequence[Finding]) -> list[Finding]:
    """A case ends once one of its two laws is decided; the other is then as lossy as declared, or was not judged to its end."""
    decided = {one.mode: one for one in found if one.verdict in (Verdict.VIOLATES, Verdict.LOSSY_AS_DECLARED)}
    ended = []
    for one in found:
        other = decided.get(one.mode)
        if one.verdict is Verdict.INCONCLUSIVE and other is not None:
            if other.verdict is Verdict.VIOLATES:
                said = f"not judged to its end, because {other.requirement} was proven wrong"
                one = replace(one, verdict=Verdict.NOT_RUN, summary=said)
            else:
                one = replace(one, verdict=other.verdict, summary=other.summary)
        ended.append(one)
    return ended


def _explained(finding: Finding, state: SampledCase, ledger: Ledger) -> Finding:
    """A violation with the tokens and contexts that add most to the bet that holds the mode's wealth."""
    if finding.requirement != "LAW-1" or finding.verdict is not Verdict.VIOLATES:
        return finding
    bank = ledger.judges[state.case.name].bank
    held = next((one.holder for one in finding.statistics if one.name == "bank"), "")
    return replace(finding, contributions=contributions(state, bank, held))


def _pooled(ledger: Ledger, what: str, states: Sequence[SampledCase]) -> list[Finding]:
    """What cases say together, of LAW-1 and of LAW-2. Those that are proven wrong by themselves are left out: they would hide
    what holds for the rest, and a bet on a case that is as it should be is a fair one whatever the others came to."""
    pool(ledger, [state.case for state in states])
    plan, judge = ledger.plan[POOLED], ledger.judges[POOLED]
    evidence = {one.check: one for one in judge.evidence()}
    named = [one.check for one in ledger.look().named if one.mode == POOLED]
    whole = judge.tokens >= sum(state.case.tokens for state in states)
    p, q = (np.concatenate([state.rows[side][:64] for state in states]) for side in (0, 1))
    caught = {
        "bank": detectable(judge.bank, plan, ledger.plan.alpha, (p, q), max(judge.tokens, 1)),
        "lag": dependence(ledger, POOLED, list(evidence.values())),
    }
    claims = {
        "bank": "the laws that were asked for",
        "lag": "the laws that were asked for, in what tokens say about each other",
    }
    about = f"{judge.tokens} tokens of {plural(len(states), 'case')} ({what}; none that is proven wrong or was not finished)"
    findings = []
    for requirement, check in (("LAW-1", "bank"), ("LAW-2", "lag")):
        one, wrong = evidence[check], check in named
        verdict = Verdict.VIOLATES if wrong else Verdict.CONFORMS if whole else Verdict.INCONCLUSIVE
        said = f"do not follow {claims[check]}: {one.holder}" if wrong else f"agree with {claims[check]}"
        finding = Finding(
            requirement,
            POOLED if what == "speculation" else f"{POOLED} ({what})",
            verdict if what != "lossy" or verdict is not Verdict.VIOLATES else Verdict.LOSSY_AS_DECLARED,
            f"together {about} {said}",
            n=judge.tokens,
            planned=min(plan.registered_n, sum(state.case.tokens for state in states)),
            alpha=ledger.plan.alpha,
            log10_evidence=one.log10_e,
            statistics=(Statistic(check, one.n, log10_evidence=one.log10_e, holder=one.holder),),
            detects=f"in every case at once: {caught[check]}" if caught[check] else "",
        )
        findings.append(finding)
    return findings


def _with_refusals(finding: Finding, state: SampledCase) -> Finding:
    if not state.refused:
        return finding
    return replace(finding, summary=f"{finding.summary}; left out, because the engine refuses them: {', '.join(state.refused)}")


def _as_declared(finding: Finding, state: SampledCase) -> Finding:
    """The verdict of a mode that changes the law on purpose: judged against the mixture that it declares, or only measured."""
    mode = state.mode
    if not mode.lossy:
        return finding
    if mode.ensemble < 1:
        law = f"{mode.ensemble:g} p + {1 - mode.ensemble:g} q" + (" at drafted places" if mode.exposes_rounds else "")
        verdict = Verdict.LOSSY_AS_DECLARED if finding.verdict is Verdict.CONFORMS else finding.verdict
        return replace(finding, verdict=verdict, summary=f"{finding.summary}; judged by the law that is declared, {law}")
    if finding.verdict in (Verdict.VIOLATES, Verdict.CONFORMS):
        seen = f"measured: {_distance(state):.3f} in total variation between what came and the target's mean law"
        return replace(finding, verdict=Verdict.LOSSY_AS_DECLARED, summary=f"declared as lossy ({mode.lossy}); {seen}")
    return finding


def _distance(state: SampledCase) -> float:
    return float(np.abs(state.observed - state.expected).sum() / 2 / max(state.tokens, 1))
