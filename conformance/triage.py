"""What is wrong? General probes that narrow the cause of a violated law to a family, in one sentence with its evidence.

They run only where a case violates LAW, and convict nobody: the verdict stands already. Each compares one thing with another:
the same without speculation, one by one and together, in a fresh process and in a used one, at temperature 0, and the law as a
function of the temperature and the top-k that are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol

from conformance.asking import Asking
from conformance.cases import PLAIN
from conformance.diagnosis import OF_A_ROUND, Diagnosis
from conformance.findings import Finding, Verdict
from conformance.harness import Runner
from conformance.parts_found import (
    OTHER_ENTRIES,
    OTHER_LAW,
    cache_violates,
    drafter_is_honest,
    drafter_violates,
    guilty_parts,
    settings_do_not_arrive,
)
from conformance.probes import (
    ALARM,
    CALM,
    CLEAR,
    COMPANY,
    MOST,
    Seen,
    arrives,
    asked_by_probes,
    evidence_against_one_heat,
    follows,
    look,
    one_heat_fits,
    probe_size,
    sample,
)
from conformance.protocols import Mode
from conformance.sampled_case import SampledCase
from specref.processors import SamplingSettings

LOST = "sampling settings do not reach verification"
ALONE = {
    "residual": "tokens that replace a rejected draft are drawn from a wrong law",
    "bonus": "bonus tokens are drawn from a wrong law, for instance from another row of the target's",
}
"""What is wrong where the tokens of that place alone do not follow the law. A wrong context would show in the others too."""
LEANS, REST = 0.05, 1 / 3
"""Tokens lean to the draft where this share of its law or more fits best, and leaves at most this part of the evidence."""


class Engines(Protocol):
    """Lends a runner: one that the audit has used, or one that nobody asked anything before."""

    def runner(self, pair: int = 0) -> AbstractContextManager[Runner]:
        """A used one."""

    def fresh(self, pair: int = 0) -> AbstractContextManager[Runner]:
        """A fresh one."""


def narrow(
    state: SampledCase, found: Mapping[tuple[str, str], Finding], control: str, engines: Engines, without: Mode | None = None
) -> Diagnosis:
    """The cause of the violation of one case. found: all findings. control: the name of the same case without speculation.
    without: the mode that does not speculate, to be tried where there is no such case."""
    case, mode = state.case, state.mode

    def came_to(requirement: str, name: str, verdict: Verdict) -> bool:
        one = found.get((requirement, name))
        return one is not None and one.verdict is verdict

    if mode.speculates and any(came_to(law, control, Verdict.VIOLATES) for law in ("LAW-1", "LAW-2")):
        return Diagnosis("control", f"the same is seen without speculation (mode '{control}')")
    wrong, calm = _places(state)
    if not came_to("LAW-1", case.name, Verdict.VIOLATES) and not wrong:
        why = "tokens follow the law one by one but not jointly: random numbers are shared or used again"
        return Diagnosis("seed", f"{why}; not ruled out: some requests follow another law than others")
    of_drafts, of_cache = drafter_violates(mode, found), cache_violates(mode, found)
    if of_drafts and not any("LAW" in one for one in guilty_parts(mode, found)):
        return Diagnosis("draft", f"{OTHER_LAW} ({mode.drafter})", (*of_drafts, *of_cache))
    if of_cache:
        return Diagnosis("context", f"{OTHER_ENTRIES} ({mode.cache})", of_cache)
    if mode.ensemble < 1:
        return Diagnosis("rule", "its law is not the mixture that the mode declares: another weight, or in other places")
    wrong_plainly = any(came_to(one, mode.name, Verdict.VIOLATES) for one in ("LAW-2", "GREEDY-1"))
    plain_conforms = came_to("LAW-1", mode.name, Verdict.CONFORMS) and not wrong_plainly
    if case.pair and plain_conforms:
        return _with_these_models(state, engines, without)
    if case.setting.name != PLAIN and plain_conforms:
        return Diagnosis("settings", _not_as_asked(state))
    seen = _probed(state, found, engines)
    lost = () if came_to("GREEDY-1", mode.name, Verdict.VIOLATES) else settings_do_not_arrive(found)
    if lost and seen.family in ("settings", "rule", "context", "unknown"):
        at_zero = "it conforms" if came_to("GREEDY-1", mode.name, Verdict.CONFORMS) else "it was not judged"
        return Diagnosis("settings", f"{LOST}; at temperature 0 {at_zero}", (*seen.evidence, *lost))
    alone = len(wrong) == 1 and len(calm) == len(OF_A_ROUND) - 1 and wrong[0] in ALONE
    if alone and seen.family in ("rule", "context", "unknown"):
        why = f"{ALONE[wrong[0]]}; {' and '.join(OF_A_ROUND[one] for one in calm)} follow the law"
        return replace(seen, family="rule", sentence=why)
    return seen


def _places(state: SampledCase) -> tuple[list[str], list[str]]:
    """The places of a round whose tokens do not follow the law, and those of which nothing speaks against it."""
    seen = {one.check: one.log10_e for one in state.ledger.evidence(state.case.name) if one.check in OF_A_ROUND}
    return [one for one in seen if seen[one] >= ALARM], [one for one in seen if seen[one] < CALM]


def _not_as_asked(state: SampledCase) -> str:
    return f"the plain setting conforms, so {' with '.join(state.case.setting.fields)} does not reach verification as asked"


def _with_these_models(state: SampledCase, engines: Engines, without: Mode | None) -> Diagnosis:
    """The cause on another pair of models than the first, where the plain setting conforms: these models, or the setting."""
    case = state.case
    asked = case.asks(state.settings, state.subject)
    plain = SamplingSettings(max_tokens=asked.max_tokens, eos=asked.eos, temperature=state.settings.temperature)
    number = probe_size(state.tokens)
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
    """What probes of a fresh process show, and where that conforms, of a used one."""
    number = probe_size(state.tokens)
    greedy = found.get(("GREEDY-1", state.mode.name))
    at_zero = Verdict.NOT_EXPOSED if greedy is None else greedy.verdict
    with engines.fresh(state.case.pair) as runner:
        seen = look(runner, state, number, at_zero is Verdict.VIOLATES)
    if seen.together.log10_e < ALARM:
        return _not_in_a_fresh_process(state, seen, number, guilty_parts(state.mode, found), engines)
    eta = state.subject.tolerance.eta / asked_by_probes(state).temperature
    if eta > 0 and seen.together.bets_within(0.0) >= ALARM and seen.together.bets_within(eta) < CALM:
        why = f"log-odds that are off by up to {eta:.2g} explain it: so far apart lie lawful ways of computing them"
        return Diagnosis("numerics", why, seen.said)
    if seen.alone.log10_e < CALM and seen.together.log10_e >= CLEAR:
        return Diagnosis("rows", "a request alone conforms, in the company of others it does not", seen.said)
    if seen.alone.log10_e < CALM:
        why = (
            "it shows too faintly for probes; not ruled out: the rule that verifies, a wrong context, other requests beside it"
        )
        return Diagnosis("unknown", why, seen.said + guilty_parts(state.mode, found))
    return _concluded(state, seen, at_zero, found)


def _not_in_a_fresh_process(
    state: SampledCase, seen: Seen, number: int, guilty: tuple[str, ...], engines: Engines
) -> Diagnosis:
    with engines.runner(state.case.pair) as runner:
        asking = Asking(runner, state.mode, state.subject, state.settings)
        used = sample(asking, asked_by_probes(state), number, company=COMPANY).log10_e
    said = (*seen.said, f"used process, batches of {COMPANY}: log10 evidence {used:.1f}")
    if used >= CLEAR and seen.together.log10_e < CALM:
        return Diagnosis("state", "a fresh process conforms: what earlier requests left behind changes later ones", said)
    if state.tokens > MOST:
        return Diagnosis("unknown", f"it took {state.tokens} tokens to show, more than the probes sample", said + guilty)
    why = "it was not clearly seen again: not ruled out are what earlier requests left behind, and a rare fault of any kind"
    return Diagnosis("unknown", why, said + guilty)


def _concluded(state: SampledCase, seen: Seen, at_zero: Verdict, found: Mapping[tuple[str, str], Finding]) -> Diagnosis:
    """The cause of what a fresh process shows in company and alone: what explains all that was seen goes first."""
    zero, guilty = seen.zero, guilty_parts(state.mode, found)
    calm = at_zero is Verdict.CONFORMS or (zero is not None and not zero.wrong)
    leak, against = seen.together.leak
    leans = leak >= LEANS and against < max(CALM, REST * seen.together.log10_e)
    if _settings_are_lost(seen, calm, at_zero) or (seen.outside is None and calm and not leans and not arrives(seen.heats)):
        cut = "the engine fails" if seen.outside is None else f"{seen.outside:.0%} of the tokens are outside the two best"
        why = f"{LOST}; at temperature 0 {_at_zero(at_zero, seen)}"
        return Diagnosis("settings", why, (*seen.said, f"under top-k 2 {cut}"))
    said = (*seen.said, f"the tokens fit {1 - leak:.2f} p + {leak:.2f} q best (log10 evidence against that: {against:.1f})")
    said += guilty
    wrong_parts = any("LAW" in one for one in guilty)
    if guilty and not wrong_parts:
        return Diagnosis("draft", OTHER_LAW, said)
    if leans and (calm or against < CALM):
        rest = "" if against < CALM else ", which does not explain all of it"
        why = f"verification lets the draft's law through{rest}"
        return Diagnosis("rule", f"{why}{_where(state)}{_doubt(state, found)}", said)
    if zero is not None and 2 * zero.drafts > zero.wrong:
        return Diagnosis("rule", "verification lets the draft's tokens through, at temperature 0 too", said)
    if zero is not None and 2 * zero.before > zero.wrong:
        why = "at temperature 0 wrong tokens are the target's choice for the position before"
        return Diagnosis("rule", f"{why}: a row of its laws is read one too early, as of a bonus token{_where(state)}", said)
    if wrong_parts:
        return Diagnosis("rule", f"parts that verify violate their law alone too{_where(state)}", said)
    if zero is not None and zero.wrong and state.mode.draft_law:
        why = "at temperature 0 tokens are wrong too, and not the draft's: the target reads a wrong context (cache, position)"
        return Diagnosis("context", f"{why}; not ruled out: a rule that writes tokens of neither model", said)
    return _what_is_left(state, said, f"at temperature 0 {_at_zero(at_zero, seen)}", calm, arrives(seen.heats))


def _settings_are_lost(seen: Seen, calm: bool, at_zero: Verdict) -> bool:
    """Whether the law does not follow the temperature and nothing else flattens it, or is wrong under top-k 2 alone.

    Where temperature 0 was not judged, a wrong context flattens it too, but no one temperature fits that.
    """
    unknown = at_zero not in (Verdict.CONFORMS, Verdict.VIOLATES)
    if not calm and not unknown:
        return False
    if not follows(seen.heats) and one_heat_fits(seen.heats) and (calm or evidence_against_one_heat(seen.heats) < CALM):
        return True
    return bool(seen.outside) and seen.heats[1].log10_e < CALM


def _what_is_left(state: SampledCase, said: tuple[str, ...], greedily: str, calm: bool, reach: bool) -> Diagnosis:
    """What nothing explains: the rule, where all else is ruled out."""
    beside = "other requests beside it do not matter"
    if calm and reach:
        why = f"{greedily}, settings reach it, and {beside}: what is left is the rule that verifies"
        return Diagnosis("rule", f"{why}{_where(state)}", said)
    left = [
        "the rule that verifies",
        *([] if calm else ["a wrong context"]),
        *([] if reach else ["settings that do not arrive as asked"]),
    ]
    return Diagnosis("unknown", f"{greedily}, and {beside}; not ruled out: {', '.join(left)}{_where(state)}", said)


def _at_zero(at_zero: Verdict, seen: Seen) -> str:
    """What is known of temperature 0, in words."""
    if at_zero is Verdict.CONFORMS:
        return "it conforms"
    if at_zero is not Verdict.VIOLATES:
        return "it was not judged"
    if seen.zero is None:
        return "it violates"
    return "tokens are wrong too" if seen.zero.wrong else "it violates, but not in requests such as these"


def _doubt(state: SampledCase, found: Mapping[tuple[str, str], Finding]) -> str:
    """What looks the same as a leak of the draft's law, unless the drafter was found to be honest."""
    return "" if drafter_is_honest(state.mode, found) else f"; not ruled out: {OTHER_LAW}"


def _where(state: SampledCase) -> str:
    """Which tokens of a round show it most, from the ledger's own checks of each place."""
    places = ("accepted", "residual", "bonus", "after a rejection")
    some = [one for one in state.ledger.evidence(state.case.name) if one.check in places and one.log10_e >= ALARM]
    return f"; it shows most in: {max(some, key=lambda one: one.log_e).check}" if some else ""


def first_of_each_mode(states: Sequence[SampledCase], found: Mapping[tuple[str, str], Finding]) -> list[list[SampledCase]]:
    """Of every mode the first case that violates LAW-1, else the first that violates LAW-2. Those with one cause are together,
    and the first of them is to be probed: a mode that only completes pairs is not, where one of its speculation is."""
    chosen: dict[str, SampledCase] = {}
    for law in ("LAW-1", "LAW-2"):
        for state in states:
            one = found.get((law, state.case.name))
            if one is not None and one.verdict is Verdict.VIOLATES:
                chosen.setdefault(state.mode.name, state)
    together: list[list[SampledCase]] = []
    for state in sorted(chosen.values(), key=lambda state: state.mode.brief):
        alike = [some for some in together if state.mode.brief and some[0].mode.speculation == state.mode.speculation]
        if alike:
            alike[0].append(state)
        else:
            together.append([state])
    return together
