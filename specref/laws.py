"""Laws over tokens: 1-D arrays of `V` probabilities, and the arithmetic that verification rules do on them.

A law is a NumPy array, either `float64` or `object` holding `fractions.Fraction`. The same rule runs on both: with floats it
samples, with Fractions its output law is computed exactly. Only this module does arithmetic on laws, because two things go
wrong quietly elsewhere: a Fraction built from NumPy integers overflows, and `.sum()` adds in another order than the cumulative
sum that sampling uses (they differ in most rows of a large vocabulary).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

Law: TypeAlias = npt.NDArray[Any]
Outcome = TypeVar("Outcome")

NO_LAW: Law = np.empty(0)
"""Stands where no law exists: the root of a token tree was drawn by nobody."""


class BadLaw(ValueError):
    """Something given as a law is not one."""


def rational(weights: Iterable[int]) -> Law:
    """The exact law proportional to integer `weights`, as an object array `[V]` of Fractions.

    >>> rational([1, 2, 1])
    array([Fraction(1, 4), Fraction(1, 2), Fraction(1, 4)], dtype=object)

    Raises BadLaw if a weight is negative or all are zero.
    """
    integers = [int(weight) for weight in weights]
    whole = sum(integers)
    if whole <= 0 or min(integers) < 0:
        raise BadLaw(f"weights must be non-negative with a positive sum, got {integers}")
    law = np.empty(len(integers), dtype=object)
    law[:] = [Fraction(weight, whole) for weight in integers]
    return law


def checked(law: npt.ArrayLike, what: str = "law") -> Law:
    """`law` as an array `[V]`, after checking that it is one: finite, non-negative, summing to 1.

    Floats must sum to 1 within 1e-9; Fractions exactly.

    >>> checked([0.25, 0.75])
    array([0.25, 0.75])
    >>> checked([0.25, 0.7], "q")
    Traceback (most recent call last):
    specref.laws.BadLaw: q sums to 0.95, not to 1
    """
    array: Law = np.asarray(law)
    if array.ndim != 1 or array.size == 0:
        raise BadLaw(f"{what} must be one-dimensional and not empty, got shape {array.shape}")
    if array.dtype == object:
        return _checked_exact(array, what)
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        index = int(np.flatnonzero(~np.isfinite(array))[0])
        raise BadLaw(f"{what} holds {array[index]} at token {index}; every probability must be finite")
    if array.min() < 0:
        raise BadLaw(f"{what} holds {array.min()} at token {array.argmin()}; no probability may be negative")
    whole = float(total(array))
    if abs(whole - 1) > 1e-9:
        raise BadLaw(f"{what} sums to {whole:.12g}, not to 1")
    return array


def _checked_exact(law: Law, what: str) -> Law:
    for token, weight in enumerate(law):
        if not isinstance(weight, Fraction) or type(weight.numerator) is not int:
            raise BadLaw(f"{what} holds {weight!r} at token {token}; an exact law holds Fractions of Python ints only")
        if weight < 0:
            raise BadLaw(f"{what} holds {weight} at token {token}; no probability may be negative")
    if total(law) != 1:
        raise BadLaw(f"{what} sums to {total(law)}, not to 1")
    return law


def total(weights: Law) -> Any:
    """The last cumulative sum of `weights [V]`: added in index order, exactly as `Chance.picks` adds.

    >>> total(rational([1, 2, 1]))
    Fraction(1, 1)
    """
    return weights.cumsum()[-1]


def norm(weights: Law) -> Law:
    """`weights [V]` divided by their total: a law.

    >>> norm(np.array([1.0, 3.0]))
    array([0.25, 0.75])

    Raises BadLaw if the total is not positive.
    """
    whole = total(weights)
    if not whole > 0:
        raise BadLaw(f"cannot normalise weights that sum to {whole}")
    law: Law = weights / (Fraction(whole) if weights.dtype == object else whole)
    return law


def positive_part(weights: Law) -> Law:
    """max(weights, 0) token by token, `[V]`.

    >>> positive_part(np.array([0.5, -0.25]))
    array([0.5, 0. ])
    """
    positive: Law = np.maximum(weights, 0)
    return positive


def residual(p: Law, q: Law) -> Law:
    """What the target `p [V]` has more of than the draft `q [V]`: max(p - q, 0), not normalised.

    Source: Leviathan et al. 2211.17192, section 2.3. After a rejection of a token drawn from q it is never empty in exact
    arithmetic, and an empty one raises. In floating point p may lie below q everywhere by an ulp (a quarter of the rows where p
    and q are nearly equal in float32); then nothing tells the two laws apart and p itself is returned.

    >>> residual(rational([1, 3]), rational([1, 1]))
    array([0, Fraction(1, 4)], dtype=object)
    >>> residual(rational([1, 1]), rational([1, 1]))
    Traceback (most recent call last):
    specref.laws.BadLaw: the exact residual of p and q is empty: nothing can have been rejected
    """
    left = positive_part(p - q)
    if left.any():
        return left
    if p.dtype == object:
        raise BadLaw("the exact residual of p and q is empty: nothing can have been rejected")
    return p


def without(law: Law, token: int) -> Law:
    """`law [V]` with the weight of `token` set to zero, not renormalised.

    >>> without(np.array([0.25, 0.75]), 1)
    array([0.25, 0.  ])
    """
    left = law.copy()
    left[token] = 0
    return left


def one_hot(token: int, like: Law) -> Law:
    """The law `[V]` that is certain of `token`, in the arithmetic of `like [V]`.

    >>> one_hot(1, like=rational([1, 1]))
    array([Fraction(0, 1), Fraction(1, 1)], dtype=object)
    """
    law = np.full_like(like, Fraction(0) if like.dtype == object else 0)  # like * 0 would keep a NaN of a row that nobody reads
    law[token] += 1
    return law


def overlap(p: Law, q: Law) -> Any:
    """sum(min(p, q)): the probability that the ratio rule keeps a token drawn from `q [V]`. 1 minus their total variation.

    Source: Leviathan et al. 2211.17192, theorem 3.5.

    >>> overlap(rational([1, 3]), rational([1, 1]))
    Fraction(3, 4)
    """
    return total(np.minimum(p, q))


def total_variation(a: Mapping[Outcome, Any] | Law, b: Mapping[Outcome, Any] | Law) -> Any:
    """Half the sum of |a - b| over all outcomes, for two laws over tokens `[V]` or two `{outcome: probability}`.

    >>> total_variation(rational([1, 3]), rational([1, 1]))
    Fraction(1, 4)
    >>> total_variation({"a": Fraction(1)}, {"b": Fraction(1)})
    Fraction(1, 1)
    """
    one: Mapping[Any, Any] = a if isinstance(a, Mapping) else dict(enumerate(a))
    other: Mapping[Any, Any] = b if isinstance(b, Mapping) else dict(enumerate(b))
    return sum(abs(one.get(outcome, 0) - other.get(outcome, 0)) for outcome in {*one, *other}) / 2
