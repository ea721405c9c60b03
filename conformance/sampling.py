"""Reading what an engine answered: can it be an answer at all, which part of it is judged, how each token came to be."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np

from conformance.protocols import Output, RecordedRound, Request, Tokens
from conformance.statistics import Segment
from conformance.statistics.evidence import Floats


class NonsenseOutput(Exception):
    """The engine's output cannot be an answer to the request."""


def request_seed(*what: object) -> int:
    """A seed of 31 bits that follows from `what`: the audit's seed, the mode, the number of the request.

    >>> request_seed(0, "off", 1) == request_seed(0, "off", 1) != request_seed(0, "off", 2)
    True
    """
    digest = hashlib.blake2b("|".join(map(str, what)).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") >> 1


FEWEST_ECHOES, SHORTEST_ECHO = 3, 4
"""Outputs that begin as their prompts do, and tokens of each, from which this is no chance."""


def check_outputs(requests: Sequence[Request], outputs: Sequence[Output], vocabulary: int) -> None:
    """Raise NonsenseOutput unless each of `outputs` can be an answer to its request, and they are not prompts with answers."""
    for request, output in zip(requests, outputs, strict=True):
        check_output(request, output, vocabulary)
    lengths = [min(len(request.prompt), len(output.tokens)) for request, output in zip(requests, outputs)]
    echoes = (o.tokens[:n] == tuple(r.prompt[:n]) for r, o, n in zip(requests, outputs, lengths))
    if len(outputs) >= FEWEST_ECHOES and min(lengths) >= SHORTEST_ECHO and all(echoes):
        raise NonsenseOutput(f"all {len(outputs)} outputs begin with their own prompt; give the new tokens alone")


def check_output(request: Request, output: Output, vocabulary: int) -> None:
    """Raise NonsenseOutput unless `output` can be an answer to `request`."""
    bad = [token for token in output.tokens if not 0 <= token < vocabulary]
    if bad:
        raise NonsenseOutput(f"the engine emitted token id {bad[0]}, outside the vocabulary of {vocabulary}")
    if not output.tokens:
        raise NonsenseOutput(f"the engine answered request {request.seed} with no token at all")
    if output.rounds is not None:
        _check_rounds(output, vocabulary)


def _check_rounds(output: Output, vocabulary: int) -> None:
    """A trace is the engine's own word; what contradicts itself would make nonsense of every figure drawn from it."""
    emitted: Tokens = ()
    for number, one in enumerate(output.rounds or ()):
        where = f"round {number} of an output"
        if one.start != len(emitted):
            raise NonsenseOutput(f"{where} says that it starts at {one.start}, after {len(emitted)} tokens")
        if not 0 <= one.accepted <= len(one.drafted) or len(one.emitted) > one.accepted + 1:
            raise NonsenseOutput(
                f"{where} drafted {len(one.drafted)} tokens, accepted {one.accepted} and emitted {len(one.emitted)}, "
                "which cannot be: it emits what it accepted and one token more, or less where the output ends"
            )
        for token in one.drafted:
            if not 0 <= token < vocabulary:
                raise NonsenseOutput(f"{where} drafted token id {token}, outside the vocabulary of {vocabulary}")
        for token in one.emitted[: one.accepted]:
            if token not in one.drafted:
                raise NonsenseOutput(f"{where} says that it accepted token {token}, which it had not drafted")
        emitted += one.emitted
    if emitted != output.tokens:
        raise NonsenseOutput("the emitted parts of the rounds do not add up to the output")


def judged_part(request: Request, output: Output) -> Tokens:
    """The tokens up to the first end that the request sets (EOS, the limit). What follows is no evidence about the law.

    >>> from specref.processors import SamplingSettings
    >>> judged_part(Request((1,), SamplingSettings(max_tokens=4, eos=(2,)), 0), Output((5, 2, 0, 0)))
    (5, 2)
    """
    return request.settings.stops().cut((), output.tokens)


def segments(rounds: Sequence[RecordedRound]) -> Iterator[tuple[int, int]]:
    """(segment, place in the round) of every emitted token.

    >>> list(segments([RecordedRound(0, (5, 6), 1, (5, 9)), RecordedRound(2, (4,), 1, (4, 7))]))
    [(1, 0), (2, 1), (1, 0), (3, 1)]
    """
    for one in rounds:
        for place in range(len(one.emitted)):
            if place < one.accepted:
                yield int(Segment.ACCEPTED), place
            elif not one.drafted:
                yield int(Segment.FIRST), place
            else:
                yield int(Segment.BONUS if one.accepted == len(one.drafted) else Segment.RESIDUAL), place


class AcceptedLengths:
    """How many drafts were accepted per round, beside what the declared rule lets expect at the very same places.

    Expected: at each place of a round that was reached, the rule's chance of acceptance there, from p and q; the product of
    their means gives the theory's histogram. Rounds cut short by the end of the output are left out.
    """

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self._reached: dict[int, int] = {}
        self._chance: dict[int, float] = {}

    def add(self, rule: str, outputs: Sequence[Output], p: Sequence[Floats], q: Sequence[Floats]) -> None:
        """Count the rounds of some outputs; p and q `[len(output), V]` of each."""
        for output, p_rows, q_rows in zip(outputs, p, q):
            for one in output.rounds or ():
                if not one.drafted or len(one.emitted) != one.accepted + 1 or one.start + len(one.emitted) > len(p_rows):
                    continue
                self.counts[one.accepted] = self.counts.get(one.accepted, 0) + 1
                for place in range(min(one.accepted + 1, len(one.drafted))):
                    row = one.start + place
                    self._reached[place] = self._reached.get(place, 0) + 1
                    chance = _acceptance(rule, p_rows[row], q_rows[row], one.drafted[place])
                    self._chance[place] = self._chance.get(place, 0.0) + chance

    def histogram(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Rounds by accepted length, and the same expected."""
        if not self.counts:
            return (), ()
        longest = max(self.counts)
        observed = tuple(self.counts.get(length, 0) for length in range(longest + 1))
        reached, theory = float(sum(observed)), []
        for length in range(longest):
            kept = self._chance.get(length, 0.0) / max(self._reached.get(length, 0), 1)
            theory.append(reached * (1 - kept))
            reached *= kept
        return observed, (*theory, reached)


def _acceptance(rule: str, p: Floats, q: Floats, drafted: int) -> float:
    """The chance that a drafted token is accepted: over the draw of the draft for rules that know q, else given the token."""
    if rule == "ratio":
        return float(np.minimum(p, q).sum())
    if rule == "token_matching":
        return float(p @ q) if 0 < q.max() < 1 else float(p[drafted])
    return float(p[drafted])
