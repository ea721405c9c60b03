"""From a model's scores at one position to the law that the request asked for there."""

from __future__ import annotations

import math
from collections.abc import Sequence

from specref.laws import Law, checked
from specref.models import Tokens
from specref.processors import Processor
from specref.processors.rows import Row, law_of


def processed(row: Row, processors: Sequence[Processor], prompt: Tokens, output: Tokens) -> Law:
    """The law `[V]` after `processors`, for the token that follows `prompt + output`; drafted tokens before it are output too.

    What `specref.processors.Processed` does to a model, done to one row of scores. Raises NothingLeft, and BadLaw for scores of
    NaN or +inf.

    >>> from specref.laws import rational
    >>> from specref.processors import BadWords
    >>> processed(rational([1, 2, 1]), [BadWords([(0, 1)])], prompt=(2,), output=(0,))
    array([Fraction(1, 2), Fraction(0, 1), Fraction(1, 2)], dtype=object)
    """
    for processor in processors:
        row = processor(row, prompt, output)
    return checked(law_of(row), f"the law after {prompt + output}")


def log_probability(row: Row, token: int) -> float:
    """log p(token) under the model's own law, in nats: before temperature, truncation and penalties; -inf where p is 0.

    Taken after them, the log-probability of a greedy request would be 0 throughout.

    >>> from specref.laws import rational
    >>> round(log_probability(rational([1, 3]), 1), 4)
    -0.2877
    """
    probability = law_of(row)[token]
    return math.log(probability) if probability > 0 else -math.inf
