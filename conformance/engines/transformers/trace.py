"""The rounds of an assisted generation, seen from outside: what its candidate generator was asked and told.

transformers has no hook for rounds. But every round asks the candidate generator for candidates (`get_candidates`), and after
verification tells it the sequence so far (`update_candidate_strategy`). Listening to both changes nothing: arguments and
results pass through as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from conformance.protocols import RecordedRound, Tokens


class Rounds:
    """Listens to the candidate generators that a model makes.

    How many drafts were accepted is read from the tokens: those that were emitted as they were drafted. (A token that replaces
    a rejected one is never the same token.) Where an output ends inside a round, accepted drafts after its end are not seen.
    """

    def __init__(self, rule: str) -> None:
        self.rule = rule
        self.found: list[RecordedRound] = []
        self._prompt = -1
        self._drafted: Tokens = ()
        self._before = 0

    @contextmanager
    def of(self, model: Any) -> Iterator[None]:
        """Listen while `model` generates."""
        make = model._get_candidate_generator

        def listened(*arguments: Any, **named: Any) -> Any:
            return self._attach(make(*arguments, **named))

        model._get_candidate_generator = listened
        try:
            yield
        finally:
            del model._get_candidate_generator  # the class's own method is there again

    def _attach(self, generator: Any) -> Any:
        propose, learn = generator.get_candidates, generator.update_candidate_strategy

        def get_candidates(input_ids: Any, *arguments: Any, **named: Any) -> Any:
            self._before = input_ids.shape[1]
            if self._prompt < 0:
                self._prompt = self._before
            result = propose(input_ids, *arguments, **named)
            self._drafted = tuple(result[0][0, self._before :].tolist())
            return result

        def update_candidate_strategy(input_ids: Any, *arguments: Any, **named: Any) -> Any:
            self._end_round(tuple(input_ids[0, self._before :].tolist()))
            return learn(input_ids, *arguments, **named)

        generator.get_candidates = get_candidates
        generator.update_candidate_strategy = update_candidate_strategy
        return generator

    def _end_round(self, emitted: Tokens) -> None:
        kept = zip(self._drafted, emitted)
        accepted = next((i for i, (x, y) in enumerate(kept) if x != y), min(len(self._drafted), len(emitted)))
        self.found.append(RecordedRound(self._before - self._prompt, self._drafted, accepted, emitted, self.rule))
