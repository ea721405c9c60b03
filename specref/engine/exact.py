"""The exact law of one request's output, all branches taken, through everything that the engine does.

The engine is a state of its own: before each round it is copied, once per branch. Two branches are merged only if every
request's tokens, grammar state, caches and drafts' caches are the same in both, so a cache that remembers what it should have
forgotten keeps them apart.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable
from dataclasses import dataclass, field
from fractions import Fraction

from specref.chance import EnumeratedChance, exact_law_of_rounds
from specref.engine.engine import Engine
from specref.models import Tokens


@dataclass(frozen=True)
class _State:
    """The engine between two rounds of the request. Two are the same if everything that can be seen of all requests is."""

    seen: Hashable
    engine: Engine = field(compare=False)


def law_of_output(engine: Engine, number: int) -> dict[Tokens, Fraction]:
    """{output: probability} of request `number`, as `engine` goes on from here; the others keep their seeds.

    The target and the models that draft must be exact (`CachedTableModel` of an exact `TableModel`). Lossless means equal to
    `specref.models.sequence_law`. `engine` is left as it was.

    >>> from specref.engine import PLAIN, CachedTableModel
    >>> from specref.models import TableModel, sequence_law
    >>> from specref.processors import SamplingSettings
    >>> table = TableModel(2, seed=1)
    >>> engine = Engine(CachedTableModel(table))
    >>> number = engine.submit((1,), SamplingSettings(max_tokens=2))
    >>> law_of_output(engine, number) == sequence_law(table, (1,), 2)
    True

    Raises NumberLeavesRound if a random number is read in two rounds, ValueError if the request does not finish.
    """

    def one_round(state: _State, chance: EnumeratedChance) -> _State:
        after = _copied(state.engine)
        after.requests[number].chance = chance
        before = len(after.requests[number].output)
        while len(after.requests[number].output) == before and not after.requests[number].ended:
            after.step()
        return _State(_seen(after), after)

    def output(state: _State) -> Tokens:
        return state.engine.requests[number].output

    def ended(state: _State) -> bool:
        return state.engine.requests[number].ended

    law: dict[Tokens, Fraction] = {}
    start = _State(_seen(engine), engine)
    for state, mass in exact_law_of_rounds(one_round, start, ended, size=lambda state: len(output(state))).items():
        if state.engine.requests[number].status != "finished":
            raise ValueError(f"request {number} {state.engine.requests[number].status} after {output(state)}")
        law[output(state)] = law.get(output(state), Fraction(0)) + mass
    return law


def _seen(engine: Engine) -> Hashable:
    return tuple(
        (
            state.output,
            state.status,
            state.matcher,
            *(None if rows is None else rows.tobytes() for rows in (state.cache, state.draft_cache)),
        )
        for state in map(engine.state, engine.requests)
    )


def _copied(engine: Engine) -> Engine:
    """A copy that shares models and drafters, which keep nothing of a request.

    (One that does, as `LookaheadDrafter`, needs `exact_law` over whole generations.)
    """
    shared: list[object] = [engine.model]
    for request in engine.requests.values():
        shared += [request.speculation, *(getattr(request.proposer, name, None) for name in ("model", "drafter"))]
    return copy.deepcopy(engine, {id(thing): thing for thing in shared})
