"""STOP: every output ends where its request says, wherever in a round that falls.

A round emits several tokens at once, and the end may fall on any of them: an accepted draft, the token after a rejection, the
bonus. Where rounds are exposed, the verdict is `conforms` only once the end has fallen on each of these.
"""

from __future__ import annotations

from collections.abc import Sequence

from conformance.checks.places import Place, judged, nonsense
from conformance.findings import Finding
from conformance.protocols import Output, Request
from conformance.sampling import segments
from conformance.statistics import Segment
from specref.stopping import Stops

PLACES = {Segment.ACCEPTED: "an accepted draft", Segment.RESIDUAL: "the token after a rejection", Segment.BONUS: "the bonus"}

CLAIMS = {
    "STOP-1": "nothing follows an end-of-sequence id",
    "STOP-2": "nothing follows a stop sequence, also one that began in an earlier round",
    "STOP-3": "no output is longer than its limit",
    "STOP-4": "no output ends, and no end-of-sequence id is emitted, before min_tokens",
    "STOP-5": "every output goes on until something ends it",
}
BY_REASON = {"eos": "STOP-1", "stop_sequence": "STOP-2", "length": "STOP-3"}


def stop_findings(
    mode: str, requests: Sequence[Request], outputs: Sequence[Output], planned: int, *, k: int = 0
) -> list[Finding]:
    """STOP-1 to STOP-5. n of each: the outputs in which that kind of end was due; planned: at least that many of each kind.

    k: drafts per round of a mode that exposes its rounds; then the end must have fallen on a draft, a replacement and a bonus.

    >>> from specref.processors import SamplingSettings
    >>> request = Request((1,), SamplingSettings(max_tokens=4, eos=(6, 7)), seed=0)
    >>> stop_findings("m", [request], [Output((5, 7, 3))], planned=1)[0].violations
    ('request 0, position 2: expected the end (end-of-sequence id 7, number 2 of 2), found 1 more, token 3',)
    """
    if len(outputs) != len(requests):
        problem = f"{len(outputs)} outputs for {len(requests)} requests"
        return [nonsense(requirement, mode, problem) for requirement in CLAIMS]
    places: dict[str, list[Place]] = {requirement: [] for requirement in CLAIMS}
    due = dict.fromkeys(CLAIMS, 0)
    fell: dict[str, set[Segment]] = {requirement: set() for requirement in CLAIMS}
    for number, (request, output) in enumerate(zip(requests, outputs)):
        stops = request.settings.stops()
        end = stops.cut((), output.tokens)
        reason = stops.reason(end)
        where = f"request {number}, position {len(end)}"
        due["STOP-5"] += 1
        if reason is not None:
            requirement = BY_REASON[reason]
            due[requirement] += 1
            if output.rounds is not None and len(end) == len(output.tokens):
                fell[requirement] |= {Segment(place) for place, _ in [list(segments(output.rounds))[len(end) - 1]]}
            if len(output.tokens) > len(end):
                after = f"the end ({_ending(stops, end, reason)})"
                more = f"{len(output.tokens) - len(end)} more, token {output.tokens[len(end)]}"
                places[requirement].append(Place(where, after, more))
        else:
            places["STOP-5"].append(Place(where, "more tokens", "the end, for no reason that the request gives"))
        if stops.min_tokens:
            due["STOP-4"] += 1
            places["STOP-4"] += _too_early(number, stops, output)
    return [
        judged(
            requirement,
            mode,
            places[requirement],
            n=due[requirement],
            planned=planned,
            unit="outputs",
            claim=claim,
            missing=_not_seen(fell[requirement]) if k and requirement in BY_REASON.values() else "",
        )
        for requirement, claim in CLAIMS.items()
    ]


def _too_early(number: int, stops: Stops, output: Output) -> list[Place]:
    early = [i for i, token in enumerate(output.tokens[: stops.min_tokens - 1]) if token in stops.eos]
    if early:
        where = f"request {number}, position {early[0]}"
        return [Place(where, f"no end-of-sequence id before token {stops.min_tokens}", f"token {output.tokens[early[0]]}")]
    if len(output.tokens) < stops.min_tokens:
        where = f"request {number}, position {len(output.tokens)}"
        return [Place(where, f"at least {stops.min_tokens} tokens", f"the end after {len(output.tokens)}")]
    return []


def _ending(stops: Stops, end: tuple[int, ...], reason: str) -> str:
    if reason == "eos":
        return f"end-of-sequence id {end[-1]}, number {stops.eos.index(end[-1]) + 1} of {len(stops.eos)}"
    if reason == "stop_sequence":
        return f"stop sequence {next(one for one in stops.sequences if end[-len(one) :] == one)}"
    return f"max_tokens {stops.max_tokens}"


def _not_seen(fell: set[Segment]) -> str:
    missing = [name for place, name in PLACES.items() if place not in fell]
    return f"no end fell on {' or '.join(missing)}" if missing else ""
