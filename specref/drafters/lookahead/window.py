"""The window, its Jacobi iteration, and the pool of n-grams that it completes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from specref.chance import Chance
from specref.models import Tokens

Window: TypeAlias = tuple[Tokens, ...]
"""Levels of C tokens each, the oldest first: entry [l][i] stands l + i places after the last committed token, itself [0][0]."""


@dataclass(frozen=True)
class Shape:
    """W: columns of the full window. N: tokens of an n-gram, its key included. G: n-grams kept for a key, so guesses a round.

    >>> Shape(W=5, N=4, G=5).levels
    3

    Raises ValueError for W or G below 1, or N below 2.
    """

    W: int
    N: int
    G: int

    def __post_init__(self) -> None:
        for name, value, least in (("W", self.W, 1), ("N", self.N, 2), ("G", self.G, 1)):
            if value < least:
                raise ValueError(f"{name} is {value}; it must be {least} or more")

    @property
    def levels(self) -> int:
        """Levels of the full window, N-1."""
        return self.N - 1


@dataclass(frozen=True)
class Pool:
    """n-grams seen so far, the least recently seen first; at most `per_key` of them begin with the same token, their key.

    >>> pool = Pool(per_key=2).adding([(7, 1, 2), (7, 3, 4), (5, 1, 1)])
    >>> pool.after(7)
    ((3, 4), (1, 2))
    >>> pool.adding([(7, 1, 2), (7, 5, 6)]).after(7)              # 1 2 was seen again, so 3 4 is the oldest
    ((5, 6), (1, 2))
    """

    per_key: int
    grams: tuple[Tokens, ...] = ()

    def after(self, key: int) -> tuple[Tokens, ...]:
        """What followed the token `key` in the n-grams kept, the most recently seen first."""
        return tuple(gram[1:] for gram in reversed(self.grams) if gram[0] == key)

    def adding(self, grams: Iterable[Tokens]) -> Pool:
        """The pool after seeing `grams`, one after the other."""
        kept = list(self.grams)
        for gram in grams:
            if gram in kept:
                kept.remove(gram)
            kept.append(gram)
            of_key = [other for other in kept if other[0] == gram[0]]
            if len(of_key) > self.per_key:
                kept.remove(of_key[0])
        return Pool(self.per_key, tuple(kept))


def first_window(prompt: Tokens, shape: Shape, chance: Chance) -> Window:
    """One level: the last token of the prompt and W + N - 3 random tokens of it. It narrows to W columns while levels fill.

    >>> from specref.chance import SampledChance
    >>> first_window((4, 4, 7), Shape(W=2, N=4, G=1), SampledChance(0))
    ((7, 4, 4, 7),)
    """
    drawn = (chance.picks([1] * len(prompt), slot=("draft", i)) for i in range(shape.W + shape.N - 3))
    return ((prompt[-1], *(prompt[place] for place in drawn)),)


def next_window(window: Window, newest: Tokens, root: int, shape: Shape) -> Window:
    """The window one place on: `newest [C]`, what follows each column, is its last level, and `root` its first token.

    A full window drops its oldest level, which moves every column one place on; one that is still filling drops its first
    column instead.

    >>> full = next_window(((7, 1, 2),), newest=(3, 4, 5), root=8, shape=Shape(W=2, N=3, G=1))
    >>> full, next_window(full, newest=(6, 7), root=9, shape=Shape(W=2, N=3, G=1))
    (((8, 2), (4, 5)), ((9, 5), (6, 7)))
    """
    grown = (*window, newest)
    levels = grown[1:] if len(window) == shape.levels else tuple(level[1:] for level in grown)
    return ((root, *levels[0][1:]), *levels[1:])


def completed(window: Window, newest: Tokens, shape: Shape) -> list[Tokens]:
    """The n-grams that a pass completed, one per column: the token on level 0, those below it, and the `newest [C]` one.

    >>> completed(((8, 2), (4, 5)), newest=(6, 7), shape=Shape(W=2, N=3, G=1))
    [(8, 4, 6), (2, 5, 7)]
    """
    return list(zip(*window, newest)) if len(window) == shape.levels else []
