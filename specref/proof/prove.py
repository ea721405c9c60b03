"""Proving every rule on random models, by one round after every context and by whole generations."""

from __future__ import annotations

import math
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, TypeAlias

from specref.chance import Chance
from specref.laws import total_variation
from specref.models import Tokens, sequence_law
from specref.proof.counterexample import Counterexample, smallest_counterexample
from specref.proof.instances import EXAMPLE, Instance, chain_instances, tree_instances
from specref.proof.rounds import (
    REFUSALS,
    UNLIMITED,
    LawOfTokens,
    departure,
    every_context,
    law_in_two_stages,
    law_of_generation,
    law_of_repeated_rounds,
    rows_of_target,
    variation_of_round,
    verify,
)
from specref.proof.subjects import SUBJECTS, Subject, one_of, subject
from specref.stopping import Stops

Progress: TypeAlias = Callable[[str, int, int], None]
"""`progress(rule, done, all)`: called with the rule just worked on and how many pieces of work are done, of all."""

MODELS = {"chain": 216, "tree": 72}
"""Random models per rule."""


@dataclass
class ProofResult:
    """What was enumerated for one rule.

    models: random models, each proven by one round after every context; rounds: these rounds (a rule for chosen drafts has one
    for each draft). generations: whole generations of two rounds or more, one for each model and some more.
    total_variation: the largest found, exact (0 if equal, 1 if the rule raises). on_example: for a lossy rule, the total
    variation of its first token on EXAMPLE, over the worst draft. counterexample: the smallest found, for a rule claimed
    lossless. seconds: processor time.
    """

    rule: str
    kind: Literal["chain", "tree"]
    claim: Literal["lossless", "lossy"]
    models: int = 0
    rounds: int = 0
    generations: int = 0
    total_variation: Fraction = field(default_factory=Fraction)
    on_example: Fraction | None = None
    counterexample: Counterexample | None = None
    seconds: float = 0.0

    @property
    def equal(self) -> bool:
        """Whether every law enumerated was exactly the target's."""
        return self.total_variation == 0

    @property
    def as_claimed(self) -> bool:
        """Whether the rule keeps its claim: a lossless one must be equal, a lossy one may be anything."""
        return self.equal or self.claim == "lossy"

    def add(self, other: ProofResult) -> None:
        """Count what another piece of work found for the same rule."""
        self.models += other.models
        self.rounds += other.rounds
        self.generations += other.generations
        self.seconds += other.seconds
        self.total_variation = max(self.total_variation, other.total_variation)
        self.counterexample = self.counterexample or other.counterexample
        self.on_example = self.on_example if other.on_example is None else other.on_example


def prove_all(
    progress: Progress | None = None,
    *,
    scale: float = 1.0,
    seed: int = 0,
    workers: int = 2,
    subjects: Sequence[Subject] = SUBJECTS,
) -> list[ProofResult]:
    """Enumerate every rule on random rational models: one result per rule, in the order of `subjects`.

    scale: fraction of the full number of models (216 per chain rule, 72 per tree rule). seed: another seed, other models.
    workers: processes; 1 works in this one. Processes are spawned, so a script that calls this guards its main module, and they
    find subjects by name, so subjects that are not in SUBJECTS need workers=1.

    >>> [result] = prove_all(scale=0.01, workers=1, subjects=SUBJECTS[:1])
    >>> result.rule, result.equal, result.rounds > result.models > 0
    ('ratio', True, True)
    """
    work = [piece for one in subjects for piece in pieces(one, scale, seed)]
    results = {one.name: ProofResult(one.name, one.kind, one.claim) for one in subjects}
    for done, (piece, found) in enumerate(_each_done(work, workers, subjects), start=1):
        results[piece.subject].add(found)
        if progress is not None:
            progress(piece.subject, done, len(work))
    return list(results.values())


@dataclass(frozen=True)
class Piece:
    """A piece of work for one process: every `stride`-th of a subject's random models, beginning with `first`."""

    subject: str
    seed: int
    models: int
    first: int
    stride: int


def pieces(one: Subject, scale: float, seed: int, stride: int = 4) -> list[Piece]:
    """The work for one subject, in `stride` pieces of about equal length.

    >>> [piece.models for piece in pieces(subject("ratio"), scale=0.5, seed=0)]
    [108, 108, 108, 108]
    """
    models = max(1, math.ceil(MODELS[one.kind] * scale))
    return [Piece(one.name, seed, models, first, stride) for first in range(stride)]


def _each_done(work: list[Piece], workers: int, subjects: Sequence[Subject]) -> Iterator[tuple[Piece, ProofResult]]:
    if workers == 1:
        known = {one.name: one for one in subjects}
        for piece in work:
            yield piece, prove_piece(piece, known[piece.subject])
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from zip(work, pool.map(prove_piece, work))


def prove_piece(piece: Piece, one: Subject | None = None) -> ProofResult:
    """Do one piece of work (the subject is looked up by its name if it is not given).

    Chains and trees of up to 4 nodes are enumerated whole on models that remember every token; for larger trees, whose drafts
    are many, the laws of their rounds are put together.

    >>> prove_piece(Piece("ratio", seed=0, models=8, first=1, stride=4)).models
    2
    """
    one = one or subject(piece.subject)
    result = ProofResult(one.name, one.kind, one.claim)
    began = time.process_time()
    instances = chain_instances if one.kind == "chain" else tree_instances
    forgetful = instances(piece.models, f"{piece.seed}", memory=1)
    mindful = instances(piece.models, f"{piece.seed}, whole context", memory=None)
    for i, (instance, other) in enumerate(zip(forgetful, mindful)):
        if i % piece.stride == piece.first:
            eos = (0,) if i % 2 else ()
            by_one_round(one, instance, result, eos)
            if len(other.shape) <= 4:
                by_generation(one, other, result, eos)
    if one.claim == "lossy" and piece.first == 0:
        result.on_example = variation_on_example(one)
    result.seconds = time.process_time() - began
    return result


def by_one_round(one: Subject, instance: Instance, result: ProofResult, eos: Sequence[int]) -> None:
    """Prove `one` on models that remember one token, by a round after every context; add what was found.

    A tree's rounds do not depend on the room that is left, so their laws are then put together to whole generations.

    >>> result = ProofResult("ratio", "chain", "lossless")
    >>> by_one_round(subject("ratio"), next(chain_instances(1)), result, eos=())
    >>> result.rounds, result.equal                                         # after (), (0,) and (1,)
    (3, True)
    """
    follows = one.follows(instance.target)
    laws: dict[Tokens, LawOfTokens] = {}
    result.models += 1
    for context in every_context(follows):
        for draw in one.drafting(instance, context, UNLIMITED):
            result.rounds += 1
            try:
                law = laws[context] = law_in_two_stages(draw, instance.target, context, one.rule)
            except REFUSALS:
                _departs(one, instance, result, Fraction(1))
                return
            if departure(law, follows, context) is not None:
                _departs(one, instance, result, variation_of_round(law, follows, context))
    if one.kind == "tree":
        stops = stops_for(instance, eos)
        generation = law_of_repeated_rounds(lambda context: laws[context[-1:]], stops)
        _compare(one, instance, result, generation, stops)


def by_generation(one: Subject, instance: Instance, result: ProofResult, eos: Sequence[int]) -> None:
    """Prove `one` on models that remember every token, by enumerating whole generations; add what was found.

    >>> result = ProofResult("ratio", "chain", "lossless")
    >>> by_generation(subject("ratio"), next(chain_instances(1, memory=None)), result, eos=(0,))
    >>> result.generations, result.equal
    (1, True)
    """

    def one_round(context: Tokens, room: int, chance: Chance) -> Tokens:
        draft = one_of(one.drafting(instance, context, room), instance.seed, context)(chance)
        return verify(rows_of_target(instance.target, context, draft), draft, one.rule, chance)

    stops = stops_for(instance, eos)
    try:
        law = law_of_generation(one_round, stops)
    except REFUSALS:
        _departs(one, instance, result, Fraction(1))
        return
    _compare(one, instance, result, law, stops)


def stops_for(instance: Instance, eos: Sequence[int]) -> Stops:
    """One token more than a round can emit, so that every generation takes two rounds or more unless `eos` ends it.

    The limit then falls inside a block as well as at the end of one.

    >>> stops_for(EXAMPLE, eos=())
    Stops(3, eos=(), sequences=(), min_tokens=0)
    """
    return Stops(instance.depth + 2, eos=eos)


def _compare(one: Subject, instance: Instance, result: ProofResult, law: LawOfTokens, stops: Stops) -> None:
    """Compare the law of a generation with plain sampling from the target; add what was found."""
    wanted = sequence_law(one.follows(instance.target), (), stops.max_tokens, stops.eos)
    result.generations += 1
    if law != wanted:
        _departs(one, instance, result, Fraction(total_variation(law, wanted)))


def _departs(one: Subject, instance: Instance, result: ProofResult, variation: Fraction) -> None:
    """Note a total variation that is not 0; for a rule claimed lossless, find the smallest counterexample once."""
    result.total_variation = max(result.total_variation, variation)
    if one.claim == "lossless" and result.counterexample is None:
        found = (smallest_counterexample(one, instance, context) for context in every_context(instance.target))
        result.counterexample = next(filter(None, found), None)


def variation_on_example(one: Subject) -> Fraction:
    """Total variation of the first token that a round emits on EXAMPLE from the target's law, over the worst draft.

    >>> variation_on_example(subject("ratio")), variation_on_example(subject("ensemble, weight 1/2"))
    (Fraction(0, 1), Fraction(3, 20))
    """
    worst = Fraction(0)
    wanted: dict[Tokens, Fraction] = {(token,): mass for token, mass in enumerate(EXAMPLE.target.next_law(()))}
    for draw in one.drafting(EXAMPLE, (), UNLIMITED):
        first: dict[Tokens, Fraction] = {}
        for emitted, mass in law_in_two_stages(draw, EXAMPLE.target, (), one.rule).items():
            first[emitted[:1]] = first.get(emitted[:1], Fraction(0)) + mass
        worst = max(worst, Fraction(total_variation(first, wanted)))
    return worst
