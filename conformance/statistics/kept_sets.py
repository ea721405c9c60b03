"""Which tokens may an engine keep under top-k, top-p or min-p if its logits are within eta of ours?

A token just inside the engine's kept set may lie just outside the reference's, so one set is not enough. Two are
carried through the chain of filters: the **core**, in the kept set whatever the errors, and the **possible** tokens, in
it for some errors. For one filter both are exact; through a chain they are safe (the core may come out smaller, the
possible set larger, never the reverse).

eta must also cover the engine's rounding of cumulative sums: it is never below about 1e-6 for a float32 sampler.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from conformance.statistics.evidence import Floats, Ints, WrongUse

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class KeptSets:
    """What is known of an engine's kept set: core is a subset of it, and it is a subset of possible; all `[n, V]`.

    `logits` are ours after temperature, within `eta` of the engine's.
    """

    logits: Floats
    core: Mask
    possible: Mask
    eta: float

    def core_law(self, logits: Floats | None = None) -> Floats:
        """Our law conditional on the core `[n, V]` (or that of other `logits`); an empty core gives a row of zeros."""
        values = np.where(self.core, self.logits if logits is None else logits, -np.inf)
        top = values.max(axis=1, keepdims=True)
        weights = np.exp(values - np.where(np.isfinite(top), top, 0))
        total = weights.sum(axis=1, keepdims=True)
        law: Floats = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
        return law


class Filter(Protocol):
    """One logits processor: narrows what may be kept."""

    def narrow(self, sets: KeptSets) -> KeptSets:
        """The kept sets after this processor."""
        ...


@dataclass(frozen=True)
class Temperature:
    """Divides logits, and with them the tolerance, by t."""

    t: float

    def narrow(self, sets: KeptSets) -> KeptSets:
        """The same sets at the new scale."""
        return replace(sets, logits=sets.logits / self.t, eta=sets.eta / self.t)


@dataclass(frozen=True)
class TopK:
    """Keeps the k most probable tokens; ties at the edge may go either way."""

    k: int

    def narrow(self, sets: KeptSets) -> KeptSets:
        """Token y is surely kept if fewer than k others could rank above it, possibly kept if fewer than k surely do."""
        ranked = _Ranked(sets)
        could = ranked.up_to(sets.possible, ranked.near_or_above) - 1
        surely = ranked.up_to(sets.core, ranked.clearly_above)
        return replace(
            sets,
            core=sets.core & ranked.unsorted(could < self.k),
            possible=sets.possible & ranked.unsorted(surely < self.k),
        )


@dataclass(frozen=True)
class TopP:
    """Keeps token y while the mass ranked before it is below `mass`."""

    mass: float

    def narrow(self, sets: KeptSets) -> KeptSets:
        """The mass before y is largest when everything that could rank above y does, raised by eta, and the rest is lowered."""
        ranked = _Ranked(sets)
        weight = np.exp(sets.logits - sets.logits.max(axis=1, keepdims=True))
        own = np.take_along_axis(weight, ranked.order, axis=1)
        inside, least = np.where(sets.possible, weight, 0), np.where(sets.core, weight, 0)
        up, down = np.exp(sets.eta), np.exp(-sets.eta)
        # surely kept: numerator as large, the others as small as can be; y itself stands among the others
        before = np.maximum(ranked.up_to(inside, ranked.near_or_above) - own, 0)
        after = np.maximum(least.sum(axis=1, keepdims=True) - ranked.up_to(least, ranked.near_or_above), 0) + own
        core = up * before < self.mass * (up * before + down * after)
        # possibly kept: the other way round; a token that could rank above y must stay level with it to stand among the others
        before = ranked.up_to(least, ranked.clearly_above)
        place = np.broadcast_to(np.arange(own.shape[1]), own.shape)
        level = ranked.up_to(sets.possible, place) - ranked.up_to(sets.possible, ranked.clearly_above)
        below = np.maximum(inside.sum(axis=1, keepdims=True) - ranked.up_to(inside, place), own)
        possible = down * before < self.mass * (down * before + up * (level * own + below))
        return replace(sets, core=sets.core & ranked.unsorted(core), possible=sets.possible & ranked.unsorted(possible))


@dataclass(frozen=True)
class MinP:
    """Keeps tokens of at least `share` of the most probable token's probability."""

    share: float

    def narrow(self, sets: KeptSets) -> KeptSets:
        """Compares each logit, with both errors against it, to the largest other one plus ln(share)."""
        reach = 2 * sets.eta
        candidates = np.where(sets.possible, sets.logits, -np.inf)
        two = np.sort(candidates, axis=1)[:, :-3:-1]
        rival = np.where(candidates == two[:, :1], two[:, 1:2], two[:, :1])  # a tie at the top leaves the same number
        surest = np.where(sets.core, sets.logits, -np.inf).max(axis=1, keepdims=True)
        edge = np.log(self.share)
        return replace(
            sets,
            core=sets.core & (sets.logits - reach >= rival + edge),
            possible=sets.possible & (sets.logits + reach >= surest + edge),
        )


class _Ranked:
    """Rows sorted by falling logit, and how far down the order each token's rivals reach."""

    def __init__(self, sets: KeptSets) -> None:
        self.order = np.argsort(-sets.logits, axis=1, kind="stable")
        values = np.take_along_axis(sets.logits, self.order, axis=1)
        self.near_or_above = _count(values, values - 2 * sets.eta, at_equality=True)
        self.clearly_above = _count(values, values + 2 * sets.eta, at_equality=False)

    def up_to(self, weights: npt.NDArray[np.float64] | Mask, count: Ints) -> Floats:
        """The sum of `weights [n, V]` (token order) over the first `count [n, V]` tokens of each row's ranking."""
        running = np.cumsum(np.take_along_axis(weights, self.order, axis=1), axis=1, dtype=np.float64)
        return np.take_along_axis(np.pad(running, ((0, 0), (1, 0))), count, axis=1)

    def unsorted(self, ranked: Mask) -> Mask:
        """A mask in ranking order, put back into token order."""
        mask = np.empty_like(ranked)
        np.put_along_axis(mask, self.order, ranked, axis=1)
        return mask


def _count(values: Floats, thresholds: Floats, at_equality: bool) -> Ints:
    """How many of each row's falling `values` are above (or at) each of its falling `thresholds`; both `[n, V]`.

    One stable sort merges the two sorted halves in linear time; who comes first at equality is who stands first.
    """
    V = values.shape[1]
    pair = (-values, -thresholds) if at_equality else (-thresholds, -values)
    merged = np.argsort(np.concatenate(pair, axis=1), axis=1, kind="stable")
    place = np.empty_like(merged)
    np.put_along_axis(place, merged, np.broadcast_to(np.arange(2 * V), merged.shape), axis=1)
    return (place[:, V:] if at_equality else place[:, :V]) - np.arange(V)


def kept_sets(logits: npt.ArrayLike, filters: Sequence[Filter], eta: float, joint: bool = False) -> KeptSets:
    """Core and possible tokens of an engine within `eta` of `logits [n, V]`, after `filters` in the engine's order.

    Filters act on what the earlier ones kept, renormalised; `joint=True` applies each to the untruncated law and
    intersects. -inf logits are never kept. At eta = 0 the ring holds only exact ties at the edge.

    >>> sets = kept_sets(np.log([[.4, .3, .2, .1]]), [TopP(.7)], eta=.01)
    >>> sets.core.tolist(), sets.possible.tolist()
    ([[True, True, False, False]], [[True, True, True, False]])
    """
    values = np.asarray(logits, float)
    if values.ndim != 2 or np.isnan(values).any() or np.isposinf(values).any():
        raise WrongUse(f"logits must be [n, V], finite or -inf, got shape {values.shape}")
    if not eta >= 0 or not np.isfinite(eta):
        raise WrongUse(f"eta must be finite and not negative, got {eta}")
    finite = np.isfinite(values)
    if not finite.any(axis=1).all():
        raise WrongUse("a row of logits is -inf throughout: it has no law")
    start = KeptSets(values, finite, finite, eta)
    sets = start
    for step in filters:
        if joint and not isinstance(step, Temperature):
            alone = step.narrow(start)
            sets = replace(sets, core=sets.core & alone.core, possible=sets.possible & alone.possible)
        else:
            sets = step.narrow(sets)
            start = replace(sets, core=start.core, possible=start.possible) if joint else start
    return sets


def outside(tokens: npt.ArrayLike, sets: KeptSets, rows: Ints | None = None) -> Mask:
    """Which of `tokens [m]` no engine within eta could emit; `rows [m]` names their contexts, by default one each."""
    x = np.asarray(tokens)
    found: Mask = ~sets.possible[np.arange(len(x)) if rows is None else rows, x]
    return found
