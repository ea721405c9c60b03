"""Requests made so that every kind of end is due, at every place of a round: limits, end ids, stop sequences, min tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from conformance.asking import Asking
from conformance.cases import common_tokens
from conformance.checks.stop import stop_findings
from conformance.findings import Finding, Verdict
from conformance.protocols import Mode, Output, Request
from specref.processors import SamplingSettings

MORE = 4
"""Further groups that are asked of an engine that exposes its rounds, until ends have fallen on every place of a round."""


def ask_for_ends(asking: Asking) -> dict[str, str]:
    """Ask for ends of every kind; `asking.answered` has what they come to. Gives the requirements whose setting is refused."""
    refused: dict[str, str] = {}
    number, k = asking.settings.level.requests, asking.settings.k
    open_ended = replace(asking.greedy, eos=())
    prompts = asking.requests("ends", min(number, 4), open_ended)
    usual = [output.tokens for output in asking.ask(prompts)]
    often = common_tokens(asking.subject)

    def ask(requirement: str, which: Sequence[int], settings: SamplingSettings, what: str) -> None:
        """The prompts numbered `which`, greedily or with other seeds, under some settings."""
        if requirement in refused:
            return
        group = asking.requests(f"ends {what}", len(prompts), settings)
        answer = asking.try_to_ask([replace(group[i], prompt=prompts[i].prompt) for i in which])
        if isinstance(answer, str):
            refused[requirement] = answer

    every = range(len(prompts))
    for place in range(k + 2):
        one = place % len(prompts)
        for settings in (open_ended, replace(open_ended, temperature=1.0)):
            ask("STOP-3", [one], replace(settings, max_tokens=place + 1), f"limit {place}")
        if place + 1 < len(usual[one]):
            token, follower = usual[one][place : place + 2]
            unlikely = often[-1]
            ask("STOP-1", [one], replace(open_ended, eos=(unlikely, token)), f"end {place}")
            ask("STOP-2", [one], replace(open_ended, stop_sequences=((token, follower),)), f"sequence {place}")
    for heat in (0.0, 1.0):
        waits = replace(open_ended, temperature=heat, eos=tuple(often[:3]), min_tokens=min(5, asking.longest))
        ask("STOP-4", every, waits, f"wait {heat}")
    ask("STOP-1", every, replace(open_ended, temperature=1.0, eos=tuple(often[:3])), "ends")
    if asking.mode.exposes_rounds and asking.mode.speculates:
        for group in range(MORE):
            if not _unseen(asking.mode, asking.answered, k):
                break
            sampled = replace(open_ended, temperature=1.0)
            ask("STOP-1", every, replace(sampled, eos=tuple(often[group : group + 4])), f"more ends {group}")
            ask("STOP-2", every, replace(sampled, stop_sequences=tuple((t,) for t in often[:4])), f"more sequences {group}")
            ask("STOP-3", every, replace(sampled, max_tokens=k + 1 + group), f"more limits {group}")
    return refused


def ends_findings(
    mode: Mode, answered: Sequence[tuple[Request, Output]], planned: int, k: int, texts: Sequence[str]
) -> list[Finding]:
    """STOP-1 to STOP-5 over all that a mode answered. Which places of a round no end fell on is said, if rounds are exposed.

    texts: of the tokens; outputs that end with the text of a stop sequence in other tokens are left out.
    """
    known = [pair for pair in answered if not ended_by_text(*pair, texts)]
    requests, outputs = zip(*known, strict=True)
    findings = stop_findings(mode.name, requests, outputs, planned)
    if not (mode.exposes_rounds and mode.speculates):
        return findings
    unseen = _unseen(mode, known, k)
    return [
        replace(one, summary=f"{one.summary}; {unseen[one.requirement]}") if one.requirement in unseen else one
        for one in findings
    ]


def ended_by_text(request: Request, output: Output, texts: Sequence[str]) -> bool:
    """Whether an output ends with the text of a stop sequence that is spelled with other tokens: an engine that stops at
    strings may end there.

    >>> request = Request((0,), SamplingSettings(max_tokens=9, stop_sequences=((1,),)), seed=0)
    >>> ended_by_text(request, Output((0, 2)), ["x", "b", "ab"])
    True
    """
    stops = request.settings.stops()
    if not stops.sequences or stops.reason(stops.cut((), output.tokens)) is not None:
        return False
    written, last = "".join(texts[token] for token in output.tokens), len(texts[output.tokens[-1]])
    wanted = ("".join(texts[token] for token in sequence) for sequence in stops.sequences)
    return any(written.rfind(text) >= 0 and written.rfind(text) + len(text) > len(written) - last for text in wanted)


def _unseen(mode: Mode, answered: Sequence[tuple[Request, Output]], k: int) -> dict[str, str]:
    """Of each kind of end that was due: on which places of a round none fell, in words."""
    requests, outputs = zip(*answered, strict=True)
    strict = stop_findings(mode.name, requests, outputs, 1, k=k)
    return {
        one.requirement: one.summary.partition(", but ")[2]
        for one in strict
        if one.verdict is Verdict.INCONCLUSIVE and one.n and ", but " in one.summary
    }
