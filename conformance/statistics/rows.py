"""Sums over the vocabulary that several laws share, each computed once per block of rows.

``p`` and ``q`` are ``[n, V]``; every sum is ``[n, 1]``, so that it broadcasts against a whole table ``[n, V]`` and
against one column of values at the emitted tokens ``[n, 1]`` alike.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from conformance.statistics.evidence import Floats, Ints

TINIEST = 1e-300
"""Stands for zero under a logarithm or a negative power; its square is still zero."""


def total(table: Floats) -> Floats:
    """Row sums ``[n, 1]`` (a matrix product: three times as fast as ``sum(axis=1)`` on short rows)."""
    return (table @ np.ones(table.shape[1]))[:, None]


class Rows:
    """The laws of one block of tokens and the sums that laws of faults need."""

    def __init__(self, p: Floats, q: Floats) -> None:
        self.p, self.q = p, q
        self.n, self.V = p.shape
        self._powers: dict[float, Floats] = {}

    @cached_property
    def smaller(self) -> Floats:
        """``min(p, q)``, ``[n, V]``: what the ratio rule emits as accepted draft tokens."""
        return np.minimum(self.p, self.q)

    @cached_property
    def overlap(self) -> Floats:
        """``sum min(p, q)``: the acceptance of the ratio rule."""
        return np.minimum(total(self.smaller), 1.0)

    @cached_property
    def positive_part(self) -> Floats:
        """``sum max(p - q, 0)``, the mass of the residual before it is normalised."""
        return total(self.p - self.smaller)

    @cached_property
    def upside_down(self) -> Floats:
        """Acceptance of the rule that keeps a draft with probability ``min(1, q / p)``."""
        return total(self.q * ratio_to_one(self.q, self.p))

    @cached_property
    def argmax(self) -> Ints:
        """The draft's most likely token."""
        most: Ints = np.argmax(self.q, axis=1)[:, None]
        return most

    @cached_property
    def argmax_accepted(self) -> Floats:
        """``min(1, p / q)`` at the draft's most likely token."""
        p, q = (np.take_along_axis(table, self.argmax, axis=1) for table in (self.p, self.q))
        return ratio_to_one(p, q)

    @cached_property
    def head_floor(self) -> Floats:
        """Smallest q among the draft's head: its top tokens with a mass of at least .88, and one more."""
        falling = np.sort(self.q, axis=1)[:, ::-1]
        mass = np.cumsum(falling, axis=1)
        last = np.clip((mass < 0.88).sum(axis=1, keepdims=True), 1, self.V - 1)
        return np.take_along_axis(falling, last, axis=1)

    @cached_property
    def head_mass(self) -> Floats:
        """Mass of the draft's head."""
        return total(np.where(self.q >= self.head_floor, self.q, 0.0))

    @cached_property
    def head_accepted(self) -> Floats:
        """Acceptance when drafts come from the head while the whole q is handed over."""
        return total(np.where(self.q >= self.head_floor, self.smaller, 0.0)) / self.head_mass

    @cached_property
    def rarest(self) -> Floats:
        """Smallest positive p of the row: the last token that a truncated target keeps."""
        least: Floats = np.min(self.p, axis=1, keepdims=True, where=self.p > 0, initial=1.0)
        return least

    @cached_property
    def rarest_mass(self) -> Floats:
        """Mass of all tokens whose p is the smallest positive one."""
        return total(np.where(self.p == self.rarest, self.p, 0.0))

    def power_sum(self, exponent: float) -> Floats:
        """``sum p ** (1 + exponent)``: the normaliser of the target's law at temperature ``1 / (1 + exponent)``."""
        if exponent not in self._powers:
            self._fill_powers()
        if exponent not in self._powers:
            self._powers[exponent] = total(np.where(self.p > 0, np.maximum(self.p, TINIEST) ** (1 + exponent), 0.0))
        return self._powers[exponent]

    def _fill_powers(self) -> None:
        # One exponential serves all tilts: p**(4h) is p**h squared twice. (A pass of squaring costs a third of a
        # pass of exp, and every block needs eight tilts.)
        logs = np.log(np.maximum(self.p, TINIEST))
        for sign in (1, -1):
            tilt = np.exp(sign * TILTS[0] * logs)
            for exponent in TILTS:
                if exponent != TILTS[0]:
                    np.square(tilt, out=tilt)
                    np.square(tilt, out=tilt)
                self._powers[sign * exponent] = np.einsum("ij,ij->i", self.p, tilt)[:, None]


TILTS = (0.005, 0.02, 0.08, 0.32)
"""Exponents of the temperature tilts, each four times the one before; both signs are carried."""


def ratio_to_one(numerator: Floats, denominator: Floats) -> Floats:
    """``min(1, numerator / denominator)``, 1 where both are zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(numerator >= denominator, 1.0, numerator / denominator)
