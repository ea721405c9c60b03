"""Everything that checks read off a block of tokens, computed once, in chunks that stay in the processor's cache."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from conformance.statistics.bank import Deflator, FaultBank
from conformance.statistics.blocks import Segment, TokenBlock
from conformance.statistics.evidence import Floats, Ints
from conformance.statistics.pit import ORDERS, READ, pit
from conformance.statistics.rows import Emitted, Rows, total

CHUNK = 1 << 17
"""Table entries per chunk: one MiB in float64."""


@dataclass(frozen=True)
class Scored:
    """A block and its scores.

    ``log_bets``   ``[n, J]`` log of each bet's factor at each token.
    ``pit``        ``[orders, n]`` PIT in each of `pit.ORDERS` (without q, the first two).
    ``segment_pit`` ``[READ, n]`` PIT of an accepted or replaced token under its own law (NaN elsewhere); None if unused.
    ``impossible`` number of tokens with p = 0.
    ``expected``   ``[V]`` sum of the laws; ``counts`` ``[V]`` tokens seen.
    """

    block: TokenBlock
    log_bets: Floats
    pit: Floats
    segment_pit: Floats | None
    impossible: int
    expected: Floats
    counts: Ints


def score(
    block: TokenBlock,
    bank: FaultBank,
    rng: np.random.Generator,
    ratio_rule: bool = False,
    deflate: Deflator | None = None,
) -> Scored:
    """Score a block; ``rng`` is the judge's own generator, ``deflate`` the worst mean of a bet under a composite null."""
    n, V = len(block), block.V
    has_q = block.q is not None and bank.has_q
    q = block.q if block.q is not None and has_q else block.p
    orders = len(ORDERS) if has_q else 2
    uniforms = rng.random((2 * len(ORDERS), n))
    log_bets = np.empty((n, len(bank)))
    values = np.empty((orders, n))
    by_segment = ratio_rule and has_q and block.segment is not None
    segment_pit = np.full((READ, n), np.nan) if by_segment else None
    expected, impossible = np.zeros(V), 0
    step = max(1, CHUNK // V)
    for start in range(0, n, step):
        part = slice(start, min(start + step, n))
        tokens, rows = block.tokens[part], Rows(block.p[part], q[part])
        log_bets[part] = bank.log_bets(rows, tokens, deflate)
        values[:, part] = pit(rows, tokens, uniforms[:orders, part])
        if segment_pit is not None:
            segment_pit[:, part] = _segment_pit(rows, tokens, block.segment[part], uniforms[len(ORDERS) :, part])  # type: ignore[index]
        expected += np.ones(len(tokens)) @ rows.p
        impossible += int((Emitted(tokens, rows).p == 0).sum())
    counts = np.bincount(block.tokens, minlength=V)
    return Scored(block, log_bets, values, segment_pit, impossible, expected, counts)


def _segment_pit(rows: Rows, tokens: Ints, segment: Ints, uniforms: Floats) -> Floats:
    """PIT of accepted tokens under min(p, q) and of replaced ones under max(p - q, 0), both normalised."""
    out = np.full((READ, len(tokens)), np.nan)
    for code, part in ((Segment.ACCEPTED, rows.smaller), (Segment.RESIDUAL, rows.p - rows.smaller)):
        mass = total(part)
        # A token outside its own law's support is left to the step-log rules: it has no PIT.
        of_token = Emitted(tokens, rows).of(part)[:, 0]
        chosen = np.flatnonzero((segment == code) & (of_token > 0) & (mass[:, 0] > 1e-12))
        if len(chosen):
            laws = Rows(part[chosen] / mass[chosen], rows.q[chosen])
            out[:, chosen] = pit(laws, tokens[chosen], uniforms[:READ, chosen])
    return out
