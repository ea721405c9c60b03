"""The output law of a verifier that takes its random numbers as arguments: found, not sampled.

Handed chosen numbers u instead of a generator, a verification function is a step function of u: constant on boxes. Its law
is the volume of these boxes. Along each number in turn, a coarse grid finds neighbours that behave differently, and
bisection finds where between them the change lies, to 2^-30. At V = 256 the law is found to a total variation below 1e-6 in
a fraction of a second, where sampling would need 1e12 tokens.

What can be missed: a piece narrower than the grid's cell whose two neighbours emit the same token. Inverse CDF over distinct
tokens has no such piece. With several numbers, a change along the first is seen by trying it at a few values (`PROBES`) of
the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conformance.statistics.evidence import Floats, Ints, WrongUse

Emits = Callable[[Ints, Floats], Ints]
"""(which draft window `[m]`, uniforms `[m, d]`) -> first emitted token `[m]`."""

GRID = 64
FINEST = 2.0**-30
LARGEST = 1 - 2.0**-24
"""The largest uniform handed over: it is still below 1 in float32."""
PROBES = np.array([0.04, 0.31, 0.55, 0.83])
"""Values of the later numbers at which a change along an earlier one is looked for (shifted per number)."""


@dataclass(frozen=True)
class FoundLaw:
    """The law `[V]`, the mass that was not resolved (an upper bound on its error), and how often the function was asked."""

    law: Floats
    unresolved: float
    calls: int


def law_over_uniforms(emits: Emits, weights: npt.ArrayLike, vocabulary: int, uniforms: int, grid: int = GRID) -> FoundLaw:
    """The law of the token that `emits` gives, over draft windows with `weights [R]` (sum 1) and independent uniform numbers.

    `emits(window [m], u [m, uniforms])` answers m questions at once. For one draft token under the ratio rule: R = V windows
    of weights q, u[:, 0] the accept coin, u[:, 1] the number of the replacement.

    >>> found = law_over_uniforms(lambda window, u: (u[:, 0] >= .3).astype(int), [1.0], 2, 1)
    >>> found.law.round(8).tolist(), found.unresolved < 1e-8
    ([0.3, 0.7], True)
    """
    mass = np.asarray(weights, float)
    if mass.ndim != 1 or (mass < 0).any() or abs(mass.sum() - 1) > 1e-9:
        raise WrongUse(f"weights of the draft windows must be a law, they sum to {mass.sum()}")
    if uniforms < 1 or grid < 2:
        raise WrongUse(f"at least one uniform and a grid of two are needed, got {uniforms}, {grid}")
    search = _Search(emits, vocabulary, uniforms, grid)
    windows = np.flatnonzero(mass)
    fixed = np.zeros((len(windows), 0))
    mass = mass[windows]
    for _ in range(uniforms):
        windows, fixed, mass = search.split(windows, fixed, mass)
    tokens = search.ask(windows, fixed)
    return FoundLaw(np.bincount(tokens, mass, vocabulary).astype(float), min(1.0, search.unresolved), search.calls)


class _Search:
    """Splits one number's axis after another into the pieces on which the function is constant."""

    def __init__(self, emits: Emits, vocabulary: int, uniforms: int, grid: int) -> None:
        self.emits, self.vocabulary, self.uniforms = emits, vocabulary, uniforms
        self.edges = np.append(np.arange(grid) / grid, LARGEST)
        self.unresolved = 0.0
        self.calls = 0

    def ask(self, windows: Ints, u: Floats) -> Ints:
        """One token per question, checked."""
        self.calls += len(windows)
        tokens = np.asarray(self.emits(windows, u))
        if tokens.shape != windows.shape or not ((tokens >= 0) & (tokens < self.vocabulary)).all():
            raise WrongUse(f"the function must give one token in 0..{self.vocabulary - 1} per question, got {tokens.shape}")
        return tokens

    def behaviour(self, windows: Ints, fixed: Floats, value: Floats) -> Ints:
        """The tokens `[m, probes]` where the next number is `value [m]`: at each probe of the numbers still open."""
        still_open = self.uniforms - fixed.shape[1] - 1
        probes = PROBES if still_open else PROBES[:1]
        known = np.concatenate([fixed, value[:, None]], axis=1)
        answers = []
        for probe in probes:
            rest = (probe + 0.37 * np.arange(still_open)) % 1
            answers.append(self.ask(windows, np.concatenate([known, np.tile(rest, (len(known), 1))], axis=1)))
        return np.stack(answers, axis=1)

    def split(self, windows: Ints, fixed: Floats, mass: Floats) -> tuple[Ints, Floats, Floats]:
        """Each row becomes its pieces along the next number: windows, numbers fixed so far (the piece's middle), mass."""
        m, g = len(windows), len(self.edges)
        rows = np.repeat(np.arange(m), g)
        at = np.tile(self.edges, m)
        seen = self.behaviour(windows[rows], fixed[rows], at)
        changes = np.flatnonzero((rows[1:] == rows[:-1]) & (seen[1:] != seen[:-1]).any(axis=1))
        owners, cuts = self._bisect(
            windows, fixed, mass, rows[changes], at[changes], at[changes + 1], seen[changes], seen[changes + 1]
        )
        owners = np.concatenate([owners, np.arange(m), np.arange(m)])
        cuts = np.concatenate([cuts, np.zeros(m), np.ones(m)])
        order = np.lexsort((cuts, owners))
        owners, cuts = owners[order], cuts[order]
        whole = (owners[1:] == owners[:-1]) & (cuts[1:] > cuts[:-1])
        owner, left, right = owners[:-1][whole], cuts[:-1][whole], cuts[1:][whole]
        middle = ((left + right) / 2)[:, None]
        return windows[owner], np.concatenate([fixed[owner], middle], axis=1), mass[owner] * (right - left)

    def _bisect(
        self, windows: Ints, fixed: Floats, mass: Floats, rows: Ints, low: Floats, high: Floats, below: Ints, above: Ints
    ) -> tuple[Ints, Floats]:
        """All places where behaviour changes between low and high; an interval that hides several changes is split further."""
        owners, cuts = [], []
        while len(rows):
            done = high - low <= FINEST
            owners.append(rows[done])
            cuts.append((low[done] + high[done]) / 2)
            self.unresolved += float((mass[rows[done]] * (high - low)[done]).sum())
            rows, low, high = rows[~done], low[~done], high[~done]
            below, above = below[~done], above[~done]
            middle = (low + high) / 2
            seen = self.behaviour(windows[rows], fixed[rows], middle) if len(rows) else below
            first, second = (seen != below).any(axis=1), (seen != above).any(axis=1)
            rows = np.concatenate([rows[first], rows[second]])
            low, high = np.concatenate([low[first], middle[second]]), np.concatenate([middle[first], high[second]])
            below, above = np.concatenate([below[first], seen[second]]), np.concatenate([seen[first], above[second]])
        return np.concatenate(owners or [rows]), np.concatenate(cuts or [low])


def assert_law_by_quadrature(
    emits: Emits, weights: npt.ArrayLike, expected: npt.ArrayLike, uniforms: int, tolerance: float = 1e-5
) -> FoundLaw:
    """Raise AssertionError if the law found lies further than `tolerance` in total variation from `expected [V]`.

    Deterministic: no false-fail rate. `tolerance` covers the function's own arithmetic (float32 sums over V terms: 1e-6).
    """
    target = np.asarray(expected, float)
    found = law_over_uniforms(emits, weights, len(target), uniforms)
    distance = float(np.abs(found.law - target).sum() / 2)
    if distance > tolerance + found.unresolved:
        worst = int(np.abs(found.law - target).argmax())
        raise AssertionError(
            f"total variation {distance:.3g} from the expected law (tolerance {tolerance:g}, unresolved "
            f"{found.unresolved:.1g}); largest at token {worst}: {found.law[worst]:.6g}, expected {target[worst]:.6g}"
        )
    return found


def smallest_detectable_by_quadrature(pieces: Sequence[int], tolerance: float = 1e-5) -> float:
    """The smallest total variation that is surely seen, if no row is cut into more than `pieces[j]` along number j.

    Each cut leaves 2^-30 unresolved, at any place; the distance must exceed the tolerance by what is unresolved, twice.

    >>> smallest_detectable_by_quadrature([2, 256]) < 1.1e-5
    True
    """
    return tolerance + 2 * FINEST * sum(pieces)


def calls_needed_by_quadrature(windows: int, pieces: Sequence[int], grid: int = GRID) -> int:
    """At most how many questions the search asks for rows cut into up to `pieces[j]` along number j.

    For every piece so far: the grid, and 30 halvings per cut, at each probe of the numbers still open.

    >>> calls_needed_by_quadrature(1, [2])
    97
    """
    calls, rows = 0, windows
    for j, parts in enumerate(pieces):
        calls += rows * (grid + 1 + 30 * (parts - 1)) * (len(PROBES) if j < len(pieces) - 1 else 1)
        rows *= parts
    return calls + rows
