"""The law that a request asked for, along an output: the target's logits seen through the request's own processors.

Every position has its own history, so penalties and bans are computed again at each, with the drafted tokens before it. Where a
setting truncates, the engine's kept set may differ from ours by a token at the edge: tokens are then judged by our law
conditional on what every logit within the tolerance keeps, and one that no such engine could emit is bet on by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from conformance.protocols import Mode, Output, Tokens
from conformance.scoring import copying_laws
from conformance.statistics.evidence import Floats, WrongUse
from conformance.statistics.kept_sets import Filter, MinP, Temperature, TopK, TopP
from conformance.statistics.tolerance import Tolerance
from conformance.statistics.truncation import TruncationBets
from specref.models import softmax
from specref.processors import Processor, SamplingSettings
from specref.processors import truncation as reference

LEAST_ETA = 1e-6
"""Logits of a float32 sampler are never nearer to ours: its cumulative sums alone are rounded by this much."""


@dataclass(frozen=True)
class Asked:
    """The laws of n tokens: p and q `[n, V]`, and bets on the edge of what was kept where the setting forbids tokens."""

    p: Floats
    q: Floats
    edges: TruncationBets | None = None


def as_declared(mode: Mode, p: Floats, q: Floats, drafted: Sequence[bool]) -> Floats:
    """The laws `[n, V]` that a mode declares: p, or the mixture of its ensemble where a token was `drafted`.

    Whether it is, is known before the token is drawn, so that the place has one law.

    >>> mode = Mode("mix", {"k": 1}, exposes_rounds=True, lossy="a mixture", ensemble=0.5)
    >>> as_declared(mode, np.array([[1.0, 0.0]] * 2), np.array([[0.0, 1.0]] * 2), [True, False]).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    if mode.ensemble == 1:
        return p
    return np.where(np.array(drafted, dtype=bool)[:, None], mode.ensemble * p + (1 - mode.ensemble) * q, p)


def drafted_places(output: Output, length: int) -> list[bool]:
    """Whether a draft stood at each of the first `length` places of an output; without rounds, everywhere.

    >>> from conformance.protocols import RecordedRound
    >>> drafted_places(Output((5, 9, 4), (RecordedRound(0, (5, 6), 1, (5, 9)), RecordedRound(2, (), 0, (4,)))), 3)
    [True, True, False]
    """
    if output.rounds is None:
        return [True] * length
    return [place < len(one.drafted) for one in output.rounds for place in range(len(one.emitted))][:length]


def mixture_is_known(mode: Mode, settings: SamplingSettings) -> bool:
    """Whether q is known to be what a lossy mode mixes in: nothing truncates it, and unless the mode declares that its drafts
    are drawn under the request's own settings, these ask for nothing.

    >>> mode = Mode("mix", {"k": 1}, lossy="a mixture", ensemble=0.5)
    >>> [mixture_is_known(mode, SamplingSettings(max_tokens=4, temperature=heat)) for heat in (1.0, 0.5)]
    [True, False]
    """
    return mode.ensemble < 1 and (not settings.processors() or (mode.exact_draft and not forbids(settings)))


def forbids(settings: SamplingSettings) -> bool:
    """Whether the settings leave some token without any probability.

    >>> forbids(SamplingSettings(max_tokens=4, top_k=3)), forbids(SamplingSettings(max_tokens=4, presence_penalty=1.0))
    (True, False)
    """
    bans = bool(settings.bad_words) or bool(settings.min_tokens and settings.eos)
    return bans or settings.top_k is not None or settings.top_p < 1 or settings.min_p > 0


def asked_laws(
    settings: SamplingSettings,
    order: Sequence[str],
    sequences: Sequence[tuple[Tokens, Tokens]],
    target: Sequence[Floats],
    draft: Sequence[Floats] | None,
    tolerance: Tolerance,
    planned: int,
) -> Asked:
    """The laws of all tokens of some (prompt, output) pairs, one after the other.

    order: in which processors apply. target, draft: raw logits `[len(output), V]` along each output; without a draft, q is that
    of a copied n-gram. planned: tokens of the whole case. Raises WrongUse for an order that the kept sets cannot follow.

    >>> rows = [np.log([[0.4, 0.3, 0.2, 0.1]])]
    >>> settings, exact = SamplingSettings(max_tokens=1, top_k=2), Tolerance(0.0, 0.0, 0.0, 10_000)
    >>> from specref.processors import ORDER
    >>> asked_laws(settings, ORDER, [((7,), (0,))], rows, rows, exact, planned=100).p.round(3)
    array([[0.571, 0.429, 0.   , 0.   ]])
    """
    before, filters = split(settings.processors(order))
    heat = float(settings.temperature)
    rows = [processed(logits, before, *pair) for logits, pair in zip(target, sequences, strict=True)]
    p = [softmax(some / heat) for some in rows]
    if draft is None:
        q = np.concatenate([copying_laws(*pair, some) for pair, some in zip(sequences, p)])
    else:
        drafted = [processed(logits, before, *pair) for logits, pair in zip(draft, sequences, strict=True)]
        q = softmax(np.concatenate(drafted) / heat)
    if not forbids(settings):
        return Asked(np.concatenate(p), q)
    eta = max(tolerance.eta, LEAST_ETA) * max(settings.repetition_penalty, 1 / settings.repetition_penalty)
    edges = TruncationBets(np.concatenate(rows), q, filters, eta, planned)
    law = edges.sets.core_law()
    kept = np.where(edges.sets.core, q, 0)
    mass = kept.sum(axis=1, keepdims=True)
    tokens = np.array([token for _, output in sequences for token in output], dtype=np.int64)
    return Asked(*_only_the_core(tokens, law, np.divide(kept, mass, out=law.copy(), where=mass > 1e-12)), edges)


def _only_the_core(tokens: np.ndarray, p: Floats, q: Floats) -> tuple[Floats, Floats]:
    """A token outside the core says nothing here: its law is made certain of it, so that no bet wins or loses."""
    rows = np.flatnonzero(p[np.arange(len(tokens)), tokens] == 0)
    for law in (p, q):
        law[rows] = 0
        law[rows, tokens[rows]] = 1
    return p, q


def split(processors: Sequence[Processor]) -> tuple[list[Processor], list[Filter]]:
    """Processors that look at the history, and then the filters as the kept sets know them. Raises WrongUse if they
    alternate.
    """
    before: list[Processor] = []
    filters: list[Filter] = []
    for one in processors:
        known = _filter(one)
        if known is not None:
            filters.append(known)
        elif filters:
            raise WrongUse(f"this engine applies {type(one).__name__} after temperature or a truncation, which is not judged")
        else:
            before.append(one)
    return before, filters


def _filter(one: Processor) -> Filter | None:
    if isinstance(one, reference.Temperature):
        return Temperature(float(one.temperature))
    if isinstance(one, reference.TopK):
        return TopK(one.k)
    if isinstance(one, reference.TopP):
        return TopP(float(one.p))
    return MinP(float(one.m)) if isinstance(one, reference.MinP) else None


def processed(rows: Floats, processors: Sequence[Processor], prompt: Tokens, output: Tokens) -> Floats:
    """Raw logits `[n, V]` along an output, each row seen through the processors with its own history.

    >>> from specref.processors import PresencePenalty
    >>> processed(np.zeros((2, 2)), [PresencePenalty(1.0)], (0,), (1, 0)).tolist()
    [[0.0, 0.0], [0.0, -1.0]]
    """
    if not processors:
        return rows
    done = np.empty_like(rows)
    for place, row in enumerate(rows):
        for processor in processors:
            row = processor(row, prompt, output[:place])
        done[place] = row
    return done
