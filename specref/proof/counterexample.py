"""The smallest instance on which a rule fails, printed so that a person can check it by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from specref.chance import EnumeratedChance
from specref.laws import Law
from specref.models import LanguageModel, Tokens
from specref.proof.instances import Instance, Rows, RowsModel
from specref.proof.rounds import REFUSALS, UNLIMITED, Departure, departure, law_in_two_stages
from specref.proof.subjects import Draw, Subject


@dataclass(frozen=True)
class Written:
    """A written-out instance: V, the draft's shape, and the rows of weights of target and draft model."""

    V: int
    shape: tuple[int, ...]
    target: Rows
    drafter: Rows


@dataclass(frozen=True)
class Counterexample:
    """A small instance, the law of what a rule emits in one round on it, and where that law departs from the target's.

    chosen: the drafted tokens, where they were chosen and not drawn. A rule that raises has no law, and departs by its error.
    """

    rule: str
    instance: Written
    chosen: Tokens | None
    law: dict[Tokens, Fraction]
    departure: Departure | str

    def __str__(self) -> str:
        instance = self.instance
        lines = [f"{self.rule}, {len(instance.shape) - 1} drafted, parents {instance.shape}"]
        lines += [f"  target after {context}: {_row(weights)}" for context, weights in sorted(instance.target.items())]
        if self.chosen is None:
            lines += [f"  draft  after {context}: {_row(weights)}" for context, weights in sorted(instance.drafter.items())]
        else:
            lines += [f"  drafted tokens, chosen: {self.chosen}"]
        lines += [f"  one round emits {emitted} with probability {mass}" for emitted, mass in sorted(self.law.items())]
        return "\n".join([*lines, f"  {self.departure}"])


def _row(weights: tuple[int, ...]) -> str:
    return "  ".join(str(Fraction(weight, sum(weights))) for weight in weights)


def smallest_counterexample(one: Subject, instance: Instance, context: Tokens = ()) -> Counterexample | None:
    """A smallest instance on which a round of `one` departs from the target, found by shrinking `instance` after `context`.

    None if a round after `context` follows the target. Smallest means that no leaf, token or unit of weight can be taken away.

    >>> from specref.proof.instances import chain_instances
    >>> from specref.proof.subjects import drawn_chain
    >>> from specref.rules import rewired
    >>> from specref.rules.chain import ratio
    >>> fault = Subject("resample from p", "chain", rewired(ratio, residual=lambda p, q: p), drawn_chain)
    >>> print(next(filter(None, (smallest_counterexample(fault, instance) for instance in chain_instances(9)))))
    resample from p, 1 drafted, parents (-1, 0)
      target after (): 1/2  1/2
      target after (1,): 0  1
      draft  after (): 0  1
      one round emits (0,) with probability 1/4
      one round emits (1,) with probability 1/4
      one round emits (1, 1) with probability 1/2
      after emitting (), the rounds that go on emit token 0 next with probability 1/4, where the target says 1/2
    """
    found = _failure(one, _written_out(one, instance, context))
    larger = None
    while found is not None and found is not larger:
        larger = found
        for smaller in (_less_structure, _simpler_rows):
            found = _shrunk(one, found, smaller)
    return found


def _shrunk(one: Subject, found: Counterexample, smaller: Callable[[Written], Iterator[Written]]) -> Counterexample:
    """The counterexample made `smaller`, step by step, while the rule goes on failing."""
    while True:
        failures = map(partial(_failure, one), smaller(found.instance))
        failure = next(filter(None, failures), None)
        if failure is None:
            return found
        found = failure


def _failure(one: Subject, written: Written) -> Counterexample | None:
    """What a round of `one` does wrong on a written-out instance, or None."""
    target, drafter = RowsModel(written.V, written.target), RowsModel(written.V, written.drafter)
    instance = Instance(target, drafter, written.shape, seed="")
    for draw in one.drafting(instance, (), UNLIMITED):
        law, departs = _law_and_departure(one, draw, target)
        if departs is not None:
            reached = Written(written.V, written.shape, _asked(target), _asked(drafter))
            return Counterexample(one.name, reached, _chosen(draw, drafter), law, departs)
    return None


def _law_and_departure(
    one: Subject, draw: Draw, target: LanguageModel
) -> tuple[dict[Tokens, Fraction], Departure | str | None]:
    try:
        law = law_in_two_stages(draw, target, (), one.rule)
    except REFUSALS as error:
        return {}, f"the rule raises {type(error).__name__}: {error}"
    return law, departure(law, one.follows(target))


def _asked(model: RowsModel) -> Rows:
    return {context: model.rows.get(context, (1,) * model.vocabulary) for context in model.asked}


def _chosen(draw: Draw, drafter: RowsModel) -> Tokens | None:
    """The tokens of a chosen draft, which asks the draft model nothing."""
    return None if drafter.asked else draw(EnumeratedChance()).tokens


def _written_out(one: Subject, instance: Instance, context: Tokens) -> Written:
    """The same instance with the laws it asks for after `context` as tables of integers, with the context left away."""
    target, drafter = _Recorder(instance.target, context), _Recorder(instance.drafter, context)
    recorded = replace(instance, target=target, drafter=drafter)
    for draw in one.drafting(recorded, (), UNLIMITED):
        _law_and_departure(one, draw, target)
    return Written(target.vocabulary, instance.shape, target.rows, drafter.rows)


class _Recorder(RowsModel):
    """Answers for a model after a context, and writes down the answers."""

    def __init__(self, model: LanguageModel, context: Tokens) -> None:
        super().__init__(model.vocabulary, {})
        self._model, self._context = model, context

    def next_law(self, context: Tokens) -> Law:
        law = self._model.next_law(self._context + context)
        whole = math.lcm(*(probability.denominator for probability in law))
        self.rows[context] = tuple(int(probability * whole) for probability in law)
        return law


def _less_structure(written: Written) -> Iterator[Written]:
    """Instances one step smaller: begun one token later, a leaf less, a token less."""
    for child in (node for node, parent in enumerate(written.shape) if parent == 0):
        for token in range(written.V):
            target, drafter = (_after_token(rows, token) for rows in (written.target, written.drafter))
            yield replace(written, shape=_below(written.shape, child), target=target, drafter=drafter)
    for leaf in range(len(written.shape) - 1, 0, -1):
        if leaf not in written.shape:
            left = tuple(parent - (parent > leaf) for node, parent in enumerate(written.shape) if node != leaf)
            yield replace(written, shape=left)
    for token in range(written.V if written.V > 2 else 0):
        target, drafter = (_without_token(rows, token) for rows in (written.target, written.drafter))
        yield replace(written, V=written.V - 1, target=target, drafter=drafter)


def _simpler_rows(written: Written) -> Iterator[Written]:
    """Instances with one law simpler."""
    for rows in _with_one_simpler(written.target):
        yield replace(written, target=rows)
    for rows in _with_one_simpler(written.drafter):
        yield replace(written, drafter=rows)


def _below(shape: tuple[int, ...], root: int) -> tuple[int, ...]:
    """The shape of what hangs below the node `root`, which becomes the root.

    >>> _below((-1, 0, 0, 1, 1, 3), 1)
    (-1, 0, 0, 1)
    """
    place = {root: 0}
    for node, parent in enumerate(shape):
        if parent in place:
            place[node] = len(place)
    return (-1, *(place[shape[node]] for node in place if node != root))


def _after_token(rows: Rows, token: int) -> Rows:
    """The rows of a generation that begins after `token`."""
    return {context[1:]: weights for context, weights in rows.items() if context[:1] == (token,)}


def _without_token(rows: Rows, token: int) -> Rows:
    """The rows without one token; later tokens move down by one, and a row that would be empty is left out."""
    left: Rows = {}
    for context, weights in rows.items():
        rest = weights[:token] + weights[token + 1 :]
        if token not in context and any(rest):
            left[tuple(other - (other > token) for other in context)] = rest
    return left


def _with_one_simpler(rows: Rows) -> Iterator[Rows]:
    """The rows with one of them simpler: uniform, divided by a common factor, or with one smaller weight."""
    for context, row in sorted(rows.items()):
        simpler = [(1,) * len(row), tuple(weight // math.gcd(*row) for weight in row)]
        for token, weight in enumerate(row):
            for less in (0, weight // 2, weight - 1):
                simpler.append((*row[:token], less, *row[token + 1 :]))
        for weights in simpler:
            if min(weights) >= 0 and 0 < sum(weights) < sum(row):
                yield {**rows, context: weights}
