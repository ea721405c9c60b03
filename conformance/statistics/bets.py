"""Bets: alternatives to the target's law that a bank puts money on.

A bet is a law. Where the engine emits x, a bet of size s on the law r multiplies its wealth by
``1 + s (r(x) / p(x) - 1)``; under a correct engine this has mean 1, whatever r is. Sizes below 1 bet on blends: the
fault shows in a part of the tokens only, and no single token can ruin the bet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from conformance.statistics import fault_laws
from conformance.statistics.evidence import Floats, Ints, WrongUse
from conformance.statistics.rows import TILTS, Emitted, Rows

Law = Callable[[Floats, Floats], Floats]
Formula = Callable[[Floats, Floats, Ints, Rows], Floats]

BLENDS = (0.97, 0.3, 0.1, 0.03)
ROUNDING = 1e-12
"""By how much a probability may fall below 0 where a difference of two sums was rounded, as where p equals q."""


@dataclass(frozen=True)
class Bet:
    """An alternative law and the sizes at which money is put on it.

    ``law(p, q)``       ``[n, V], [n, V] -> [n, V]``: the law under the fault, row by row.
    ``at(emitted, rows)`` the same at the emitted tokens only, ``[n, 1]``, where that is cheaper; None: read from the table.
    ``needs_q``          False for a law of p alone, which can be bet on where no draft or proxy law is known.
    ``weight``           relative prior weight of each size, before the bank makes them sum to 1.
    ``family``           "leak", "temperature", "fault", ...: reports group by it.

    >>> uniform = Bet("uniform", lambda p, q: np.full_like(p, 1 / p.shape[1]))
    >>> p = np.array([[0.5, 0.25, 0.25]])
    >>> rows = Rows(p, p)
    >>> uniform.at_tokens(Emitted(np.array([0]), rows), rows).round(3)
    array([0.333])
    """

    name: str
    law: Law
    sizes: tuple[float, ...] = BLENDS
    at: Callable[[Emitted, Rows], Floats] | None = None
    needs_q: bool = True
    weight: float = 1.0
    family: str = "fault"

    def __post_init__(self) -> None:
        if not self.sizes or not all(0 < size < 1 for size in self.sizes):
            raise WrongUse(f"bet {self.name!r} has sizes {self.sizes}; each must lie strictly between 0 and 1")
        if not self.weight > 0:
            raise WrongUse(f"bet {self.name!r} has weight {self.weight}; it must be positive")

    @property
    def seal(self) -> str:
        """What a plan records of the bet: name, sizes and weight."""
        return f"{self.name}: sizes {', '.join(f'{size:g}' for size in self.sizes)}; weight {self.weight:g}"

    def at_tokens(self, emitted: Emitted, rows: Rows) -> Floats:
        """``r(x)`` for the emitted tokens, ``[n]``."""
        return (self.at(emitted, rows) if self.at is not None else emitted.of(self.table(rows)))[:, 0]

    def table(self, rows: Rows) -> Floats:
        """The whole law ``[n, V]``; raises if it is none."""
        law = np.asarray(self.law(rows.p, rows.q), dtype=np.float64)
        if law.shape != rows.p.shape:
            raise WrongUse(f"bet {self.name!r} returned a law of shape {law.shape} for p of shape {rows.p.shape}")
        if np.abs(law.sum(axis=1) - 1).max(initial=0.0) > 1e-9 or law.min(initial=0.0) < -ROUNDING:
            raise WrongUse(f"bet {self.name!r} returned rows that are not laws; they must sum to 1 within 1e-9")
        positive: Floats = np.maximum(law, 0.0)
        return positive


def from_formula(name: str, formula: Formula, sizes: tuple[float, ...] = BLENDS, **more: object) -> Bet:
    """A bet whose law is one formula over p, q and token numbers; see `fault_laws`."""

    def law(p: Floats, q: Floats) -> Floats:
        tokens = np.arange(p.shape[1])[None, :]
        return np.broadcast_to(formula(p, q, tokens, Rows(p, q)), p.shape)

    def at(emitted: Emitted, rows: Rows) -> Floats:
        return formula(emitted.p, emitted.q, emitted.tokens, rows)

    return Bet(name, law, sizes, at, **more)  # type: ignore[arg-type]


def temperature_bet(exponent: float) -> Bet:
    """The target sampled at temperature ``1 / (1 + exponent)``."""

    def formula(p: Floats, q: Floats, tokens: Ints, rows: Rows) -> Floats:
        return fault_laws.tempered(exponent, p, rows)

    name = f"temperature {1 / (1 + exponent):.3f}"
    return from_formula(name, formula, (0.999,), needs_q=False, family="temperature")


TEMPERATURES = tuple(temperature_bet(sign * exponent) for exponent in TILTS for sign in (1, -1))

LEAK = from_formula(
    "leak to the draft", fault_laws.draft, (0.999, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001), weight=2.0, family="leak"
)
"""The commonest fault in public reports, so it is believed twice as much."""

FAULTS = (
    from_formula("residual overused", fault_laws.residual_overused, (0.3, 0.1, 0.03, 0.01), family="leak"),
    from_formula("resample from the target", fault_laws.resample_from_target),
    Bet("same coin", fault_laws.same_coin, at=fault_laws.same_coin_at),
    from_formula("absolute residual", fault_laws.absolute_residual),
    from_formula("ratio upside down", fault_laws.upside_down_ratio),
    from_formula("unnormalised residual", fault_laws.unnormalised_residual),
    from_formula("argmax draft", fault_laws.argmax_draft),
    from_formula("truncated draft, whole q", fault_laws.truncated_draft),
    from_formula("one kept token too few", fault_laws.rarest_token_cut, (0.97,), needs_q=False),
)

STANDARD_BETS: tuple[Bet, ...] = (LEAK, *TEMPERATURES, *FAULTS)
"""The fault bank of every audit; pass ``(*STANDARD_BETS, your_bet)`` to add one."""


def seals(without: Collection[str] = ()) -> tuple[str, ...]:
    """What a plan records of the standard bets, but for those on the laws that are named.

    >>> len(seals()) - len(seals({"leak to the draft"}))
    1
    """
    return tuple(bet.seal for bet in STANDARD_BETS if bet.name not in without)


def law_of(bet: str) -> str:
    """The law that a bet is on, from the name that reports give the bet: without its size.

    >>> law_of("leak to the draft, size 0.3"), law_of("head of mass 50%, 97%"), law_of("rejected drafts let through 0.1")
    ('leak to the draft', 'head of mass 50%', 'rejected drafts let through')
    """
    return re.sub(r"(, size [\d.]+|, \d+%| [\d.]+)$", "", bet)
