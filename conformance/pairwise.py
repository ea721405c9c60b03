"""Pairwise coverage: few rows of a large matrix in which every two values of different factors meet (that meet in any row)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

Row = Mapping[str, str]
"""A value for each factor of a row; rows need not have the same factors."""


Meeting = tuple[tuple[str, str], ...]
"""Factors with their values, as they stand together in a row."""


def meetings(row: Row) -> set[Meeting]:
    """Every two factors of a row with their values.

    >>> sorted(meetings({"cache": "static", "mode": "off"}))
    [(('cache', 'static'), ('mode', 'off'))]
    """
    return set(combinations(sorted(row.items()), 2))


def covering(rows: Sequence[Row], taken: Sequence[Row] = ()) -> list[int]:
    """Numbers of rows that, with those `taken` already, hold every meeting of any row: the most useful one first, each time.

    >>> rows = [{"a": x, "b": y, "c": z} for x in "12" for y in "12" for z in "12"]
    >>> len(covering(rows)), len(rows)
    (4, 8)
    """
    held = [meetings(row) for row in rows]
    missing: set[Meeting] = set().union(*held).difference(*(meetings(row) for row in taken))
    found = []
    while missing:
        best = max(range(len(rows)), key=lambda number: (len(held[number] & missing), -number))
        missing -= held[best]
        found.append(best)
    return found
