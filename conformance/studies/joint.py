"""A simulated speculative engine with faults that show only in the joint law of several tokens.

Markov target and draft over 16 tokens, k = 3 drafts per round, 8 tokens per request, batches of 8 requests. Each fault
changes one line of the correct engine. All rounds of all requests are simulated side by side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from conformance.statistics.blocks import Segment, TokenBlock
from conformance.statistics.evidence import Floats, Ints
from conformance.studies.instances import softmax

V, K, LENGTH, BATCH = 16, 3, 8, 8

FAULTS = (
    "leak 3%",
    "resample from p",
    "same coin",
    "u shared over positions",
    "noise reused every round",
    "u shared over rows",
    "bonus from the wrong position",
    "residual with q of the position before",
    "stale cache after a rejection",
    "draft at T=.7, q at T=1",
    "argmax draft, soft q",
)


def _models() -> tuple[Floats, Floats]:
    """The Markov laws ``[V, V]`` of target and draft: row = previous token; token 0 stands before the first."""
    rng = np.random.default_rng(11)
    logits = rng.normal(0, 1.8, (V, V))
    target = np.array([softmax(row) for row in logits])
    draft = np.array([softmax(row) for row in logits + rng.normal(0, 0.9, (V, V))])
    return target, draft


TARGET, DRAFT = _models()
RESIDUAL = np.maximum(TARGET - DRAFT, 0) / np.maximum(TARGET - DRAFT, 0).sum(axis=1, keepdims=True)
COOLED = np.array([softmax(np.log(row) / 0.7) for row in DRAFT])


@dataclass
class Run:
    """Tokens ``[B, LENGTH]`` with segment, slot and round of each."""

    tokens: Ints
    segment: Ints
    slot: Ints
    round: Ints

    def block(self, first: int = 0, stop: int | None = None) -> TokenBlock:
        """Requests ``first`` to ``stop`` as a block of tokens."""
        part = slice(first, stop)
        tokens = self.tokens[part]
        size = len(tokens)
        before = np.concatenate([np.zeros((size, 1), np.int64), tokens[:, :-1]], axis=1).ravel()
        request = np.repeat(np.arange(first, first + size), LENGTH)
        return TokenBlock(
            tokens.ravel(),
            TARGET[before],
            DRAFT[before],
            request=request,
            segment=self.segment[part].ravel(),
            slot=self.slot[part].ravel(),
            row=request % BATCH,
            step=(request // BATCH) * LENGTH + self.round[part].ravel(),
        )


def simulate(requests: int, fault: str, rng: np.random.Generator) -> Run:
    """Run the engine on ``requests`` requests with one fault ("" for the correct engine)."""
    shape = (requests, LENGTH + K + 1)
    out = Run(*(np.zeros(shape, np.int64) for _ in range(4)))
    filled = np.zeros(requests, np.int64)
    context = np.zeros(requests, np.int64)
    fixed = rng.random((requests, K + 1))
    for number in range(LENGTH):
        active = np.flatnonzero(filled < LENGTH)
        if not len(active):
            break
        uniforms, last = rng.random((len(active), K)), rng.random(len(active))
        if fault == "u shared over positions":
            uniforms[:] = uniforms[:, :1]
        elif fault == "noise reused every round":
            uniforms, last = fixed[active, :K], fixed[active, K]
        elif fault == "u shared over rows":
            _, batch = np.unique(active // BATCH, return_inverse=True)
            uniforms = rng.random((batch.max() + 1, K))[batch]
        _one_round(out, active, filled, context, uniforms, last, number, fault, rng)
    return Run(*(table[:, :LENGTH] for table in (out.tokens, out.segment, out.slot, out.round)))


def _one_round(
    out: Run,
    active: Ints,
    filled: Ints,
    context: Ints,
    uniforms: Floats,
    last: Floats,
    number: int,
    fault: str,
    rng: np.random.Generator,
) -> None:
    """Draft, verify and emit for all active requests; ``filled`` and ``context`` are updated in place."""
    drafted_from = COOLED if fault == "draft at T=.7, q at T=1" else DRAFT
    alive = np.ones(len(active), bool)
    here = context[active].copy()  # the context of the token in turn, and the one before it
    before = here.copy()
    for i in range(K):
        if fault == "argmax draft, soft q":
            drafted = DRAFT[here].argmax(axis=1)
        else:
            drafted = _draw(drafted_from[here], rng.random(len(active)))
        accepted = uniforms[:, i] < TARGET[here, drafted] / DRAFT[here, drafted]
        fails = np.flatnonzero(alive & ~accepted)
        alive &= accepted
        kept = active[alive]
        _emit(out, kept, filled, drafted[alive], Segment.ACCEPTED, i, number)
        coins = uniforms[fails, i] if fault == "same coin" else last[fails]
        replaced = _draw(_residual(here[fails], before[fails], fault), coins)
        if fault == "leak 3%":
            replaced = np.where(rng.random(len(fails)) < 0.03, drafted[fails], replaced)
        _emit(out, active[fails], filled, replaced, Segment.RESIDUAL, i, number)
        context[active[fails]] = drafted[fails] if fault == "stale cache after a rejection" else replaced
        before = np.where(alive, here, before)
        here = np.where(alive, drafted, here)
    seen = before if fault == "bonus from the wrong position" else here
    bonus = _draw(TARGET[seen[alive]], last[alive])
    _emit(out, active[alive], filled, bonus, Segment.BONUS, K, number)
    context[active[alive]] = bonus


def _residual(here: Ints, before: Ints, fault: str) -> Floats:
    """The law of the token that replaces a rejected draft, ``[n, V]``."""
    if fault == "resample from p":
        return TARGET[here]
    if fault == "residual with q of the position before":
        left = np.maximum(TARGET[here] - DRAFT[before], 0) + 1e-300
        law: Floats = left / left.sum(axis=1, keepdims=True)
        return law
    normalised: Floats = RESIDUAL[here]
    return normalised


def _emit(out: Run, rows: Ints, filled: Ints, tokens: Ints, segment: Segment, slot: int, number: int) -> None:
    at = rows, filled[rows]
    out.tokens[at], out.segment[at], out.slot[at], out.round[at] = tokens, segment, slot, number
    filled[rows] += 1


def _draw(laws: Floats, uniforms: Floats) -> Ints:
    drawn: Ints = np.minimum((np.cumsum(laws, axis=1) < uniforms[:, None]).sum(axis=1), laws.shape[1] - 1)
    return drawn
