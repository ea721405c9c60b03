"""The requirement families of a mode, beside LAW and GREEDY: what is asked, and which check reads the answers.

Each group asks for its requests and gives its findings. What an engine refuses is not exposed, with its own message; what it
does not promise is not asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy.special import log_softmax

from conformance.asked_law import as_declared, drafted_places, mixture_is_known
from conformance.asking import Asking
from conformance.cases import common_tokens
from conformance.checks.accept import counts_finding, metrics_finding
from conformance.checks.batch import row_law_finding
from conformance.checks.logprob import logprob_findings, tolerance_of
from conformance.checks.loud import Probe, Tried, declared_finding, loud_findings, probes
from conformance.checks.places import not_exposed, not_promised
from conformance.checks.seed import independence_finding, repeat_findings
from conformance.company import company
from conformance.findings import Finding, Verdict
from conformance.grammar_audit import grammar_findings
from conformance.levels import AuditSettings
from conformance.problems import EngineFailed
from conformance.protocols import Mode, Output, Request
from conformance.sampling import NonsenseOutput, judged_part
from conformance.statistics.evidence import WrongUse
from conformance.stop_requests import ask_for_ends
from specref.models import BadModel
from specref.processors import SamplingSettings

ROWS = 8
"""Requests of a batch."""
HEATS = (1.6, 0.4, 1.2, 0.6, 1.8, 0.3, 1.0, 0.5)
"""Temperatures of a batch's rows: settings read from another row show."""
BANS = ("logit_bias", "bad_words", "min_tokens")
"""Settings that a lossy mode obeys too."""
CHAIN_RULES = ("ratio", "block")
"""Rules of modes that draft chains, so that a draft has at most k tokens."""
MOST_CRASHES = 2
"""Groups of a mode that may crash before the rest is left out."""
STATISTICAL = 6
"""Findings of a mode that share its part of the false-alarm rate."""
WORK_OF_A_FAMILY = 40
"""About how many tokens, in the progress display, each request of a family's groups comes to."""


def stop(asking: Asking, alpha: float) -> list[Finding]:
    """Requests for every kind of end. They are judged with all others; here only what was refused is found."""
    refused = ask_for_ends(asking)
    return [Finding(requirement, asking.mode.name, Verdict.NOT_EXPOSED, message) for requirement, message in refused.items()]


def loud(asking: Asking, alpha: float) -> list[Finding]:
    """LOUD-1, one probe per setting, and LOUD-2."""
    often = common_tokens(asking.subject)
    tried = []
    for probe in probes(min(8, asking.longest), often[:3], often[:2]):
        if asking.mode.lossy and probe.setting not in BANS:
            continue
        tried.append(_tried(asking, probe))
    planned = len(tried)
    margin = 4 * asking.subject.tolerance.eta + 1e-9
    return [loud_findings(asking.mode.name, tried, margin=margin, planned=planned), declared_finding(asking.mode)]


def _tried(asking: Asking, probe: Probe) -> Tried:
    requests = asking.requests(f"probe {probe.setting}", min(4, asking.settings.level.requests), probe.settings)
    try:
        answer = asking.try_to_ask(requests)
    except EngineFailed as failed:
        if not _ends_it_again(asking, requests, failed):
            raise
        return Tried(probe, end=str(failed))
    if isinstance(answer, str):
        return Tried(probe, refusal=answer)
    outputs = [Output(judged_part(request, output)) for request, output in zip(requests, answer)]
    return Tried(probe, requests, outputs, asking.logits(requests, [output.tokens for output in outputs]))


def _ends_it_again(asking: Asking, requests: Sequence[Request], failed: EngineFailed) -> bool:
    """Whether a setting ends the engine: it answers the same requests without the setting, and ends at them once more."""
    if failed.kind != "crash":
        return False
    asking.ask([replace(one, settings=SamplingSettings(max_tokens=one.settings.max_tokens)) for one in requests])
    try:
        asking.try_to_ask(requests)
    except EngineFailed as again:
        return again.kind == "crash"
    return False


def seed(asking: Asking, alpha: float) -> list[Finding]:
    """SEED-1 and SEED-2: the same sampled requests twice, and in other company."""
    mode, promised = asking.mode, [name for name in ("SEED-1", "SEED-2") if name in asking.mode.promises]
    if not promised:
        return repeat_findings(mode.name, [], [], [], 0, promised=False)
    requests = asking.requests("seed", asking.settings.level.requests, asking.plain)
    others = asking.requests("seed, company", len(requests), asking.plain)
    first, again = asking.ask(requests), asking.ask(requests)
    among = asking.ask([one for pair in zip(others, reversed(requests)) for one in pair])[1::2][::-1]
    found = repeat_findings(mode.name, first, again, among, len(requests), promised=True)
    return [one if one.requirement in promised else not_promised(one.requirement, mode.name, "this") for one in found]


def sampled(asking: Asking, alpha: float) -> list[Finding]:
    """Batches of eight sampled requests, each row with its own temperature: BATCH-1, SEED-3, LOGPROB, ACCEPT-3."""
    mode = asking.mode
    heats: tuple[float, ...] = HEATS
    before = asking.runner.metrics(mode) if mode.speculates else None
    made: list[tuple[Request, Output]] = []
    for number in range(asking.settings.level.requests):
        requests = _batch(asking, number, heats)
        answer = asking.try_to_ask(requests)
        if isinstance(answer, str):  # one set of settings for the whole batch
            heats = (1.0,) * ROWS
            requests = _batch(asking, number, heats)
            answer = asking.ask(requests)
        made += zip(requests, answer)
    after = asking.runner.metrics(mode) if mode.speculates else None
    requests, outputs = [request for request, _ in made], [output for _, output in made]
    found = _rows(asking, requests, outputs, alpha) + _logprobs(asking, requests, outputs)
    return found + ([_counts(asking, before, after, outputs)] if mode.speculates else [])


def _batch(asking: Asking, number: int, heats: Sequence[float]) -> list[Request]:
    """Eight requests after one prompt, which the next batch has too; their outputs do not end early."""
    group = asking.requests(f"batch {number}", ROWS, replace(asking.plain, eos=()))
    prompt = asking.requests(f"prompt of batches {number // 2}", 1, asking.plain)[0].prompt
    return [replace(one, prompt=prompt, settings=replace(one.settings, temperature=heat)) for one, heat in zip(group, heats)]


def _rows(asking: Asking, requests: Sequence[Request], outputs: Sequence[Output], alpha: float) -> list[Finding]:
    mode = asking.mode
    if mode.lossy and not all(mixture_is_known(mode, request.settings) for request in requests):
        return [not_exposed(requirement, mode.name, "the law of its output") for requirement in ("BATCH-1", "SEED-3")]
    tokens = [judged_part(request, output) for request, output in zip(requests, outputs)]
    drafted = [drafted_places(output, len(part)) for output, part in zip(outputs, tokens)]
    laws = [(as_declared(mode, p, q, some), q) for (p, q), some in zip(asking.laws(requests, tokens), drafted)]
    planned, row = len(requests) * asking.longest, np.arange(len(requests)) % ROWS
    each, judge = alpha / STATISTICAL, asking.settings.seed
    independent = independence_finding(
        mode.name,
        tokens,
        [p for p, _ in laws],
        planned,
        prompts=[request.prompt for request in requests],
        rows=ROWS,
        alpha=each,
        seed=judge,
    )
    return [row_law_finding(mode.name, tokens, laws, row, planned, alpha=each, seed=judge), independent]


def _logprobs(asking: Asking, requests: Sequence[Request], outputs: Sequence[Output]) -> list[Finding]:
    mode = asking.mode
    promised = "LOGPROB-1" in mode.promises or "LOGPROB-2" in mode.promises
    if promised and mode.lossy:
        return [not_exposed(name, mode.name, "the law of its output") for name in ("LOGPROB-1", "LOGPROB-2")]
    returned = [output.logprobs for output in outputs if output.logprobs is not None]
    if not promised or len(returned) < len(outputs) or not mode.logprobs:
        return logprob_findings(mode.name, outputs, None, [], 0, promised=promised, tolerance=0.0)
    tokens = [output.tokens for output in outputs]
    if mode.logprobs == "raw":
        laws = [log_softmax(rows, axis=1) for rows in asking.logits(requests, tokens)]
    else:
        with np.errstate(divide="ignore"):
            laws = [np.log(p) for p, _ in asking.laws(requests, tokens)]
    tolerance = tolerance_of(asking.subject.tolerance.eta, mode.logprobs, requests)
    planned = sum(map(len, tokens))
    return logprob_findings(mode.name, outputs, returned, laws, planned, promised=True, tolerance=tolerance)


def _counts(
    asking: Asking, before: Mapping[str, float] | None, after: Mapping[str, float] | None, outputs: Sequence[Output]
) -> Finding:
    mode = asking.mode
    if "ACCEPT-3" not in mode.promises:
        return not_promised("ACCEPT-3", mode.name, "its metrics")
    reported = None
    if after is not None:
        reported = {name: value - (before or {}).get(name, 0.0) for name, value in after.items()}
    if mode.exposes_rounds:
        return metrics_finding(mode.name, reported, outputs, planned=1)
    lengths, chains = [len(output.tokens) for output in outputs], mode.rule in CHAIN_RULES
    return counts_finding(mode.name, reported, lengths, asking.settings.k, chains=chains)


def grammar(asking: Asking, alpha: float) -> list[Finding]:
    """GRAMMAR-3 and GRAMMAR-4, of a mode that offers grammars."""
    return grammar_findings(asking, alpha / STATISTICAL)


Group = Callable[[Asking, float], list[Finding]]
GROUPS: tuple[tuple[tuple[str, ...], Group], ...] = (
    (("BATCH-2", "BATCH-3"), company),
    (("BATCH-1", "SEED-3", "LOGPROB-1", "LOGPROB-2", "ACCEPT-3"), sampled),
    (("SEED-1", "SEED-2"), seed),
    (("LOUD-1", "LOUD-2"), loud),
    (("STOP-1", "STOP-2", "STOP-3", "STOP-4", "STOP-5"), stop),
    (("GRAMMAR-3", "GRAMMAR-4"), grammar),
)
"""What is asked of every mode, and the requirements that come of it; last what an engine is likely to refuse."""


def expected_of(mode: Mode) -> list[str]:
    """The requirements that the families judge in a mode.

    >>> "ACCEPT-3" in expected_of(Mode("off")), "GRAMMAR-3" in expected_of(Mode("off"))
    (False, False)
    """
    return [one for requirements, _ in GROUPS for one in requirements if _concerns(one, mode)]


def _concerns(requirement: str, mode: Mode) -> bool:
    """Counts of speculation are of modes that speculate, grammars of modes that offer them."""
    if requirement.startswith("GRAMMAR"):
        return "GRAMMAR-3" in mode.promises
    return mode.speculates or requirement != "ACCEPT-3"


def family_findings(asking: Asking, alpha: float) -> Iterator[Finding | EngineFailed]:
    """Every group in turn. A crash is given as it is, at the end, after the errors that it left; after `MOST_CRASHES` (or a
    hang) nothing more is asked. A mode that is refused as a whole is not exposed."""
    refused = _refusal(asking)
    if refused is not None:
        yield from _all(expected_of(asking.mode), asking.mode, Verdict.NOT_EXPOSED, refused)
        return
    failed: list[EngineFailed] = []
    for requirements, group in GROUPS:
        if len(failed) >= MOST_CRASHES or any(one.kind != "crash" for one in failed):
            why = f"not judged, because the engine had failed before ({failed[-1].kind}: {failed[-1]})"
            yield from _all(requirements, asking.mode, Verdict.ERROR, why)
            continue
        try:
            yield from group(asking, alpha)
        except EngineFailed as problem:
            if problem.kind == "unsupported":
                yield from _all(requirements, asking.mode, Verdict.NOT_EXPOSED, str(problem))
                continue
            yield from _all(requirements, asking.mode, Verdict.ERROR, f"{problem.kind}: {problem}")
            failed.append(problem)
        except NonsenseOutput as nonsense:
            yield from _all(requirements, asking.mode, Verdict.ERROR, f"nonsense: {nonsense}")
        except (WrongUse, BadModel) as refused:
            yield from _all(requirements, asking.mode, Verdict.INCONCLUSIVE, f"cannot be judged: {refused}")
    yield from failed[-1:]


def _refusal(asking: Asking) -> str | None:
    """Why the engine refuses a mode whatever is asked in it, or None. A crash is left to the first group."""
    try:
        answer = asking.try_to_ask(asking.requests("tried", 1, asking.plain))
    except (EngineFailed, NonsenseOutput):
        return None
    return answer if isinstance(answer, str) else None


def _all(requirements: Sequence[str], mode: Mode, verdict: Verdict, why: str) -> Iterator[Finding]:
    for requirement in requirements:
        if _concerns(requirement, mode):
            yield Finding(requirement, mode.name, verdict, why)


def asked_modes(modes: Sequence[Mode], settings: AuditSettings) -> list[Mode]:
    """The modes that the family checks ask, none of them brief: at the lowest level the first of each rule and law of drafts.

    >>> from conformance.levels import LEVELS
    >>> modes = [Mode("off"), Mode("chain", {"k": 2}, "ratio"), Mode("longer chain", {"k": 8}, "ratio")]
    >>> [mode.name for mode in asked_modes(modes, AuditSettings(LEVELS["smoke"]))]
    ['off', 'chain']
    """
    some = [mode for mode in modes if not mode.brief]
    first: dict[tuple[bool, str, str, bool], Mode] = {}
    for mode in some:
        if not mode.lossy:
            first.setdefault((mode.speculates, mode.rule, mode.draft_law, bool(mode.speculation.get("hostile"))), mode)
    return some if settings.level.cases != "plain" else list(first.values())


def control_of(mode: Mode, modes: Sequence[Mode]) -> Mode | None:
    """The mode without speculation that has the same options, else the engine's first without any.

    >>> static = {"cache": "static"}
    >>> modes = [Mode("off"), Mode("off, static", options=static), Mode("fast", {"k": 2}, options=static)]
    >>> control_of(modes[2], modes).name
    'off, static'
    """
    plain = [one for one in modes if not one.speculates]
    return next((one for one in plain if one.options == mode.options), plain[0] if plain else None)
