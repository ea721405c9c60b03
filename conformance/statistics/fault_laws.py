"""The output laws of known faults: what each wrong implementation emits in place of the target's law p.

Each law is one formula over ``p``, ``q`` and the token numbers, with the sums of `Rows`. It is written once and read
in two ways: over whole tables ``[n, V]`` it is the law, and over the emitted tokens alone ``[n, 1]`` it is the
probability that a bet needs (a tenth of the cost). All laws are those of one verified token: draft from q, accept or
replace.
"""

from __future__ import annotations

import numpy as np

from conformance.statistics.evidence import Floats, Ints
from conformance.statistics.rows import TINIEST, Emitted, Rows, masked_total, ratio_to_one, total


def residual(p: Floats, q: Floats, rows: Rows) -> Floats:
    """The residual ``max(p - q, 0)``, normalised; p itself where the residual is empty."""
    mass = rows.positive_part
    return np.where(mass > 0, np.maximum(p - q, 0.0) / np.where(mass > 0, mass, 1.0), p)


def draft(p: Floats, q: Floats, tokens: Ints, rows: Rows) -> Floats:
    """The draft's own law: every draft token is let through."""
    return q


def residual_overused(p: Floats, q: Floats, tokens: Ints, rows: Rows) -> Floats:
    """The residual's law: drafts are rejected that should be kept, so the output leans away from q."""
    return residual(p, q, rows)


def resample_from_target(p: Floats, q: Floats, tokens: Ints, rows: Rows) -> Floats:
    """After a rejection the token is drawn from p instead of the residual."""
    return np.minimum(p, q) + (1 - rows.overlap) * p


def absolute_residual(p: Floats, q: Floats, tokens: Ints, rows: Rows) -> Floats:
    """The residual is |p - q| normalised: the output is half target, half draft."""
    half: Floats = (p + q) / 2
    return half


def upside_down_ratio(p: Floats, q: Floats, tokens: Ints, rows: Rows) -> Floats:
    """Drafts are kept with probability min(1, q / p)."""
    return q * ratio_to_one(q, p) + (1 - rows.upside_down) * residual(p, q, rows)


def unnormalised_residual(p: Floats, q: Floats, tokens: Ints, rows: Rows) -> Floats:
    """Inverse-CDF sampling of a residual that was not normalised: what is missing falls on the last token."""
    rejected = 1 - rows.overlap
    missing = np.where(tokens == rows.V - 1, 1 - rows.positive_part, 0.0)
    law: Floats = np.minimum(p, q) + rejected * (np.maximum(p - q, 0.0) + missing)
    return law


def argmax_draft(p: Floats, q: Floats, tokens: Ints, rows: Rows) -> Floats:
    """Drafts are the draft's argmax, verified as if they were drawn from q."""
    kept = rows.argmax_accepted
    return np.where(tokens == rows.argmax, kept, 0.0) + (1 - kept) * residual(p, q, rows)


def truncated_draft(p: Floats, q: Floats, tokens: Ints, rows: Rows) -> Floats:
    """Drafts are drawn from the head of q, the whole q is handed to the rule (transformers issue 47932)."""
    kept = np.where(q >= rows.head_floor, np.minimum(p, q), 0.0) / rows.head_mass
    return kept + (1 - rows.head_accepted) * residual(p, q, rows)


def rarest_token_cut(p: Floats, q: Floats, tokens: Ints, rows: Rows) -> Floats:
    """The kept set of a truncated target is one token too small."""
    rest = 1 - rows.rarest_mass
    kept = np.where(p == rows.rarest, 0.0, p) / np.where(rest > 0, rest, 1.0)
    return np.where(rest > 1e-12, kept, p)


def tempered(exponent: float, p: Floats, rows: Rows) -> Floats:
    """The target at temperature ``1 / (1 + exponent)``: p to the power 1 + exponent, normalised."""
    powered = np.exp((1 + exponent) * np.log(np.maximum(p, TINIEST)))  # four times as fast as a power
    return np.where(p > 0, powered / rows.power_sum(exponent), 0.0)


def same_coin(p: Floats, q: Floats) -> Floats:
    """The uniform that rejected the draft also draws from the residual, by inverse CDF in token order: ``[n, V]``.

    A draft x is rejected by u >= min(1, p/q)(x); given the rejection, mass ``W(u) = sum_x max(0, u q(x) - min(p, q)(x))``
    has been rejected at or below u, and token y receives what lies between its two ends of the residual's CDF.
    """
    laws = np.empty_like(p)
    for i, (target, drafted) in enumerate(zip(p, q)):
        kept = np.minimum(target, drafted)
        mass = (target - kept).sum()
        if mass <= 0:
            laws[i] = target
            continue
        ends = np.minimum(np.concatenate([[0.0], np.cumsum(target - kept) / mass]), 1.0)
        order = np.argsort(ratio_to_one(target, drafted), kind="stable")
        turn = ratio_to_one(target, drafted)[order]
        slope, offset = np.cumsum(drafted[order]), np.cumsum(kept[order])
        active = np.searchsorted(turn, ends, side="right") - 1
        rejected = np.where(active >= 0, ends * slope[active] - offset[active], 0.0)
        laws[i] = kept + np.maximum(np.diff(rejected), 0.0)
    normalised: Floats = laws / laws.sum(axis=1, keepdims=True)
    return normalised


def same_coin_at(emitted: Emitted, rows: Rows) -> Floats:
    """`same_coin` at the emitted tokens only, ``[n, 1]``, without a sort."""
    mass = np.where(rows.positive_part > 0, rows.positive_part, 1.0)
    end = np.minimum(masked_total(rows.left, np.arange(rows.V) <= emitted.tokens) / mass, 1.0)
    start = np.maximum(end - emitted.of(rows.left) / mass, 0.0)
    # W(end) - W(start), each draft's part at once
    part = end * rows.q
    part -= rows.smaller
    np.maximum(part, 0.0, out=part)
    np.minimum(part, (end - start) * rows.q, out=part)
    received = np.minimum(emitted.p, emitted.q) + total(part)
    return np.where(rows.positive_part > 0, received, emitted.p)
