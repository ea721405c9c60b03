"""What triage asks an engine and makes of the answers: samples, the laws that they fit best, and temperature 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from conformance.asking import Asking
from conformance.components import Floats, Ints
from conformance.harness import Runner
from conformance.problems import EngineFailed
from conformance.protocols import Request, Tokens
from conformance.sampled_case import SampledCase
from conformance.sampling import judged_part
from conformance.scoring import copying_laws
from conformance.statistics import Ledger, ModePlan, Plan, TokenBlock
from specref.models import softmax
from specref.processors import SamplingSettings

ALARM, CALM = 4.0, 1.0
"""log10 evidence at which a probe counts as violating, and below which as conforming."""
CLEAR = 8.0
"""log10 evidence at which another probe that conforms is told apart from it: less than 4 may well come and go by chance."""
LEAST, MOST = 400, 1_600
"""Tokens of a probe: about twice what the case took to convict. What took more than that is not seen by probes."""
HEATS = (0.5, 1.0, 1.6)
"""Temperatures asked for, to see whether the law follows."""
NEAR = 1.4
"""A fitted temperature within this factor of the one that was asked for may be that one."""
COMPANY = 8


def probe_size(tokens: int) -> int:
    """Tokens of a probe of what took so many tokens to convict.

    >>> probe_size(100), probe_size(500), probe_size(100_000)
    (400, 1000, 1600)
    """
    return min(MOST, max(LEAST, 2 * tokens))


def evidence_against(tokens: Ints, p: Floats, q: Floats) -> float:
    """log10 evidence of tokens `[n]` against p `[n, V]`, by bets and the omnibus alone."""
    return _evidence(TokenBlock(tokens, p, q), {"bank": 0.7, "omnibus": 0.3})


def _evidence(block: TokenBlock, checks: dict[str, float], eta: float = 0.0) -> float:
    plan = ModePlan("probe", 1.0, checks, max(1, len(block)), eta=eta)
    ledger = Ledger(Plan((plan,)), "probe", 0)
    ledger.observe("probe", block)
    return ledger.look().log10_e


@dataclass(frozen=True)
class Sample:
    """What a probe asked and got: tokens `[n]`, the target's raw logits `[n, V]`, and p, q `[n, V]` as asked for."""

    tokens: Ints
    logits: Floats
    p: Floats
    q: Floats

    @cached_property
    def log10_e(self) -> float:
        """The evidence against p."""
        return evidence_against(self.tokens, self.p, self.q)

    def bets_within(self, eta: float) -> float:
        """log10 evidence of the bets alone against every law whose log-odds are within eta of p's.

        >>> p, q = np.tile([0.5, 0.5], (400, 1)), np.tile([0.9, 0.1], (400, 1))
        >>> tokens = np.repeat([0, 1], [250, 150])                      # as logits that are off by 0.25 would give them
        >>> seen = Sample(tokens, np.log(p), p, q)
        >>> seen.bets_within(0.0) > 4, seen.bets_within(0.3) < 0
        (True, True)
        """
        return _evidence(TokenBlock(self.tokens, self.p, self.q), {"bank": 1.0}, eta)

    def log_likelihood(self, law: Floats) -> float:
        """Of the tokens under a law `[n, V]`."""
        return float(np.log(np.maximum(law[np.arange(len(self.tokens)), self.tokens], 1e-30)).sum())

    @cached_property
    def heat(self) -> float:
        """The temperature at which the target gives these tokens the largest likelihood.

        >>> rows = np.tile(np.log([0.7, 0.2, 0.1]), (300, 1))
        >>> law = softmax(rows)
        >>> tokens = np.repeat([0, 1, 2], [157, 84, 59])                # as at temperature 2
        >>> 1.9 < Sample(tokens, rows, law, law).heat < 2.2             # to within a step of 8%
        True
        """
        return float(FITTED[int(np.argmax(self.likelihood_of_heats))])

    @cached_property
    def likelihood_of_heats(self) -> Floats:
        """The log likelihood at each temperature of `FITTED`."""
        return np.array([self.log_likelihood(softmax(self.logits / heat)) for heat in FITTED])

    @cached_property
    def likelihood_of_leaks(self) -> Floats:
        """The log likelihood of each mixture of p and q in `SHARES`."""
        return np.array([self.log_likelihood((1 - share) * self.p + share * self.q) for share in SHARES])

    @cached_property
    def leak(self) -> tuple[float, float]:
        """The share of q in the likeliest mixture of p and q, and log10 evidence against that mixture."""
        share = float(SHARES[int(np.argmax(self.likelihood_of_leaks))])
        return share, replace(self, p=(1 - share) * self.p + share * self.q).log10_e


FITTED, SHARES = np.geomspace(0.05, 20, 73), np.linspace(0, 1, 21)
"""Temperatures, and shares of the draft's law, that are fitted."""


def follows(samples: Sequence[Sample]) -> bool:
    """Whether the temperature of the tokens rises with the one asked for. samples: at each of `HEATS`.

    Temperatures in proportion to those asked for are then likelier than one temperature for all; either has one number to fit,
    and single fits are too rough to be compared.
    """
    place = np.log(FITTED)
    scaled = [np.interp(place + np.log(heat), place, one.likelihood_of_heats) for one, heat in zip(samples, HEATS, strict=True)]
    return bool(np.sum(scaled, axis=0).max() >= _likelihood_of_heats(samples).max())


def arrives(samples: Sequence[Sample]) -> bool:
    """Whether every fitted temperature is near the one asked for. samples: at each of `HEATS`."""
    return all(1 / NEAR < one.heat / heat < NEAR for one, heat in zip(samples, HEATS, strict=True))


def one_heat_fits(samples: Sequence[Sample]) -> bool:
    """Whether one temperature for all samples is likelier than a leak to the draft at the temperatures that were asked for.

    A leak flattens fitted temperatures too, because the draft's tokens are not the target's; either has one number to fit.
    """
    leaks = np.sum([one.likelihood_of_leaks for one in samples], axis=0)
    return bool(_likelihood_of_heats(samples).max() > leaks.max())


def evidence_against_one_heat(samples: Sequence[Sample]) -> float:
    """log10 evidence against all samples following the target at the one temperature that fits them best."""
    heat = FITTED[int(np.argmax(_likelihood_of_heats(samples)))]
    tokens, logits, q = (np.concatenate([getattr(one, name) for one in samples]) for name in ("tokens", "logits", "q"))
    return evidence_against(tokens, softmax(logits / heat), q)


def _likelihood_of_heats(samples: Sequence[Sample]) -> Floats:
    total: Floats = np.sum([one.likelihood_of_heats for one in samples], axis=0)
    return total


def bare(sampling: SamplingSettings, temperature: float) -> SamplingSettings:
    """The length and a temperature, and nothing else."""
    return SamplingSettings(max_tokens=sampling.max_tokens, temperature=temperature)


def sample(asking: Asking, sampling: SamplingSettings, number: int, *, company: int) -> Sample:
    """About `number` tokens of one setting, `company` requests at a time."""
    requests, outputs = _answers(asking, sampling, number, company)
    laws = asking.laws(requests, outputs)
    return Sample(
        _joined(outputs),
        np.concatenate(asking.logits(requests, outputs)),
        np.concatenate([p for p, _ in laws]),
        np.concatenate([q for _, q in laws]),
    )


def _answers(asking: Asking, sampling: SamplingSettings, number: int, company: int) -> tuple[list[Request], list[Tokens]]:
    requests: list[Request] = []
    outputs: list[Tokens] = []
    while sum(map(len, outputs)) < number and len(requests) < 8 * number:
        group = asking.requests(f"probe {sampling.temperature} {company} {len(requests)}", company, sampling)
        outputs += [judged_part(request, output) for request, output in zip(group, asking.ask(group))]
        requests += group
    return requests, outputs


def _joined(outputs: Sequence[Tokens]) -> Ints:
    return np.array([token for output in outputs for token in output], dtype=np.int64)


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
    edge = np.sort(logits, axis=1)[:, -k] - _clear(asking)
    return float((logits[np.arange(len(logits)), _joined(outputs)] < edge).mean())


def _clear(asking: Asking) -> float:
    """By how much logits must differ to differ for other reasons than numerics."""
    return 4 * asking.subject.tolerance.eta + 1e-6


@dataclass(frozen=True)
class AtZero:
    """Tokens at temperature 0, how many are clearly not the target's first choice, how many of those are the draft's, and how
    many the target's for the position before."""

    tokens: int
    wrong: int
    drafts: int
    before: int

    def __str__(self) -> str:
        wrong = f"temperature 0, one by one: {self.wrong} of {self.tokens} tokens are wrong"
        return f"{wrong}, {self.drafts} are the draft's choice, {self.before} the target's for the position before"


def at_zero(asking: Asking, sampling: SamplingSettings, number: int) -> AtZero | None:
    """Temperature 0 asked one by one, as law probes are; None if the engine fails."""
    try:
        requests, outputs = _answers(asking, bare(sampling, 0.0), number, 1)
    except EngineFailed:
        return None
    each = asking.logits(requests, outputs)
    tokens, logits = _joined(outputs), np.concatenate(each)
    wrong = logits[np.arange(len(tokens)), tokens] < logits.max(axis=1) - _clear(asking)
    if asking.mode.draft_law == "n-gram":
        drafted = np.concatenate(
            [copying_laws(request.prompt, output, rows) for request, output, rows in zip(requests, outputs, each)]
        )
    else:
        drafted = np.concatenate(asking.subject.draft.logits([(one.prompt, output) for one, output in zip(requests, outputs)]))
    drafts = wrong & (drafted.argmax(axis=1) == tokens)
    late = np.concatenate([np.append(-1, rows.argmax(axis=1)[:-1]) for rows in each]) == tokens
    return AtZero(len(tokens), int(wrong.sum()), int(drafts.sum()), int((wrong & late).sum()))


@dataclass(frozen=True)
class Seen:
    """What the probes of a fresh process saw. heats: at each of `HEATS`, nothing else asked for. outside: the share of tokens
    outside top-k 2, None where the engine failed. zero: temperature 0, where it was asked for."""

    together: Sample
    alone: Sample
    heats: Sequence[Sample] = ()
    outside: float | None = 0.0
    zero: AtZero | None = None
    said: tuple[str, ...] = ()


def asked_by_probes(state: SampledCase) -> SamplingSettings:
    """What probes of a case ask for: its own settings in short outputs that do not end early."""
    return replace(state.case.asks(state.settings, state.subject), eos=(), max_tokens=min(24, state.settings.max_tokens))


def look(runner: Runner, state: SampledCase, number: int, greedy_violates: bool) -> Seen:
    """The case in company and one by one; where it violates both ways, the settings, later, and temperature 0 too."""
    sampling = asked_by_probes(state)
    asking = Asking(runner, state.mode, state.subject, state.settings)
    together = sample(asking, sampling, number, company=COMPANY)
    alone = sample(asking, sampling, number, company=1)
    said: tuple[str, ...] = (
        f"fresh process, batches of {COMPANY}: log10 evidence {together.log10_e:.1f} in {len(together.tokens)} tokens",
        f"fresh process, one by one: log10 evidence {alone.log10_e:.1f}",
    )
    if together.log10_e < ALARM or alone.log10_e < CALM:
        return Seen(together, alone, said=said)
    heats = [sample(asking, bare(sampling, heat), number // 2, company=1) for heat in HEATS]
    again = sample(asking, sampling, number // 2, company=COMPANY)
    said += (
        f"later, in batches of {COMPANY}: log10 evidence {again.log10_e:.1f} in {len(again.tokens)} tokens",
        f"temperatures {HEATS} asked for, {tuple(round(one.heat, 2) for one in heats)} fitted",
    )
    zero = at_zero(asking, sampling, number // 2) if greedy_violates else None
    outside = outside_top_k(asking, bare(sampling, 1.0), number // 4)
    said += (str(zero),) if zero else ()
    return Seen(together, alone, heats, outside, zero, said)
