"""The exact laws of the registry as a table: total variation to the target, and how often the drafted token is kept.

Rational rows are fractions, found by taking every branch; rows with exponentials or noise vectors are decimals.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from conformance.controls.control import Exact
from conformance.controls.exact import one_token
from conformance.controls.faults import FAULTS
from specref.proof import chosen_chain
from specref.rules.chain import one_hot_ratio, ratio, token_matching


@dataclass(frozen=True)
class Row:
    """One rule: its name, whether it is lawful, and its exact size."""

    name: str
    lawful: bool
    exact: Exact

    @property
    def variation(self) -> str:
        """Total variation to the target."""
        return shown(self.exact.variation())

    @property
    def kept(self) -> str:
        """The probability that the drafted token is kept."""
        return "-" if self.exact.kept is None else shown(self.exact.kept())


def shown(value: Fraction | float) -> str:
    """A fraction with its decimals, or decimals alone.

    >>> shown(Fraction(9, 160)), shown(0.0248), shown(Fraction(0))
    ('9/160 (0.056)', '0.025', '0')
    """
    from_floats = isinstance(value, Fraction) and value.denominator >= 2**30 and value.denominator.bit_count() == 1
    if from_floats or not isinstance(value, Fraction):
        return f"{float(value):.3f}"
    return str(value) if value.denominator == 1 else f"{value} ({float(value):.3f})"


def rows() -> list[Row]:
    """Every exact law of the registry, the lawful rules first."""
    lawful = [
        Row("ratio rule with residual", True, one_token(ratio)),
        Row("draft drawn from q, verified as if one-hot", True, one_token(one_hot_ratio)),
        Row("argmax draft, one-hot verification", True, one_token(one_hot_ratio, chosen_chain([1]))),
        Row("token matching, keeping the compared draw", True, one_token(token_matching)),
    ]
    return lawful + [Row(fault.id, False, fault.exact) for fault in FAULTS if fault.exact is not None]


HEADS = ("rule", "TV to the target", "P(draft kept)", "on")


def cells() -> list[tuple[str, str, str, str]]:
    """The table's rows as text."""
    return [("lawful: " * row.lawful + row.name, row.variation, row.kept, row.exact.on) for row in rows()]
