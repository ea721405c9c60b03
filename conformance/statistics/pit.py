"""The randomised probability integral transform (PIT) in three orders of the vocabulary.

Rank the vocabulary by a score, biggest first. For the emitted token x,

    u = P(score > score(x)) + v P(score = score(x)),      v uniform on [0, 1),

is uniform and independent of everything before it if and only if the token follows p in that order. Token id shows
inverse-CDF faults, p shows temperature, q/p shows leaks. The uniforms v are the judge's own, seeded and recorded.
"""

from __future__ import annotations

import numpy as np

from conformance.statistics.evidence import Floats, Ints
from conformance.statistics.rows import Emitted, Rows, masked_total

ORDERS = ("id", "p", "q/p")
"""Names of the orders; the last one needs q."""


def pit(rows: Rows, tokens: Ints, uniforms: Floats, has_q: bool = True) -> Floats:
    """PIT values ``[orders, n]`` in [0, 1), from tokens ``[n]`` and uniforms ``[orders, n]``.

    >>> p = np.array([[0.5, 0.25, 0.25]])
    >>> pit(Rows(p, p), np.array([1]), np.array([[0.5], [0.5], [0.5]]))        # id, p, q/p
    array([[0.625],
           [0.75 ],
           [0.5  ]])
    """
    emitted = Emitted(tokens, rows)
    out = np.empty((3 if has_q else 2, len(tokens)))
    before = masked_total(rows.p, np.arange(rows.V) < emitted.tokens)[:, 0]
    out[0] = before + uniforms[0] * emitted.p[:, 0]
    out[1] = _ranked(rows.p, rows.p, emitted.p, uniforms[1])
    if has_q:
        # q / p >= q(x) / p(x) without a division, so that p = 0 and ties of equal rows are exact
        out[2] = _ranked(rows.p, rows.q * emitted.p, emitted.q * rows.p, uniforms[2])
    # Rounding may leave 1 + 1e-16, and a token with p = 0 has no PIT of its own.
    np.clip(out, 0.0, np.nextafter(1.0, 0.0), out=out)
    return out


def _ranked(p: Floats, score: Floats, score_of_token: Floats, uniform: Floats) -> Floats:
    above = masked_total(p, score > score_of_token)[:, 0]
    down_to = masked_total(p, score >= score_of_token)[:, 0]
    values: Floats = above + uniform * (down_to - above)
    return values


def pit_bins_of_counts(scores: Floats, p: Floats, counts: Ints, bins: int, rng: np.random.Generator) -> Ints:
    """Counts ``[bins]`` of PIT values for token counts ``[V]`` of one fixed law, in the order of falling ``scores``.

    The same in law as transforming token by token: a token's mass covers an interval of [0, 1), and its occurrences
    are spread over the bins that the interval meets. Tokens of equal score share their interval.
    """
    order = np.argsort(-scores, kind="stable")
    group = np.concatenate([[0], np.cumsum(np.diff(scores[order]) != 0)])
    mass = np.bincount(group, p[order])
    drawn = np.bincount(group, counts[order]).astype(np.int64)
    upper = np.minimum(np.cumsum(mass) / mass.sum(), 1.0)
    lower = np.concatenate([[0.0], upper[:-1]])
    first = np.minimum((lower * bins).astype(np.int64), bins - 1)
    last = np.minimum(np.ceil(upper * bins).astype(np.int64) - 1, bins - 1)
    inside = last <= first
    out = np.bincount(first[inside], drawn[inside], bins).astype(np.int64)
    for i in np.flatnonzero(~inside & (drawn > 0)):
        edges = np.arange(first[i], last[i] + 2) / bins
        share = np.diff(np.clip(edges, lower[i], upper[i]))
        out[first[i] : last[i] + 1] += rng.multinomial(drawn[i], share / share.sum())
    return out


RATIO_CLASSES = np.array([0.125, 0.5, 0.8, 1.0, 1.25, 2.0, 8.0])
"""Edges of the eight classes of q/p within which the order of p is looked at."""


def pit_within_ratio_class(rows: Rows, tokens: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
    """The class of q/p of each token ``[n]`` and the PIT in the order of p within that class ``[n]``.

    Given its class, the token's PIT within the class is uniform; this shows faults in which p and q/p act together.
    """
    emitted = Emitted(tokens, rows)
    classes = (emitted.q >= RATIO_CLASSES * emitted.p).sum(axis=1)
    edges = np.concatenate([[0.0], RATIO_CLASSES, [np.inf]])
    low, high = edges[classes][:, None], edges[classes + 1][:, None]
    with np.errstate(invalid="ignore"):  # inf * 0 where p = 0: such tokens carry no mass
        inside = rows.p * ((rows.q >= low * rows.p) & (rows.q < high * rows.p))
    mass = inside @ np.ones(rows.V)
    values = _ranked(inside, rows.p, emitted.p, uniforms) / np.where(mass > 0, mass, 1.0)
    return classes, np.clip(values, 0.0, np.nextafter(1.0, 0.0))


def fine_bins_of_counts(p: Floats, q: Floats | None, counts: Ints, bins: int, rng: np.random.Generator) -> Ints:
    """PIT counts ``[orders, bins]`` in each order, for token counts of one fixed pair of laws."""
    orders = [-np.arange(len(p), dtype=np.float64), p]
    if q is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            orders.append(np.where(p > 0, q / p, -1.0))  # tokens with p = 0 carry no mass: last
    return np.stack([pit_bins_of_counts(scores, p, np.where(p > 0, counts, 0), bins, rng) for scores in orders])


def class_bins_of_counts(p: Floats, q: Floats, counts: Ints, bins: int, rng: np.random.Generator) -> Ints:
    """Counts ``[8, bins]`` of the PIT in the order of p within each class of q/p, for one fixed pair of laws."""
    classes = (q[:, None] >= RATIO_CLASSES * p[:, None]).sum(axis=1)
    out = np.zeros((len(RATIO_CLASSES) + 1, bins), dtype=np.int64)
    for number in range(len(out)):
        member = (classes == number) & (p > 0)
        if member.any():
            law = p[member] / p[member].sum()
            out[number] = pit_bins_of_counts(law, law, counts[member], bins, rng)
    return out
