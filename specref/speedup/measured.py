"""Acceptance as it was, counted from rounds: sums over rounds first, ratios last (a mean of ratios is something else)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from specref.generate import Round


@dataclass(frozen=True)
class Measured:
    """What rounds did, before stops.

    rounds; drafted and accepted tokens, the bonus not counted as accepted. tokens_per_round: accepted tokens and the one after
    them. acceptance: the share of *tried* tokens that was accepted; a token behind a rejected one was not tried. This is the
    formula's acceptance. share: the share of *all* drafted tokens. by_position `[k]`: acceptance of the tokens tried first,
    second, and so on.
    """

    rounds: int
    drafted: int
    accepted: int
    tokens_per_round: float
    acceptance: float
    share: float
    by_position: tuple[float, ...]


def measure(rounds: Iterable[Round]) -> Measured:
    """Count what `rounds` drafted and accepted, for instance those of a `Generation`.

    >>> first, second = Round(0, (1, 2), 2, (1, 2, 3), "ratio"), Round(3, (1, 2), 0, (5,), "ratio")
    >>> measured = measure([first, second, Round(4, (1,), 1, (1, 4), "ratio")])
    >>> measured.tokens_per_round, measured.acceptance, measured.share                # of 4 tokens tried, 3; of 5 drafted, 3
    (2.0, 0.75, 0.6)
    >>> [round(acceptance, 2) for acceptance in measured.by_position]
    [0.67, 1.0]

    Raises ValueError if nothing was drafted.
    """
    lengths = [(len(one.drafted), one.accepted) for one in rounds]
    drafted, accepted = sum(length for length, _ in lengths), sum(kept for _, kept in lengths)
    if not drafted:
        raise ValueError(f"nothing was drafted in {len(lengths)} rounds, so there is no acceptance to measure")
    positions = range(max(length for length, _ in lengths))
    tried = [sum(length > i and kept >= i for length, kept in lengths) for i in positions]
    kept_at = [sum(kept > i for _, kept in lengths) for i in positions]
    return Measured(
        rounds=len(lengths),
        drafted=drafted,
        accepted=accepted,
        tokens_per_round=1 + accepted / len(lengths),
        acceptance=accepted / sum(tried),
        share=accepted / drafted,
        by_position=tuple(kept / of if of else 0.0 for kept, of in zip(kept_at, tried)),
    )
