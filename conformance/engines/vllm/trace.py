"""What vLLM's scheduler hears of every step, written down from outside: what was drafted for each request, and what came of it.

Nothing is changed: the scheduler's `update_from_output` is called as before, with the same arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from conformance.protocols import RecordedRound, Tokens

Step = tuple[Tokens, Tokens]
"""What was drafted for one request in one step, and what the step sampled: the accepted drafts and one token more."""

NOTHING = -1
"""What vLLM schedules in a place for which nothing was drafted, so that all rows have as many: where a prompt is found whole in
the prefix cache, and its first step is one of decoding."""


class Steps:
    """The steps of all requests since they were last taken."""

    def __init__(self, scheduler: Any) -> None:
        self._found: dict[str, list[Step]] = {}
        self._update = scheduler.update_from_output
        scheduler.update_from_output = self._listen

    def _listen(self, scheduled: Any, output: Any) -> Any:
        drafted = scheduled.scheduled_spec_decode_tokens
        for request, row in output.req_id_to_index.items():
            sampled = output.sampled_token_ids[row] if output.sampled_token_ids else ()
            if len(sampled):  # not in the middle of a prompt
                step = (drafts_of(drafted.get(request, ())), tuple(map(int, sampled)))
                self._found.setdefault(request.rpartition("-")[0], []).append(step)
        return self._update(scheduled, output)

    def take(self, request: str) -> list[Step]:
        """The steps of a request, by the name that its output has, which are then forgotten."""
        return self._found.pop(request, [])


def drafts_of(scheduled: Iterable[int]) -> Tokens:
    """The drafts among what was scheduled for one request: what fills up the row to its end is none.

    >>> drafts_of([5, 6, -1, -1]), drafts_of([-1, 6])
    ((5, 6), (-1, 6))
    """
    drafts = [int(token) for token in scheduled]
    while drafts and drafts[-1] == NOTHING:
        drafts.pop()
    return tuple(drafts)


def rounds_of(steps: Iterable[Step], tokens: Sequence[int], rule: str) -> tuple[RecordedRound, ...]:
    """The rounds of an output. A step may have sampled more than was kept, where the output ended in it.

    >>> [(one.start, one.accepted, one.emitted) for one in rounds_of([((), (5,)), ((6, 7), (6, 7, 8))], (5, 6, 7), "ratio")]
    [(0, 0, (5,)), (1, 2, (6, 7))]
    """
    rounds, start = [], 0
    for drafted, sampled in steps:
        kept = sampled[: len(tokens) - start]
        if kept:
            rounds.append(RecordedRound(start, drafted, len(sampled) - 1, kept, rule))
        start += len(kept)
    return tuple(rounds)
