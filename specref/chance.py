"""Who decides: one algorithm, three kinds of chance.

A rule never touches a random generator and never divides by a probability. It asks a `Chance` to decide, and says by a *slot*
what each decision is for: `("draft", n)`, `("accept", n)`, `("emit",)`, and `("token", i)` for a draw from the target itself.
So the same few lines can be

* **sampled** (`SampledChance`): each decision reads a uniform that depends only on the seed and on what it is for;
* **replayed** (`ReplayedChance`): each decision reads a uniform from a table, to compare with a kernel decision by decision;
* **enumerated** (`EnumeratedChance`): every branch is taken with its exact probability, which gives the rule's exact law.

`number(slot)` names the random number that a slot reads. Honest chance gives each slot of each round a number of its own; every
fault of randomness (one coin for two decisions, noise reused over rounds) is an override of this one method.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar

import numpy as np

from specref.laws import Law

Slot: TypeAlias = tuple[str | int, ...]
Number: TypeAlias = Hashable
Outcome = TypeVar("Outcome", bound=Hashable)
State = TypeVar("State", bound=Hashable)


class SlotReused(RuntimeError):
    """Two decisions of one round asked for the same slot: they would share a random number."""


class EmptyWeights(ValueError):
    """Nothing to pick from: every weight is zero."""


class BadWeights(ValueError):
    """A weight is NaN, infinite or negative."""


class NumberLeavesRound(RuntimeError):
    """A random number is shared between rounds, so rounds cannot be enumerated one at a time."""


class Chance(ABC):
    """Decides for a rule. One object serves one generation; `begin_round` is called before each round."""

    def __init__(self) -> None:
        self.start = 0
        self._asked: set[Slot] = set()

    def begin_round(self, start: int) -> None:
        """A new round begins; `start` is the number of tokens in the output so far."""
        self.start = int(start)
        self._asked.clear()

    def number(self, slot: Slot) -> Number:
        """The name of the random number that `slot` reads in this round.

        A slot's number belongs to the round (its start). `("token", i)` alone is named by the absolute position start + i, so
        that token matching draws the very tokens that plain sampling with the same seed would draw.
        """
        if slot[0] == "token":
            return ("token", self.start + int(slot[1]))
        return (self.start, *slot)

    def accepts(self, numerator: Any, denominator: Any = 1, *, slot: Slot) -> bool:
        """True with probability min(1, numerator / denominator), decided as u * denominator < numerator.

        Nothing is divided: a zero denominator accepts a positive numerator, and 0/0 rejects.
        Raises SlotReused, and BadWeights for NaN, infinite or negative values.
        """
        number = self._number_of(slot)
        for value in (numerator, denominator):
            if not (value >= 0 and _is_finite(value)):
                raise BadWeights(f"slot {slot}: cannot accept with {numerator} / {denominator}")
        return self._accepts(numerator, denominator, number)

    def picks(self, weights: Law | Sequence[Any], *, slot: Slot) -> int:
        """Index i with probability weights[i] / sum(weights); never an index of zero weight.

        With a uniform u it is the first index whose cumulative weight exceeds u * total, where total is the last cumulative sum
        in index order. Raises SlotReused, EmptyWeights, and BadWeights for NaN, infinite or negative weights.
        """
        number = self._number_of(slot)
        row: Law = weights if isinstance(weights, np.ndarray) else np.array(weights, dtype=object)
        cumulative = row.cumsum()
        if row.size and not (_is_finite(cumulative[-1]) and row.min() >= 0):
            raise BadWeights(f"slot {slot}: weights must be finite and not negative, got {_first_bad(row)}")
        if not row.size or cumulative[-1] == 0:
            raise EmptyWeights(f"slot {slot}: all {row.size} weights are zero, so there is nothing to pick from")
        return self._picks(cumulative, number)

    def _number_of(self, slot: Slot) -> Number:
        if slot in self._asked:
            raise SlotReused(f"slot {slot} was asked for twice in the round that starts at {self.start}")
        self._asked.add(slot)
        return self.number(slot)

    @abstractmethod
    def _accepts(self, numerator: Any, denominator: Any, number: Number) -> bool: ...

    @abstractmethod
    def _picks(self, cumulative: Law, number: Number) -> int: ...


def _is_finite(value: Any) -> bool:
    return isinstance(value, Fraction | int) or math.isfinite(value)


def _first_bad(weights: Law) -> str:
    for index, weight in enumerate(weights):
        if not (weight >= 0 and _is_finite(weight)):
            return f"{weight} at index {index}"
    return "a sum that overflows"


class UniformChance(Chance):
    """Decides from uniforms in [0, 1). A subclass says where the uniform of a number comes from."""

    @abstractmethod
    def uniform(self, number: Number) -> Any:
        """The uniform that `number` names: the same number always names the same uniform."""

    def _accepts(self, numerator: Any, denominator: Any, number: Number) -> bool:
        return bool(self.uniform(number) * denominator < numerator)

    def _picks(self, cumulative: Law, number: Number) -> int:
        index = bisect_right(cumulative, self.uniform(number) * cumulative[-1])
        if index == len(cumulative):  # u < 1, and yet u * total rounded up to a total that is subnormal
            index = bisect_left(cumulative, cumulative[-1])  # the last token of positive weight
        return index


class SampledChance(UniformChance):
    """Draws: the uniform of a number is a keyed hash of (seed, number), a multiple of 2^-53 in [0, 1).

    There is no generator to advance, so neither the order of decisions, nor skipping one, nor other requests can matter.

    >>> SampledChance(seed=7).picks([0, 1, 0], slot=("emit",))
    1
    >>> SampledChance(7).uniform((0, "emit")) == SampledChance(7).uniform((0, "emit"))
    True
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = int(seed)

    def uniform(self, number: Number) -> float:
        """See `UniformChance.uniform`."""
        digest = hashlib.blake2b(repr((self.seed, number)).encode(), digest_size=8).digest()
        return (int.from_bytes(digest, "big") >> 11) * 2.0**-53


class ReplayedChance(UniformChance):
    """Decides one round from given uniforms `{slot: u}`, for instance those a kernel was given.

    >>> chance = ReplayedChance({("accept", 0): 0.5, ("emit",): 0.9})
    >>> chance.accepts(0.25, 0.5, slot=("accept", 0))    # 0.5 * 0.5 < 0.25 is false
    False
    >>> chance.picks([0.5, 0.25, 0.25], slot=("emit",))
    2

    Raises KeyError, naming the slot, for a slot without a uniform; ValueError for a uniform outside [0, 1).
    """

    def __init__(self, uniforms: Mapping[Slot, Any]) -> None:
        super().__init__()
        for slot, u in uniforms.items():
            if not 0 <= u < 1:
                raise ValueError(f"the uniform of slot {slot} is {u}, outside [0, 1)")
        self._uniforms = {self.number(slot): u for slot, u in uniforms.items()}

    def begin_round(self, start: int) -> None:
        """A replay covers a single round, whose numbers are named from start 0."""
        self._asked.clear()

    def uniform(self, number: Number) -> Any:
        """See `UniformChance.uniform`."""
        if number not in self._uniforms:
            raise KeyError(f"no uniform was given for {number}; given: {sorted(map(str, self._uniforms))}")
        return self._uniforms[number]


class EnumeratedChance(Chance):
    """Follows `script` (which branch to take at each decision), then takes first branches and notes the ones left out.

    A random number is known to lie in an interval of [0, 1), and a decision cuts that interval. A number that nobody has read
    yet may lie anywhere; one that two slots share (a fault) carries what the first decision told about it into the second. So
    the laws of faults of randomness are exact too. Use `exact_law`, which runs every branch.
    """

    def __init__(self, script: tuple[int, ...] = ()) -> None:
        super().__init__()
        self._script = script
        self._taken: list[int] = []
        self._interval: dict[Number, tuple[Any, Any, Any]] = {}  # number -> (from, to, of): it lies in [from / of, to / of)
        self.probability = Fraction(1)
        self.untaken: list[tuple[int, ...]] = []
        self.numbers_read: list[Number] = []

    def _accepts(self, numerator: Any, denominator: Any, number: Number) -> bool:
        if numerator == 0 or numerator >= denominator:  # decided whatever the number is (0/0 rejects, n/0 accepts)
            self.numbers_read.append(number)
            return bool(numerator > 0)
        return self._branch([numerator, denominator], number) == 0

    def _picks(self, cumulative: Law, number: Number) -> int:
        return self._branch(cumulative, number)

    def _branch(self, ends: Law | Sequence[Any], number: Number) -> int:
        """The index of the piece [ends[i-1], ends[i]) of [0, ends[-1]) that the number, scaled to it, is in, by the script."""
        self.numbers_read.append(number)
        whole = ends[-1]
        low, high = 0, whole
        if number in self._interval:  # a shared number: keep to what earlier decisions left of it
            left, right, of = self._interval[number]
            low, high = Fraction(left) / of * whole, Fraction(right) / of * whole
            ends = [min(max(end, low), high) for end in ends]
        pieces = [(index, left, right) for index, (left, right) in enumerate(pairwise([low, *ends])) if left != right]
        index, left, right = pieces[self._choose(len(pieces))]
        self._interval[number] = (left, right, whole)
        self.probability *= Fraction(right - left) / (high - low)
        return index

    def _choose(self, branches: int) -> int:
        depth = len(self._taken)
        if depth < len(self._script):
            choice = self._script[depth]
        else:
            choice = 0
            self.untaken.extend((*self._taken, other) for other in range(1, branches))
        self._taken.append(choice)
        return choice


def exact_law(
    procedure: Callable[[EnumeratedChance], Outcome], chance_type: Callable[..., EnumeratedChance] = EnumeratedChance
) -> dict[Outcome, Fraction]:
    """{outcome: probability} of `procedure(chance)`, with every branch taken. Outcomes must be hashable.

    `chance_type` makes a chance from a script; pass a subclass that overrides `number` to get the exact law of a fault of
    randomness.

    >>> exact_law(lambda chance: chance.accepts(1, 3, slot=("accept", 0)))
    {True: Fraction(1, 3), False: Fraction(2, 3)}
    """
    law: dict[Outcome, Fraction] = {}
    scripts: list[tuple[int, ...]] = [()]
    while scripts:
        chance = chance_type(scripts.pop())
        outcome = procedure(chance)
        law[outcome] = law.get(outcome, Fraction(0)) + chance.probability
        scripts.extend(chance.untaken)
    return law


def exact_law_of_rounds(
    step: Callable[[State, EnumeratedChance], State],
    start: State,
    finished: Callable[[State], bool],
    *,
    size: Callable[[State], int] = len,  # type: ignore[assignment]
    chance_type: Callable[..., EnumeratedChance] = EnumeratedChance,
) -> dict[State, Fraction]:
    """Law of the last state of `while not finished(state): state = step(state, chance)`, with equal states merged.

    A state must hold everything that the next round depends on (tokens, adaptive k, pools, penalties); `size(state)` is its
    number of output tokens, which every step increases. `step` calls `chance.begin_round(size(state))`. Merging is what makes
    several rounds affordable, and it is right only if no number is read in two rounds: a number must carry this round's start,
    or be `("token", i)` for a position that this round commits. Anything else raises NumberLeavesRound; enumerate the whole
    generation with `exact_law` there.

    >>> def step(state, chance):
    ...     chance.begin_round(len(state))
    ...     return state + (chance.picks([1, 1], slot=("emit",)),)
    >>> exact_law_of_rounds(step, (), lambda state: len(state) == 2)[(0, 1)]
    Fraction(1, 4)
    """
    waiting, law = {start: Fraction(1)}, {}
    while waiting:
        state = min(waiting, key=size)  # the shortest first: every way that leads into it has been counted by then
        mass = waiting.pop(state)
        if finished(state):
            law[state] = mass
            continue

        def one_round(chance: EnumeratedChance, state: State = state) -> State:
            after = step(state, chance)
            committed = None if finished(after) else size(after)  # nothing is read again once a generation has ended
            _check_numbers(chance.numbers_read, size(state), committed)
            return after

        for after, probability in exact_law(one_round, chance_type).items():
            if size(after) <= size(state):
                raise ValueError(f"a round must emit a token, but {state!r} was followed by {after!r}")
            waiting[after] = waiting.get(after, Fraction(0)) + mass * probability
    return law


def _check_numbers(numbers: Sequence[Number], start: int, committed: int | None) -> None:
    for number in numbers:
        name = number if isinstance(number, tuple) else (number,)
        if name[0] == "token" and len(name) == 2 and start <= name[1] and (committed is None or name[1] < committed):
            continue
        if type(name[0]) is not int or name[0] != start:
            raise NumberLeavesRound(
                f"the round that starts at {start} read number {number!r}, which another round may read too; "
                "enumerate the whole generation with exact_law instead"
            )
