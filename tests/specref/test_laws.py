"""Laws: what is refused, and the identities that verification rests on."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given

from specref import strategies
from specref.laws import (
    BadLaw,
    checked,
    norm,
    one_hot,
    overlap,
    positive_part,
    rational,
    residual,
    total,
    total_variation,
    without,
)


@given(strategies.pairs(4))
def test_what_is_kept_and_the_residual_make_up_the_target(pair) -> None:
    p, q = pair
    assert (np.minimum(p, q) + positive_part(p - q) == p).all()
    assert overlap(p, q) == 1 - total_variation(p, q)
    if (p != q).any():
        assert total(residual(p, q)) == total_variation(p, q)


@given(strategies.laws(4))
def test_norm_undoes_scaling(law) -> None:
    assert (norm(law * 7) == law).all()
    assert total(norm(law * Fraction(1, 7))) == 1


@pytest.mark.parametrize(
    ("law", "named"),
    [
        ([0.25, 0.7], "sums to 0.95"),
        ([0.5, 0.5 + 1e-8], "sums to 1.00000001"),
        ([1.5, -0.5], "-0.5 at token 1"),
        ([0.5, float("nan")], "nan at token 1"),
        ([float("inf"), 0.0], "inf at token 0"),
        ([], "shape"),
        ([[0.5, 0.5]], r"\(1, 2\)"),
        (np.array([Fraction(1, 2), Fraction(1, 3)], dtype=object), "sums to 5/6"),
        (np.array([Fraction(3, 2), Fraction(-1, 2)], dtype=object), "-1/2 at token 1"),
        (np.array([Fraction(1, 2), 0.5], dtype=object), "0.5 at token 1"),
        (np.array([Fraction(np.int64(1), np.int64(1))], dtype=object), "Python ints"),
    ],
)
def test_what_is_no_law_is_named(law, named) -> None:
    with pytest.raises(BadLaw, match=named):
        checked(law, "q")


def test_a_law_may_be_off_by_rounding() -> None:
    checked([0.5, 0.5 + 9e-10])
    checked(np.full(1000, 1 / 1000, dtype=np.float32) / np.full(1000, 1 / 1000, dtype=np.float32).sum(dtype=np.float64))


@pytest.mark.parametrize("weights", [[], [0, 0], [2, -1]])
def test_rational_needs_weight(weights) -> None:
    with pytest.raises(BadLaw):
        rational(weights)


def test_an_empty_residual() -> None:
    p = np.array([0.25, 0.75])
    assert residual(p, p + np.array([0.0, 1e-17])) is p  # rounding cannot tell the two apart
    with pytest.raises(BadLaw, match="empty"):
        residual(rational([1, 3]), rational([1, 3]))


def test_norm_of_nothing() -> None:
    with pytest.raises(BadLaw, match="sum to 0"):
        norm(rational([1, 1]) * 0)


def test_exact_arithmetic_stays_exact() -> None:
    p, q = rational([1, 2, 4]), rational([4, 2, 1])
    for law in (norm(residual(p, q)), one_hot(1, like=p), norm(without(p, 0))):
        checked(law)
        assert law.dtype == object
    assert (p == rational([1, 2, 4])).all()  # nothing is changed in place


def test_total_adds_in_index_order() -> None:
    row = np.array([1e16, 1.0, -1e16, 1.0])
    assert total(row) == row.cumsum()[-1] == 1.0


def test_a_certain_token_beside_a_row_that_nobody_reads() -> None:
    assert list(one_hot(1, like=np.array([np.nan, np.inf]))) == [0, 1]
