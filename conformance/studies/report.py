"""Dated Markdown tables of a study, with the command that made them."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy

Row = Sequence[object]


def table(heads: Sequence[str], rows: Sequence[Row]) -> str:
    """A Markdown table.

    >>> print(table(["fault", "n"], [["leak", 12]]))
    | fault | n |
    | --- | --- |
    | leak | 12 |
    """
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def write(path: Path, title: str, command: str, parts: Sequence[str]) -> None:
    """Write a report: title, date, command and versions, then its parts."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}, SciPy {scipy.__version__}"
    head = f"# {title}\n\nMade on {today} by `{command}` ({versions})."
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join([head, *parts]) + "\n", encoding="utf-8")


def ratio(value: float) -> str:
    """A ratio with two significant digits; "-" where a test never decided."""
    return "-" if not np.isfinite(value) else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return ratio(value)
    return str(value)
