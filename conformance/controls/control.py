"""What a control is: our own code with one small thing changed, how it is audited, and what must come of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

from conformance.findings import Finding, Verdict
from conformance.sampling import request_seed

ALPHA = 1e-6
"""The false-alarm rate of all that is done to one control, however many checks, looks and audits that is."""
RUNS, RESTARTS = 20, 8
"""Where no bound gives the n (`Control.bounded`), a fault that the first audit misses is audited again, on fresh samples, up to
8 times. Had every one of 20 audits killed it within n, then the power within 8 n is 1 - 1e-6: for any fault whatever, the
chance that 20 runs are killed sooner than each of 8 further ones is 1 / C(28, 8) = 3.2e-7, since all orders of 28 exchangeable
runs are equally likely."""
SHARE = ALPHA / RESTARTS
"""The false-alarm rate of a single audit."""

Look: TypeAlias = tuple[int, Sequence[Finding]]


@dataclass(frozen=True)
class Audit:
    """How a control is audited.

    stage: where it enters. unit: what is counted. n: samples of a single audit. looks: `looks(seed, n)` gives the samples
    judged and all that was found, one look after the other, until n samples were judged. without: the same where the judge does
    not bet on some laws, named in a third argument; None where it bets on none.
    """

    stage: str
    unit: str
    n: int
    looks: Callable[[int, int], Iterator[Look]] = field(repr=False)
    without: Callable[[int, int, Collection[str]], Iterator[Look]] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Exact:
    """How far a fault's output law is from the target's, by enumeration.

    variation: total variation, a Fraction where it is rational. kept: the probability that a drafted token is kept. on: the
    instance, in words.
    """

    variation: Callable[[], Fraction | float]
    kept: Callable[[], Fraction | float] | None = None
    on: str = "p = (.10, .60, .25, .05), q = (.30, .35, .10, .25), one token"


@dataclass(frozen=True)
class Control:
    """A fault that must be killed, or a lawful variation that must pass.

    id: what it does, in words. kind: its heading in the catalogue. replaces: the rule or component that is changed.
    requirements: all of those that must fail; none for a lawful variation. reports: public reports of that kind (project and
    number). acceptance_sees: whether the rate of acceptance alone could show it. instead: what may be proven in place of what
    it names, for a fault that shows in two ways, since an audit ends as soon as the engine is proven wrong; because: why so.
    bound: finds `bounded`.
    """

    id: str
    kind: str
    replaces: str
    requirements: tuple[str, ...]
    audit: Audit
    reports: tuple[str, ...] = ()
    exact: Exact | None = None
    acceptance_sees: bool = False
    instead: tuple[str, ...] = ()
    because: str = ""
    bound: Callable[[], int | None] | None = field(default=None, repr=False)

    @cached_property
    def bounded(self) -> int | None:
        """The n by which its audit kills it with probability 1 - 1e-6, from the bets that are held; None where not known."""
        return self.bound() if self.bound is not None else None

    @property
    def stated(self) -> int:
        """The n that is stated of a fault: samples within which it is killed with probability 1 - 1e-6."""
        return self.bounded or RESTARTS * self.audit.n


@dataclass(frozen=True)
class Outcome:
    """What came of a control. n: samples judged until all that it names had failed, or all there were, in `audits` audits."""

    control: str
    seed: int
    n: int
    seconds: float
    findings: tuple[Finding, ...]
    audits: int = 1

    @property
    def violated(self) -> tuple[str, ...]:
        """The requirements that failed, in the order of their names."""
        return tuple(sorted({one.requirement for one in self.findings if one.verdict is Verdict.VIOLATES}))

    def finding(self, requirement: str) -> Finding | None:
        """What was found on one requirement; the violation, if there is one."""
        some = [one for one in self.findings if one.requirement == requirement]
        return next((one for one in some if one.verdict is Verdict.VIOLATES), some[-1] if some else None)


def run(control: Control, seed: int, restarts: int = RESTARTS) -> Outcome:
    """Audit a control: a fault until everything that it names has failed within one of `restarts` audits, a lawful variation
    once."""
    started = time.process_time()
    outcome = Outcome(control.id, seed, 0, 0.0, ())
    for number in range(restarts if control.requirements else 1):
        own = request_seed("audited again", seed, number) if number else seed
        for judged, found in control.audit.looks(own, control.audit.n):
            n, seconds = number * control.audit.n + judged, round(time.process_time() - started, 2)
            outcome = Outcome(control.id, seed, n, seconds, tuple(found), number + 1)
            if control.requirements and as_stated(control, outcome):
                return outcome
    return outcome


def look_sizes(n: int, first: int) -> Iterator[int]:
    """Samples at which an audit of n is looked at: from a 27th of n (but not less than `first`), three times as many each time.

    >>> list(look_sizes(27_000, first=512))
    [1000, 3000, 9000, 27000]
    >>> list(look_sizes(300, first=512))
    [300]
    """
    size = max(first, n // 27)
    while size < n:
        yield size
        size *= 3
    yield n


def as_stated(control: Control, outcome: Outcome) -> bool:
    """Whether it came as it must: a fault killed by all that it names, within its n; a lawful variation not flagged."""
    if control.requirements:
        killed = set(control.requirements) <= set(outcome.violated) or bool(set(control.instead) & set(outcome.violated))
        return killed and (control.bounded is None or outcome.n <= control.bounded)
    return not outcome.violated and any(one.verdict is Verdict.CONFORMS for one in outcome.findings)
