"""What an engine reports about its speculation: sums of counts, from which any rate can be formed.

Pitfalls: the bonus counted as an accepted draft; rounds without a draft counted as drafts; accepted tokens counted after a stop
has cut them; a mean of rates instead of the rate of sums; flags of drafted positions summed past the first rejection.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from specref.generate import Round


@dataclass
class Metrics:
    """Counts over rounds; counts of several requests add up.

    rounds: verification rounds. drafts: those with a drafted token or more. draft_tokens: drafted tokens, every node of a tree.
    accepted: drafted tokens that the rule kept, before stops, without the token that every round adds.
    accepted_per_position[i]: rounds in which i + 1 drafts or more were kept. emitted: tokens added to the output, after stops.

    >>> metrics = Metrics()
    >>> metrics.add(Round(start=0, drafted=(4, 2), accepted=2, emitted=(4, 2, 7), rule="ratio"))      # 7 is the bonus
    >>> metrics.add(Round(start=3, drafted=(4, 2), accepted=1, emitted=(4, 5), rule="ratio"))
    >>> metrics.add(Round(start=5, drafted=(), accepted=0, emitted=(1,), rule="ratio"))
    >>> metrics
    Metrics(rounds=3, drafts=2, draft_tokens=4, accepted=3, accepted_per_position=[2, 1], emitted=6)
    >>> metrics.acceptance_rate, metrics.tokens_per_round
    (0.75, 2.0)
    """

    rounds: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    emitted: int = 0

    def add(self, done: Round) -> None:
        """Count one round."""
        self.rounds += 1
        self.drafts += bool(done.drafted)
        self.draft_tokens += len(done.drafted)
        self.accepted += done.accepted
        self.emitted += len(done.emitted)
        self._add_positions([1] * done.accepted)

    def __add__(self, other: Metrics) -> Metrics:
        whole = Metrics(
            self.rounds + other.rounds,
            self.drafts + other.drafts,
            self.draft_tokens + other.draft_tokens,
            self.accepted + other.accepted,
            list(self.accepted_per_position),
            self.emitted + other.emitted,
        )
        whole._add_positions(other.accepted_per_position)
        return whole

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted per drafted token; None if nothing was drafted."""
        return self.accepted / self.draft_tokens if self.draft_tokens else None

    @property
    def tokens_per_round(self) -> float | None:
        """Emitted tokens per round, 1 without speculation; None before the first round."""
        return self.emitted / self.rounds if self.rounds else None

    def _add_positions(self, counts: list[int]) -> None:
        missing = len(counts) - len(self.accepted_per_position)
        self.accepted_per_position.extend([0] * missing)
        for i, count in enumerate(counts):
            self.accepted_per_position[i] += count
