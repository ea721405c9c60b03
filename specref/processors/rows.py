"""A row of scores, on which processors work: float64 logits, or for exact models the weights that logits stand for.

* `float64 [V]`: logits; -inf means "cannot be drawn".
* `object [V]` of Fractions: weights, that is exp(logit); 0 means "cannot be drawn".

Adding to a logit is multiplying its weight, and scaling a logit is raising its weight to a power, so a processor written with
the four functions below runs on both. On weights, exp and roots are taken in float64 and that float is then read as the
Fraction it is: from there on everything is exact, and the law of a processed table model can be enumerated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from specref.laws import Law, norm
from specref.models import BadModel, LanguageModel, Tokens, softmax

Row: TypeAlias = npt.NDArray[Any]
Mask: TypeAlias = npt.NDArray[np.bool_]


class NothingLeft(ValueError):
    """The processors forbid every token."""


def rows_of(model: LanguageModel, context: Tokens, drafted: Tokens) -> Sequence[Row]:
    """The model's rows `[k+1, V]` after the context and 0..k of the `drafted` tokens, before any processor.

    These are its raw logits if it has a method `logits(tokens, rows)`; else log p (and the repetition penalty, which looks at
    the sign of a logit, then sees no positive one); for an exact model its Fractions. Raises BadModel for NaN or +inf.

    >>> from specref.models import TableModel
    >>> rows_of(TableModel(3, seed=1), (0, 2), ())[0]
    array([Fraction(4, 9), Fraction(1, 18), Fraction(1, 2)], dtype=object)
    >>> rows_of(TableModel(3, seed=1, exact=False), (0, 2), ())[0].round(3)
    array([-0.811, -2.89 , -0.693])
    """
    if hasattr(model, "logits"):
        logits = np.asarray(model.logits(context + drafted, len(drafted) + 1), dtype=np.float64)
        bad = np.isnan(logits) | (logits == np.inf)
        if bad.any():
            row, token = np.argwhere(bad)[0]
            raise BadModel(f"the logit of token {token} after {row} drafts is {logits[row, token]}; logits must be below +inf")
        return list(logits)
    laws = model.next_laws(context, drafted)
    with np.errstate(divide="ignore"):
        return [law if law.dtype == object else np.log(law) for law in laws]


def law_of(row: Row) -> Law:
    """The law `[V]` of a row: its softmax, or its weights normalised. Raises NothingLeft if no token can be drawn.

    >>> law_of(np.array([0.0, -np.inf, 0.0]))
    array([0.5, 0. , 0.5])
    """
    if not can_be_drawn(row).any():
        raise NothingLeft(f"the processors forbid all {len(row)} tokens; allow at least one (bad words and min tokens add up)")
    return norm(row) if row.dtype == object else softmax(row)


def can_be_drawn(row: Row) -> Mask:
    """Which tokens have any weight, `[V]`.

    >>> can_be_drawn(np.array([1.0, -np.inf]))
    array([ True, False])
    """
    mask: Mask = np.asarray(row > (0 if row.dtype == object else -np.inf), dtype=bool)
    return mask


def keep_only(row: Row, mask: Mask) -> Row:
    """The row with every token outside `mask [V]` forbidden.

    >>> keep_only(np.array([1.0, 2.0]), np.array([True, False]))
    array([  1., -inf])
    """
    kept = row.copy()
    kept[~mask] = Fraction(0) if row.dtype == object else -np.inf
    return kept


def forbid(row: Row, tokens: Iterable[int]) -> Row:
    """The row `[V]` with these `tokens` forbidden.

    >>> forbid(np.array([1.0, 2.0]), [1])
    array([  1., -inf])
    """
    mask = np.ones(len(row), dtype=bool)
    mask[list(tokens)] = False
    return keep_only(row, mask)


def add(row: Row, amounts: Mapping[int, float]) -> Row:
    """The row with `amounts[token]` added to the logit of each such token: its weight is multiplied by exp(amount).

    >>> add(np.array([1.0, 2.0]), {0: 0.5})
    array([1.5, 2. ])
    """
    changed = row.copy()
    for token, amount in amounts.items():
        if row.dtype == object:
            changed[token] *= Fraction(math.exp(amount))
        else:
            changed[token] += amount
    return changed


def scale(row: Row, tokens: Iterable[int], factor: float | Fraction) -> Row:
    """The row with the logits of `tokens` multiplied by `factor`: their weights are raised to that power.

    >>> scale(np.array([1.0, 2.0]), [1], 2)
    array([1., 4.])
    >>> from specref.laws import rational
    >>> scale(rational([1, 3]), [1], 2)                  # a whole power is exact
    array([Fraction(1, 4), Fraction(9, 16)], dtype=object)
    """
    changed = row.copy()
    for token in tokens:
        changed[token] = _power(row[token], factor) if row.dtype == object else row[token] * float(factor)
    return changed


def _power(weight: Fraction, power: float | Fraction) -> Fraction:
    if weight == 0:
        return weight
    if power == int(power):
        return weight ** int(power)
    return Fraction(float(weight) ** float(power))
