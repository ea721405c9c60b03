"""Sums over the vocabulary that several laws share, each computed once per block of rows.

``p`` and ``q`` are ``[n, V]``; every sum is ``[n, 1]``, so that it broadcasts against a whole table ``[n, V]`` and
against one column of values at the emitted tokens ``[n, 1]`` alike.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from conformance.statistics.evidence import Floats, Ints

TINIEST = 1e-300
"""Stands for zero under a logarithm or a negative power; its square is still zero."""


HEAD = 0.88
"""Mass of the head of q: what common top-k and top-p settings keep of a draft."""

BLOCK = 16


def total(table: Floats) -> Floats:
    """Row sums ``[n, 1]`` (a matrix product: three times as fast as ``sum(axis=1)`` on short rows)."""
    return (table @ np.ones(table.shape[1]))[:, None]


def masked_total(table: Floats, mask: NDArray[np.bool_]) -> Floats:
    """Row sums ``[n, 1]`` over a mask (four times as fast as a sum of ``np.where``)."""
    sums: Floats = np.einsum("ij,ij->i", table, mask)[:, None]
    return sums


class Emitted:
    """The emitted tokens ``[n, 1]`` with their p and q, ``[n, 1]``: one column of the tables in `Rows`."""

    def __init__(self, tokens: Ints, rows: Rows) -> None:
        self.index = (np.arange(len(tokens)), tokens)
        self.tokens = tokens[:, None]
        self.p = rows.p[self.index][:, None]
        self.q = rows.q[self.index][:, None]

    def of(self, table: Floats) -> Floats:
        """The column of any other table at the emitted tokens, ``[n, 1]``."""
        column: Floats = table[self.index][:, None]
        return column


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
    def left(self) -> Floats:
        """``max(p - q, 0)``, ``[n, V]``: the residual before it is normalised."""
        difference: Floats = self.p - self.smaller
        return difference

    @cached_property
    def positive_part(self) -> Floats:
        """``sum max(p - q, 0)``, the mass of the residual before it is normalised."""
        return total(self.left)

    @cached_property
    def ratio(self) -> Floats:
        """``q / p``, ``[n, V]``; infinite or NaN where p = 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            quotient: Floats = self.q / self.p
        return quotient

    @cached_property
    def upside_down(self) -> Floats:
        """Acceptance of the rule that keeps a draft with probability ``min(1, q / p)``; where p = 0 that is 1."""
        if self.p.min(initial=1.0) > 0:
            accepted: Floats = np.einsum("ij,ij->i", self.smaller, self.ratio)[:, None]
            return accepted
        return total(self.q * ratio_to_one(self.q, self.p))

    @cached_property
    def argmax(self) -> Ints:
        """The draft's most likely token."""
        most: Ints = np.argmax(self.q, axis=1)[:, None]
        return most

    @cached_property
    def argmax_accepted(self) -> Floats:
        """``min(1, p / q)`` at the draft's most likely token."""
        at = np.arange(self.n), self.argmax[:, 0]
        return ratio_to_one(self.p[at], self.q[at])[:, None]

    @cached_property
    def head_floor(self) -> Floats:
        """Smallest q among the draft's head: its top tokens up to a mass of at least .88, and at least two."""
        # A running sum over a whole row is ten times as slow as block sums and one running sum inside a block.
        blocks = -(-self.V // BLOCK)
        falling = np.zeros((self.n, blocks * BLOCK))
        falling[:, : self.V] = np.sort(self.q, axis=1)[:, ::-1]
        parts, each = falling.reshape(self.n, blocks, BLOCK), np.arange(self.n)
        sums = parts @ np.ones(BLOCK)
        upto = np.cumsum(sums, axis=1)
        block = np.minimum((upto < HEAD).sum(axis=1), blocks - 1)
        before = upto[each, block] - sums[each, block]
        within = (before[:, None] + np.cumsum(parts[each, block], axis=1) < HEAD).sum(axis=1)
        last = np.clip(block * BLOCK + within, 1, self.V - 1)
        floor: Floats = falling[each, last][:, None]
        return floor

    @cached_property
    def head(self) -> NDArray[np.bool_]:
        """The draft's head, ``[n, V]``."""
        return self.q >= self.head_floor

    @cached_property
    def head_mass(self) -> Floats:
        """Mass of the draft's head."""
        return masked_total(self.q, self.head)

    @cached_property
    def head_accepted(self) -> Floats:
        """Acceptance when drafts come from the head while the whole q is handed over."""
        return masked_total(self.smaller, self.head) / self.head_mass

    @cached_property
    def rarest(self) -> Floats:
        """Smallest positive p of the row: the last token that a truncated target keeps."""
        least: Floats = self.p.min(axis=1, keepdims=True)
        truncated = least[:, 0] == 0
        if truncated.any():
            least[truncated] = np.where(self.p[truncated] > 0, self.p[truncated], 1.0).min(axis=1, keepdims=True)
        return least

    @cached_property
    def rarest_mass(self) -> Floats:
        """Mass of all tokens whose p is the smallest positive one."""
        return masked_total(self.p, self.p == self.rarest)

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
