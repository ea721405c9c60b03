"""A verification function alone: LAW-3 to LAW-5 and EDGE, on a hundred kinds of rows, as a real verifier is audited."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TypeAlias

import numpy as np

from conformance.checks.component_law import ROWS, Round, component_findings, mixup_finding, rounds_of
from conformance.checks.edge import ask_edges, edge_findings
from conformance.checks.places import nonsense
from conformance.components import ChainVerifier, Floats, Ints, TreeVerifier, VerifiedBatch
from conformance.controls.control import SHARE, Audit, Look, look_sizes
from conformance.engines.own_components import ReferenceChain, ReferenceTree
from conformance.findings import Finding
from specref.chance import Chance, SampledChance, UniformChance
from specref.laws import BadLaw
from specref.rules import Rule

Given: TypeAlias = Callable[[Floats, Floats | None, Ints], tuple[Floats, Floats | None, Ints]]
"""Changes p `[B, k+1, V]`, q `[B, k, V]` and drafts `[B, k]` on their way into a verifier."""


GivenTree: TypeAlias = Callable[[Floats, Floats | None, Ints, Ints], tuple[Floats, Floats | None, Ints, Ints]]
"""Changes p, q `[B, N, V]`, tokens and parents `[B, N]` on their way into a verifier."""

ROWS_OF_AN_AUDIT = 27 * ROWS
"""Rows that one audit of a verifier spends at most. Looks at 1, 3, 9 and 27 times `ROWS` end where a batch of rows does, as the
bounds suppose; the faults that take longest needed 11 times `ROWS` at most in 40 runs."""


class ChainUnderTest(ReferenceChain):
    """A chain rule, row by row, with one thing changed: the function, its chance, or what it is given.

    chance: overrides of `SampledChance`; such a verifier takes no uniforms. deciding: overrides of how a uniform decides, also
    of those that are handed over. checks: whether laws are checked at the border, as `specref.generate` checks them.
    """

    def __init__(
        self,
        rule: str,
        function: Rule | None = None,
        *,
        chance: Callable[[int], Chance] | None = None,
        deciding: type[UniformChance] | None = None,
        given: Given | None = None,
        checks: bool = True,
    ) -> None:
        super().__init__(rule, function, "a control")
        self.takes_uniforms = chance is None
        self._chance, self._deciding, self._given, self._checks = chance or SampledChance, deciding, given, checks

    def verify(self, p: Floats, q: Floats | None, drafts: Ints, *, uniforms: Floats | None, seed: int) -> VerifiedBatch:
        """See `ChainVerifier.verify`."""
        if self._given is not None:
            p, q, drafts = self._given(p, q, drafts)
        if self._checks:
            check_laws(p)
        return super().verify(p, q, drafts, uniforms=uniforms, seed=seed)

    def chance(self, slot: str, uniforms: Floats | None, row: int, k: int, seed: int) -> Chance:
        """See `ReferenceChain.chance`."""
        if uniforms is None and self._deciding is None:
            return self._chance(seed * 1_000_003 + row)
        made = super().chance(slot, uniforms, row, k, seed)
        if self._deciding is not None:  # the same object, which decides otherwise
            made.__class__ = type(self._deciding.__name__, (self._deciding, type(made)), {})
        return made


def check_laws(p: Floats) -> None:
    """Raise BadLaw unless every row of p `[..., V]` is a law."""
    if not (np.isfinite(p).all() and (p >= 0).all() and (abs(p.sum(axis=-1) - 1) < 1e-6).all()):
        raise BadLaw("a row of the target's laws is not finite, holds a negative number, or does not sum to 1")


def chain(
    rule: str = "ratio",
    function: Rule | None = None,
    *,
    chance: Callable[[int], Chance] | None = None,
    deciding: type[UniformChance] | None = None,
    given: Given | None = None,
    checks: bool = True,
    n: int = ROWS_OF_AN_AUDIT,
) -> Audit:
    """The audit of a chain rule that is declared as `rule`, with one thing changed; see `ChainUnderTest`."""
    make = partial(ChainUnderTest, rule, function, chance=chance, deciding=deciding, given=given, checks=checks)
    return _audit("chain verifier", make, n)


def tree(rule: str, function: Rule | None = None, *, given: GivenTree | None = None, n: int = ROWS_OF_AN_AUDIT) -> Audit:
    """The audit of a tree rule that is declared as `rule`, with one thing changed."""
    make = partial(TreeUnderTest, rule, function, given=given)
    return _audit("tree verifier", make, n)


def _audit(stage: str, make: Callable[[], ChainVerifier | TreeVerifier], n: int) -> Audit:
    def looks(seed: int, n: int, without: Collection[str] = ()) -> Iterator[Look]:
        return audit_verifier(make(), seed, n, without=without)

    return Audit(stage, "rows", n, looks, looks)


class TreeUnderTest(ReferenceTree):
    """A tree rule, row by row, with the function or what it is given changed."""

    def __init__(self, rule: str, function: Rule | None = None, *, given: GivenTree | None = None) -> None:
        super().__init__(rule, function, "a control")
        self._given = given

    def verify(
        self, p: Floats, q: Floats | None, tokens: Ints, parents: Ints, *, uniforms: Floats | None, seed: int
    ) -> VerifiedBatch:
        """See `TreeVerifier.verify`."""
        if self._given is not None:
            p, q, tokens, parents = self._given(p, q, tokens, parents)
        return super().verify(p, q, tokens, parents, uniforms=uniforms, seed=seed)


def audit_verifier(
    verifier: ChainVerifier | TreeVerifier,
    seed: int,
    n: int,
    sizes: Iterable[int] | None = None,
    *,
    without: Collection[str] = (),
) -> Iterator[Look]:
    """Everything that is asked of a verifier. n: rows. sizes: when to look, where that is not left to `look_sizes`. without:
    laws that are not bet on.
    """
    first = [_guarded("LAW-5", verifier.name, lambda: mixup_finding(verifier, batches=4, seed=seed))]
    if not verifier.trees:
        first += edge_findings(verifier.name, ask_edges(verifier, repeats=8))
    yield first[0].n, first
    batches = rounds_of(verifier, -(-n // ROWS) * ROWS, seed)
    rounds: list[Round] = []
    for size in sizes or look_sizes(n, ROWS):
        try:
            rounds += islice(batches, -(-size // ROWS) - len(rounds))
        except Exception as error:  # whatever a fault raises, it has not answered
            yield len(rounds) * ROWS, [*first, nonsense("LAW-3", verifier.name, f"{type(error).__name__}: {error}")]
            return
        law = component_findings(verifier.name, verifier.rule, rounds, planned=n, alpha=SHARE, seed=seed, without=without)
        yield len(rounds) * ROWS, [*first, *law]


def _guarded(requirement: str, name: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:  # as above
        return nonsense(requirement, name, f"{type(error).__name__}: {error}")
