"""Exact laws of rounds and of whole generations, and the comparison with the target.

A round is a function `one_round(context, room, chance) -> emitted`: what it adds to the output after `context`, where at most
`room` tokens are still wanted (it may emit more; the surplus is cut). Two ways to prove one lossless:

* `law_of_generation` enumerates rounds until the output is complete, to compare with plain sampling from the target;
* `departure` looks at one round alone. If a round is lossless after every context that can occur, so is every generation made
  of such rounds, by induction; this is far cheaper, so it is done for many more models.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TypeAlias

from specref.chance import Chance, EnumeratedChance, SlotReused, exact_law, exact_law_of_rounds
from specref.draft import Draft
from specref.laws import Law, total_variation
from specref.models import LanguageModel, Tokens, sequence_law
from specref.rules import Rule
from specref.stopping import Stops

OneRound: TypeAlias = Callable[[Tokens, int, Chance], Tokens]
LawOfTokens: TypeAlias = Mapping[Tokens, Fraction]

UNLIMITED = sys.maxsize
"""As much room as a round can use."""


def law_of_generation(
    one_round: OneRound,
    stops: Stops,
    prompt: Tokens = (),
    chance_type: Callable[..., EnumeratedChance] = EnumeratedChance,
) -> dict[Tokens, Fraction]:
    """{output: probability} of generating after `prompt` in rounds until `stops` end the output.

    Lossless means equal (`==`) to `sequence_law(target, prompt, max_tokens, eos)`. Rounds must depend on nothing but the tokens
    so far, and share no random number (else `exact_law_of_rounds` raises).

    >>> from specref.models import TableModel
    >>> target = TableModel(3, seed=1)
    >>> plain_sampling = lambda context, room, chance: (chance.picks(target.next_law(context), slot=("emit",)),)
    >>> law_of_generation(plain_sampling, Stops(3)) == sequence_law(target, (), 3)
    True
    """

    def step(tokens: Tokens, chance: EnumeratedChance) -> Tokens:
        chance.begin_round(len(tokens))
        return tokens + stops.cut(tokens, one_round(prompt + tokens, stops.room(tokens), chance))

    return exact_law_of_rounds(step, (), stops.finished, chance_type=chance_type)


def law_of_repeated_rounds(
    round_law: Callable[[Tokens], LawOfTokens], stops: Stops, prompt: Tokens = ()
) -> dict[Tokens, Fraction]:
    """`law_of_generation` from laws of rounds already known: `round_law(context)` is the law of what one round emits.

    Right for honest chance only, whose rounds share no number. Whatever a round emits beyond `stops` is cut.

    >>> half = Fraction(1, 2)
    >>> law_of_repeated_rounds(lambda context: {(0,): half, (1, 1): half}, Stops(2))
    {(1, 1): Fraction(1, 2), (0, 0): Fraction(1, 4), (0, 1): Fraction(1, 4)}
    """
    waiting: dict[Tokens, Fraction] = {(): Fraction(1)}
    law: dict[Tokens, Fraction] = {}
    while waiting:
        tokens = min(waiting, key=len)
        mass = waiting.pop(tokens)
        if stops.finished(tokens):
            law[tokens] = mass
            continue
        for emitted, probability in round_law(prompt + tokens).items():
            after = tokens + stops.cut(tokens, emitted)
            waiting[after] = waiting.get(after, Fraction(0)) + mass * probability
    return law


def law_of_round(
    one_round: OneRound, context: Tokens = (), chance_type: Callable[..., EnumeratedChance] = EnumeratedChance
) -> dict[Tokens, Fraction]:
    """{emitted: probability} of one round after `context` with unlimited room.

    >>> law_of_round(lambda context, room, chance: (chance.picks([1, 3], slot=("emit",)),))
    {(0,): Fraction(1, 4), (1,): Fraction(3, 4)}
    """
    return exact_law(lambda chance: one_round(context, UNLIMITED, chance), chance_type)


def law_in_two_stages(
    draw: Callable[[Chance], Draft], target: LanguageModel, context: Tokens, rule: Rule
) -> dict[Tokens, Fraction]:
    """`law_of_round` of "draw a draft, then verify it": first the law of the draft, then the law of the verdict on each draft.

    Equal to enumerating both at once, because no honest verdict reads a number that the draft read, and several times faster:
    the draft is not drawn again for every verdict.

    >>> from specref.models import TableModel
    >>> from specref.rules.chain import ratio
    >>> target, small = TableModel(2, seed=1), TableModel(2, seed=2)
    >>> law = law_in_two_stages(lambda chance: Draft.drawn(small.next_law, 1, chance), target, (), ratio)
    >>> departure(law, target) is None
    True
    """
    law: dict[Tokens, Fraction] = {}
    for draft, drawn in exact_law(draw).items():
        p = rows_of_target(target, context, draft)
        for emitted, decided in exact_law(partial(verify, p, draft, rule)).items():
            law[emitted] = law.get(emitted, Fraction(0)) + drawn * decided
    return law


def rows_of_target(target: LanguageModel, context: Tokens, draft: Draft) -> list[Law]:
    """The target's laws that a rule needs: `[k+1, V]` along a chain, `[N, V]` (one after each node) for a tree.

    >>> from specref.models import TableModel
    >>> len(rows_of_target(TableModel(3, 0), (), Draft.chosen([1, 2])))
    3
    """
    if draft.tree is None:
        return target.next_laws(context, draft.tokens)
    return [target.next_law(context + draft.tree.spells(node)) for node in range(len(draft.tree))]


def verify(p: Sequence[Law], draft: Draft, rule: Rule, chance: Chance) -> Tokens:
    """The tokens that `rule` emits for a chain or a tree: the drafted ones it keeps, and the one after them.

    >>> from specref.laws import rational
    >>> from specref.rules.chain import greedy
    >>> verify([rational([1, 3])] * 3, Draft.chosen([1, 0]), greedy, EnumeratedChance())
    (1, 1)
    """
    verified = rule(p, draft, chance)
    if draft.tree is None:
        return (*draft.tokens[: verified.accepted], verified.next_token)
    return (*(draft.tokens[node] for node in verified.path), verified.next_token)


REFUSALS = (ValueError, ArithmeticError, SlotReused)
"""What a wrong rule may raise while it is enumerated: an empty residual, a division by zero, a slot used twice."""


@dataclass(frozen=True)
class Departure:
    """Where a round leaves the target's law: after emitting `prefix` and going on, `token` follows with `got`, not `wanted`."""

    prefix: Tokens
    token: int
    got: Fraction
    wanted: Fraction

    def __str__(self) -> str:
        return (
            f"after emitting {self.prefix}, the rounds that go on emit token {self.token} next "
            f"with probability {self.got}, where the target says {self.wanted}"
        )


def departure(law: LawOfTokens, target: LanguageModel, context: Tokens = ()) -> Departure | None:
    """Where one round's `law` of emitted tokens departs from the target; None if the round is lossless after `context`.

    The test: among the rounds that emit some prefix and go on, the next token follows the target's law after that prefix.
    Equivalently the round, completed by the target itself, has the target's law. (Let S be the probability of emissions that
    begin with prefix x and E that of x itself. Completed, x has probability C(x), and C(xt) = S(xt) + p(t)(C(x) - S(x) + E(x)):
    this is C(x)p(t) for every t exactly if S(xt) = p(t)(S(x) - E(x)).)

    >>> from specref.models import TableModel
    >>> target = TableModel(2, seed=1)                # after (): 9/16, 7/16
    >>> departure({(0,): Fraction(9, 16), (1,): Fraction(7, 16)}, target) is None
    True
    >>> print(departure({(0,): Fraction(1, 2), (1,): Fraction(1, 2)}, target))
    after emitting (), the rounds that go on emit token 0 next with probability 1/2, where the target says 9/16
    """
    begins: dict[Tokens, Fraction] = {}
    for emitted, mass in law.items():
        for length in range(len(emitted) + 1):
            begins[emitted[:length]] = begins.get(emitted[:length], Fraction(0)) + mass
    if begins.get((), 0) != 1 or law.get((), 0) != 0:
        raise ValueError(f"a round emits a token or more with probability 1, but these add up to {begins.get((), 0)}: {law}")
    for prefix in sorted(begins, key=len):
        going_on = begins[prefix] - law.get(prefix, 0)
        if going_on:
            for token, wanted in enumerate(target.next_law(context + prefix)):
                got = begins.get((*prefix, token), Fraction(0))
                if got != going_on * wanted:
                    return Departure(prefix, token, got / going_on, wanted)
    return None


def lossless_round(one_round: OneRound, target: LanguageModel, contexts: Iterable[Tokens] = ((),)) -> bool:
    """Whether one round, completed by the target itself, has exactly the target's law after each of `contexts`.

    >>> from specref.generate import ModelDrafter, chain_round
    >>> from specref.models import TableModel
    >>> from specref.rules.chain import ratio
    >>> target, small = TableModel(3, seed=1, memory=1), TableModel(3, seed=2, memory=1)
    >>> one_round = lambda context, room, chance: chain_round(context, target, ModelDrafter(small), ratio, 2, chance)[2]
    >>> lossless_round(one_round, target, every_context(target))
    True
    """
    return all(departure(law_of_round(one_round, context), target, context) is None for context in contexts)


def every_context(model: LanguageModel, memory: int = 1) -> list[Tokens]:
    """The contexts that a model with this `memory` can tell apart: a round that is lossless after each is so always.

    >>> from specref.models import TableModel
    >>> every_context(TableModel(2, seed=0, memory=1))
    [(), (0,), (1,)]
    """
    contexts: list[Tokens] = [()]
    longest = contexts
    for _ in range(memory):
        longest = [(*context, token) for context in longest for token in range(model.vocabulary)]
        contexts = contexts + longest
    return contexts


def variation_of_round(law: LawOfTokens, target: LanguageModel, context: Tokens = ()) -> Fraction:
    """Total variation between the target's law and that of one round completed by the target, over the longest emission.

    >>> from specref.models import TableModel
    >>> target = TableModel(2, seed=1)                # after (): 9/16, 7/16
    >>> variation_of_round({(0,): Fraction(1, 2), (1,): Fraction(1, 2)}, target)
    Fraction(1, 16)
    """
    longest = max(map(len, law))
    completed: dict[Tokens, Fraction] = {}
    for emitted, mass in law.items():
        rest = sequence_law(target, context + emitted, longest - len(emitted))
        for tokens, probability in rest.items():
            whole = emitted + tokens
            completed[whole] = completed.get(whole, Fraction(0)) + mass * probability
    return Fraction(total_variation(completed, sequence_law(target, context, longest)))
