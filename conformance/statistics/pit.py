"""The randomised probability integral transform (PIT) in several orders of the vocabulary.

Rank the vocabulary by a score, biggest first. For the emitted token x,

    u = P(score > score(x)) + v P(score = score(x)),      v uniform on [0, 1),

is uniform and independent of everything before it if and only if the token follows p in that order. Token id shows
inverse-CDF faults, p shows temperature, q/p shows leaks. Two more are projections of the omnibus alone: the order of q,
which shows a truncated draft, and by token id within the residual's support {p > q} and then within the rest, which shows
faults of how a rejected draft is replaced. The uniforms v are the judge's own, seeded and recorded.
"""

from __future__ import annotations

import numpy as np

from conformance.statistics.evidence import Floats, Ints
from conformance.statistics.rows import Emitted, Rows, masked_total

ORDERS = ("id", "p", "q/p", "q", "id, the residual's first")
"""Names of the orders; the last three need q."""
READ = 3
"""Orders that chi-square, KS and the checks of dependence look at: the first three."""


def pit(rows: Rows, tokens: Ints, uniforms: Floats) -> Floats:
    """PIT values ``[orders, n]`` in [0, 1), from tokens ``[n]`` and uniforms ``[orders, n]``: one row for each of the first
    of `ORDERS`, two, `READ` or all.

    >>> p = np.array([[0.5, 0.25, 0.25]])
    >>> pit(Rows(p, p), np.array([1]), np.full((5, 1), 0.5))        # id, p, q/p, q, id (there is no residual)
    array([[0.625],
           [0.75 ],
           [0.5  ],
           [0.75 ],
           [0.625]])
    """
    emitted = Emitted(tokens, rows)
    out = np.empty(uniforms.shape)
    earlier = np.arange(rows.V) < emitted.tokens
    before = masked_total(rows.p, earlier)[:, 0]
    out[0] = before + uniforms[0] * emitted.p[:, 0]
    out[1] = _ranked(rows.p, rows.p, emitted.p, emitted.p, uniforms[1])
    if len(out) > 2:
        # One number per token, so that the order is transitive: q(y) p(x) > q(x) p(y) is not, in floating point, where
        # ratios tie up to rounding (accepted tokens, a draft equal to the target), and a PIT of cycles is not uniform.
        out[2] = _ranked(rows.p, rows.ratio, emitted.of(rows.ratio), emitted.p, uniforms[2])
    if len(out) > READ:
        out[3] = _ranked(rows.p, rows.q, emitted.q, emitted.p, uniforms[3])
        kept = rows.p > rows.q  # the residual's support
        kept_before = masked_total(rows.p, kept & earlier)[:, 0]
        others_before = masked_total(rows.p, kept)[:, 0] + before - kept_before
        in_residual = (emitted.p > emitted.q)[:, 0]
        out[4] = np.where(in_residual, kept_before, others_before) + uniforms[4] * emitted.p[:, 0]
    # A token with p = 0 has no PIT: it is a violation where p is exact (`judge`), else the edge of a truncation.
    impossible = emitted.p[:, 0] == 0
    if impossible.any():
        out[:, impossible] = uniforms[:, impossible]
    # Rounding may leave 1 + 1e-16.
    np.clip(out, 0.0, np.nextafter(1.0, 0.0), out=out)
    return out


def _ranked(p: Floats, score: Floats, score_of_token: Floats, p_token: Floats, uniform: Floats) -> Floats:
    above = masked_total(p, score > score_of_token)
    tie = score == score_of_token
    # Ties are rare, and finding that there are none is cheaper than adding them up.
    tied = p_token if np.count_nonzero(tie) == len(p) else masked_total(p, tie)
    values: Floats = (above + uniform[:, None] * tied)[:, 0]
    return values
