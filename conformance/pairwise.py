"""Pairwise coverage: few rows of a large matrix in which every two values of different factors meet (that meet in any row)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Row = Mapping[str, str]
"""A value for each factor of a row; rows need not have the same factors."""


def meetings(row: Row) -> set[tuple[str, str, str, str]]:
    """Every two factors of a row with their values.

    >>> sorted(meetings({"cache": "static", "mode": "off"}))
    [('cache', 'static', 'mode', 'off')]
    """
    factors = sorted(row)
    return {(one, row[one], other, row[other]) for i, one in enumerate(factors) for other in factors[i + 1 :]}


def covering(rows: Sequence[Row], taken: Sequence[Row] = ()) -> list[int]:
    """Numbers of rows that, with those `taken` already, hold every meeting of any row: the most useful one first, each time.

    >>> rows = [{"a": x, "b": y, "c": z} for x in "12" for y in "12" for z in "12"]
    >>> len(covering(rows)), len(rows)
    (4, 8)
    """
    missing = set().union(*map(meetings, rows)) - set().union(*map(meetings, taken)) if rows else set()
    found = []
    while missing:
        best = max(range(len(rows)), key=lambda number: (len(meetings(rows[number]) & missing), -number))
        missing -= meetings(rows[best])
        found.append(best)
    return found
