"""What is wrong? General probes that narrow the cause of a violated law to a family, in one sentence with its evidence.

They run only where a case violates LAW, and convict nobody: the verdict stands already. Each compares one thing with another:
the same without speculation, one by one and together, in a fresh process and in a used one, at temperature 0, and the law as a
function of the temperature and the top-k that are asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from conformance.asking import Asking
from conformance.cases import PLAIN
from conformance.components import Floats, Ints
from conformance.expected import COMPONENT
from conformance.findings import Finding, Verdict
from conformance.harness import Runner
from conformance.problems import EngineFailed
from conformance.protocols import Mode, Request, Tokens
from conformance.sampled_case import SampledCase
from conformance.sampling import judged_part
from conformance.statistics import Ledger, ModePlan, Plan, TokenBlock
from specref.models import softmax
from specref.processors import SamplingSettings

ALARM, CALM = 4.0, 1.0
"""log10 evidence at which a probe counts as violating, and below which as conforming."""
LEAST, MOST = 400, 1_600
"""Tokens of a probe: about twice what the case took to convict. What took more than that is not seen by probes."""
HEATS = (0.5, 1.0, 1.6)
"""Temperatures asked for, to see whether the law follows."""
FOLLOWS = 1.6
"""Fitted temperatures that differ by less than this factor, over `HEATS`, do not follow what was asked (a factor of 3.2)."""
COMPANY = 8
OTHER_LAW = "drafts are not drawn from the law that verification is handed"


@dataclass(frozen=True)
class Diagnosis:
    """family: "control", "settings", "models", "rows", "state", "seed", "context", "draft", "rule" or "unknown". sentence: for
    people."""

    family: str
    sentence: str
    evidence: tuple[str, ...] = ()

    def added_to(self, finding: Finding) -> Finding:
        """The finding with the cause in its summary, and the evidence for it among its places."""
        summary = f"{finding.summary}. Cause ({self.family}): {self.sentence}"
        return replace(finding, summary=summary, violations=(*finding.violations, *self.evidence))


def cause_of(finding: Finding) -> tuple[str, str]:
    """The family and the sentence that a diagnosis added to a finding; both empty where none did.

    >>> finding = Finding("LAW-1", "fast", Verdict.VIOLATES, "tokens do not follow the law")
    >>> cause_of(Diagnosis("rows", "a request alone conforms").added_to(finding))
    ('rows', 'a request alone conforms')
    """
    found = re.search(r"\. Cause \((\w+)\): (.*)", finding.summary, re.DOTALL)
    return (found[1], found[2]) if found else ("", "")


class Engines(Protocol):
    """Lends a runner: one that the audit has used, or one that nobody asked anything before."""

    def runner(self, pair: int = 0) -> AbstractContextManager[Runner]:
        """A used one."""

    def fresh(self, pair: int = 0) -> AbstractContextManager[Runner]:
        """A fresh one."""


def evidence_against(tokens: Ints, p: Floats, q: Floats) -> float:
    """log10 evidence of tokens `[n]` against p `[n, V]`, by bets and the omnibus alone."""
    plan = ModePlan("probe", 1.0, {"bank": 0.7, "omnibus": 0.3}, max(1, len(tokens)))
    ledger = Ledger(Plan((plan,)), "probe", 0)
    ledger.observe("probe", TokenBlock(tokens, p, q))
    return ledger.look().log10_e


@dataclass(frozen=True)
class Sample:
    """What a probe asked and got: tokens `[n]`, the target's raw logits `[n, V]`, and p, q `[n, V]` as asked for."""

    tokens: Ints
    logits: Floats
    p: Floats
    q: Floats

    @property
    def log10_e(self) -> float:
        """The evidence against p."""
        return evidence_against(self.tokens, self.p, self.q)

    @property
    def heat(self) -> float:
        """The temperature at which the target gives these tokens the largest likelihood.

        >>> rows = np.tile(np.log([0.7, 0.2, 0.1]), (300, 1))
        >>> law = softmax(rows)
        >>> tokens = np.repeat([0, 1, 2], [157, 84, 59])                # as at temperature 2
        >>> 1.9 < Sample(tokens, rows, law, law).heat < 2.2             # to within a step of 8%
        True
        """
        grid = np.geomspace(0.05, 20, 73)
        picked = np.arange(len(self.tokens)), self.tokens
        likelihood = [float(np.log(np.maximum(softmax(self.logits / t)[picked], 1e-30)).sum()) for t in grid]
        return float(grid[int(np.argmax(likelihood))])

    @property
    def leak(self) -> tuple[float, float]:
        """The share of q in the likeliest mixture of p and q, and log10 evidence against that mixture."""
        picked = np.arange(len(self.tokens)), self.tokens
        grid = np.linspace(0, 1, 21)
        mixed = [float(np.log(np.maximum((1 - e) * self.p[picked] + e * self.q[picked], 1e-30)).sum()) for e in grid]
        share = float(grid[int(np.argmax(mixed))])
        return share, replace(self, p=(1 - share) * self.p + share * self.q).log10_e


def narrow(
    state: SampledCase, found: Mapping[tuple[str, str], Finding], control: str, engines: Engines, without: Mode | None = None
) -> Diagnosis:
    """The cause of the violation of one case. found: all findings. control: the name of the same case without speculation.
    without: the mode that does not speculate, to be tried where there is no such case."""
    case, mode = state.case, state.mode

    def violates(requirement: str, name: str) -> bool:
        one = found.get((requirement, name))
        return one is not None and one.verdict is Verdict.VIOLATES

    if mode.speculates and any(violates(law, control) for law in ("LAW-1", "LAW-2")):
        return Diagnosis("control", f"the same is seen without speculation (mode '{control}')")
    if not violates("LAW-1", case.name):
        return Diagnosis("seed", "tokens follow the law one by one but not jointly: random numbers are shared or used again")
    of_drafts = _drafter_violates(mode, found)
    if of_drafts and not any("LAW" in one for one in _guilty_parts(mode, found)):
        return Diagnosis("draft", f"{OTHER_LAW} ({mode.drafter})", of_drafts)
    plain_conforms = ("LAW-1", mode.name) in found and not violates("LAW-1", mode.name)
    if case.pair and plain_conforms:
        return _with_these_models(state, engines, without)
    if case.setting.name != PLAIN and plain_conforms:
        return Diagnosis("settings", _not_as_asked(state))
    return _probed(state, found, engines)


def _not_as_asked(state: SampledCase) -> str:
    return f"the plain setting conforms, so {' with '.join(state.case.setting.fields)} does not reach verification as asked"


def _guilty_parts(mode: Mode, found: Mapping[tuple[str, str], Finding]) -> tuple[str, ...]:
    """Components that violate LAW or DRAFT by themselves; of drafters only the mode's own, where it names it."""
    some = [one for one in found.values() if one.mode.startswith(COMPONENT) and one.verdict is Verdict.VIOLATES]
    laws = [one for one in some if one.requirement.startswith("LAW-")]
    drafts = [one for one in some if one.requirement.startswith("DRAFT-")]
    mine = [one for one in drafts if not mode.drafter or one.mode == COMPONENT + mode.drafter]
    return tuple(f"{one.mode} violates {one.requirement}" for one in (*laws, *mine))


def _drafter_violates(mode: Mode, found: Mapping[tuple[str, str], Finding]) -> tuple[str, ...]:
    """What DRAFT-1 found of the component that drafts in this mode."""
    one = found.get(("DRAFT-1", COMPONENT + mode.drafter))
    return (f"{one.mode} violates DRAFT-1: {one.summary}",) if one is not None and one.verdict is Verdict.VIOLATES else ()


def _with_these_models(state: SampledCase, engines: Engines, without: Mode | None) -> Diagnosis:
    """The cause on another pair of models than the first, where the plain setting conforms: these models, or the setting."""
    case = state.case
    asked = case.asks(state.settings, state.subject)
    plain = SamplingSettings(max_tokens=asked.max_tokens, eos=asked.eos, temperature=state.settings.temperature)
    number = min(MOST, max(LEAST, 2 * state.tokens))
    with engines.fresh(case.pair) as runner:
        if without is not None:
            off = sample(Asking(runner, without, state.subject, state.settings), asked, number, company=COMPANY).log10_e
            if off >= ALARM:
                why = f"the same is seen without speculation (mode '{without.name}') with the models {case.pair_name}"
                return Diagnosis("control", why, (f"without speculation: log10 evidence {off:.1f}",))
        asking = Asking(runner, state.mode, state.subject, state.settings)
        whole = sample(asking, plain, number, company=COMPANY).log10_e
    said = (f"the plain setting with the models {case.pair_name}: log10 evidence {whole:.1f}",)
    if whole >= ALARM:
        why = f"with the models {case.pair_name} the plain setting violates too, with the first pair it does not"
        return Diagnosis("models", why, said)
    if case.setting.name != PLAIN:
        return Diagnosis("settings", _not_as_asked(state), said)
    return Diagnosis("unknown", "it was not seen again", said)


def _probed(state: SampledCase, found: Mapping[tuple[str, str], Finding], engines: Engines) -> Diagnosis:
    """Probes that sample: company, process, temperature 0, requested temperature; then what the tokens fit best."""
    case = state.case
    number = min(MOST, max(LEAST, 2 * state.tokens))
    sampling = replace(case.asks(state.settings, state.subject), eos=(), max_tokens=min(24, state.settings.max_tokens))
    with engines.fresh(case.pair) as runner:
        asking = Asking(runner, state.mode, state.subject, state.settings)
        together = sample(asking, sampling, number, company=COMPANY)
        alone = sample(asking, sampling, number, company=1)
        said: tuple[str, ...] = (
            f"fresh process, batches of {COMPANY}: log10 evidence {together.log10_e:.1f} in {len(together.tokens)} tokens",
            f"fresh process, one by one: log10 evidence {alone.log10_e:.1f}",
        )
        if together.log10_e >= ALARM:
            if alone.log10_e < CALM:
                return Diagnosis("rows", "a request alone conforms, in the company of others it does not", said)
            heats = [sample(asking, replace(_bare(sampling), temperature=t), number // 2, company=1).heat for t in HEATS]
            again = sample(asking, sampling, number // 2, company=COMPANY)
            said += (f"later, in batches of {COMPANY}: log10 evidence {again.log10_e:.1f} in {len(again.tokens)} tokens",)
            kept_out = outside_top_k(asking, replace(_bare(sampling), temperature=1.0), number // 4)
    if together.log10_e < ALARM:
        with engines.runner(case.pair) as runner:
            used = sample(Asking(runner, state.mode, state.subject, state.settings), sampling, number, company=COMPANY)
        said += (f"used process, batches of {COMPANY}: log10 evidence {used.log10_e:.1f}",)
        if used.log10_e < ALARM and state.tokens > MOST:
            why = f"it took {state.tokens} tokens to show, more than the probes sample"
            return Diagnosis("unknown", why, said + _guilty_parts(state.mode, found))
        return Diagnosis("state", "a fresh process conforms: what earlier requests left behind changes later ones", said)
    said += (f"temperatures {HEATS} asked for, {tuple(round(heat, 2) for heat in heats)} fitted",)
    greedy = found.get(("GREEDY-1", state.mode.name))
    at_zero = Verdict.NOT_EXPOSED if greedy is None else greedy.verdict
    greedily = f"at temperature 0 it {'conforms' if at_zero is Verdict.CONFORMS else 'was not judged'}"
    wrong_at_zero = at_zero is Verdict.VIOLATES
    leak, against = together.leak
    guilty = _guilty_parts(state.mode, found)
    if not wrong_at_zero and (max(heats) < FOLLOWS * min(heats) or kept_out != 0):
        cut = "the engine fails" if kept_out is None else f"{kept_out:.0%} of the tokens are outside the two best"
        said += (f"under top-k 2 {cut}",)
        return Diagnosis("settings", f"sampling settings do not reach verification; {greedily}", said)
    said += (f"the tokens fit {1 - leak:.2f} p + {leak:.2f} q best (log10 evidence against that: {against:.1f})",)
    if any("DRAFT" in one for one in guilty) and not any("LAW" in one for one in guilty):
        return Diagnosis("draft", OTHER_LAW, said + guilty)
    if guilty or (leak >= 0.05 and against < CALM):
        return Diagnosis(
            "rule", f"verification lets the draft's law through, whatever the settings{_where(state)}", said + guilty
        )
    if wrong_at_zero:
        why = "at temperature 0 tokens are wrong too, and not the draft's: the target reads a wrong context (cache, position)"
        return Diagnosis("context", why, said)
    why = f"{greedily}, settings reach it, and other requests beside it do not matter"
    return Diagnosis("rule", f"{why}: what is left is the rule that verifies{_where(state)}", said)


def _bare(sampling: SamplingSettings) -> SamplingSettings:
    """The length alone: temperature and top-k are then what is asked for, and nothing else."""
    return SamplingSettings(max_tokens=sampling.max_tokens)


def _where(state: SampledCase) -> str:
    """Which tokens of a round show it most, from the ledger's own checks of each place."""
    places = ("accepted", "residual", "bonus", "after a rejection")
    some = [one for one in state.ledger.evidence(state.case.name) if one.check in places and one.log10_e >= ALARM]
    return f"; it shows most in: {max(some, key=lambda one: one.log_e).check}" if some else ""


def sample(asking: Asking, sampling: SamplingSettings, number: int, *, company: int) -> Sample:
    """About `number` tokens of one setting, `company` requests at a time."""
    requests: list[Request] = []
    outputs: list[Tokens] = []
    while sum(map(len, outputs)) < number and len(requests) < 8 * number:
        group = asking.requests(f"probe {sampling.temperature} {company} {len(requests)}", company, sampling)
        outputs += [judged_part(request, output) for request, output in zip(group, asking.ask(group))]
        requests += group
    laws = asking.laws(requests, outputs)
    return Sample(
        np.array([token for output in outputs for token in output], dtype=np.int64),
        np.concatenate(asking.logits(requests, outputs)),
        np.concatenate([p for p, _ in laws]),
        np.concatenate([q for _, q in laws]),
    )


def outside_top_k(asking: Asking, sampling: SamplingSettings, number: int, k: int = 2) -> float | None:
    """The share of tokens that lie clearly outside the k best although top-k was asked for; 0 if it is refused, None if the
    engine fails."""
    requests = asking.requests("probe of top-k", max(1, number // sampling.max_tokens), replace(sampling, top_k=k))
    try:
        answer = asking.try_to_ask(requests)
    except EngineFailed:
        return None
    if isinstance(answer, str):
        return 0.0
    outputs = [judged_part(request, output) for request, output in zip(requests, answer)]
    logits = np.concatenate(asking.logits(requests, outputs))
    tokens = np.array([token for output in outputs for token in output], dtype=np.int64)
    edge = np.sort(logits, axis=1)[:, -k] - 4 * asking.subject.tolerance.eta - 1e-6
    return float((logits[np.arange(len(tokens)), tokens] < edge).mean())


def first_of_each_mode(states: Sequence[SampledCase], found: Mapping[tuple[str, str], Finding]) -> list[SampledCase]:
    """Of every mode the first case that violates LAW-1, else the first that violates LAW-2."""
    chosen: dict[str, SampledCase] = {}
    for law in ("LAW-1", "LAW-2"):
        for state in states:
            one = found.get((law, state.case.name))
            if one is not None and one.verdict is Verdict.VIOLATES:
                chosen.setdefault(state.mode.name, state)
    return list(chosen.values())
