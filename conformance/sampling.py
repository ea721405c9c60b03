"""One sampled mode of an engine: requests go out in order, what comes back is scored and handed to the ledger in that order."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock

import numpy as np

from conformance.findings import Curve, ModeReport
from conformance.harness import Runner
from conformance.levels import AuditSettings
from conformance.protocols import Mode, Output, RecordedRound, Request, Tokens
from conformance.scoring import copying_laws, laws_at
from conformance.statistics import Ledger, Segment, TokenBlock
from conformance.statistics.evidence import Floats
from conformance.statistics.fixed_n import FixedNCheck
from conformance.subject import Subject
from specref.processors import SamplingSettings

LOOKS = 20
"""About how often the ledger is looked at: after each chunk of at most `LARGEST_CHUNK` requests."""
LARGEST_CHUNK = 64
SHOWN = 40
"""Tokens in the report's picture of frequencies."""
KEPT_ANSWERS = 1_000
KEPT_ROWS = 256
"""Rows of p and q kept for saying what was detectable."""

Watch = Callable[[int], None]
"""Is told how many more tokens (or prompts) were judged."""


class NonsenseOutput(Exception):
    """The engine's output cannot be an answer to the request."""


def request_seed(*what: object) -> int:
    """A seed of 31 bits that follows from `what`: the audit's seed, the mode, the number of the request.

    >>> request_seed(0, "off", 1) == request_seed(0, "off", 1) != request_seed(0, "off", 2)
    True
    """
    digest = hashlib.blake2b("|".join(map(str, what)).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") >> 1


@dataclass
class SampledMode:
    """The state of one mode while it is sampled. beyond: outputs that went on after their end. first: the first `KEPT_ANSWERS`
    requests with their outputs, for the checks that look at an output as a whole.
    """

    mode: Mode
    subject: Subject
    settings: AuditSettings
    ledger: Ledger
    lock: Lock
    tokens: int = 0
    requests: int = 0
    beyond: int = 0
    first: list[tuple[Request, Output]] = field(default_factory=list)
    seconds: float = 0.0
    p_rows: list[Floats] = field(default_factory=list)
    q_rows: list[Floats] = field(default_factory=list)
    growth: list[tuple[int, float]] = field(default_factory=list)
    rounds: AcceptedLengths = field(default_factory=lambda: AcceptedLengths())

    def __post_init__(self) -> None:
        self.observed = np.zeros(self.subject.target.vocabulary)
        self.expected = np.zeros(self.subject.target.vocabulary)

    @property
    def done(self) -> bool:
        """Whether the planned number of tokens was judged."""
        return self.tokens >= self.settings.level.tokens

    def run(self, runner: Runner, watch: Watch) -> None:
        """Sample until the planned n, or until this mode alone has proven the engine wrong."""
        started = time.monotonic()
        whole = self.settings.level.tokens / self.settings.max_tokens
        chunk = max(1, min(LARGEST_CHUNK, math.ceil(whole / LOOKS)))
        while not self.done:
            requests = [self._request(self.requests + i) for i in range(chunk)]
            outputs = list(runner.generate(self.mode, requests))
            for request, output in zip(requests, outputs, strict=True):
                check_output(request, output, self.subject.target.vocabulary)
                if self.mode.exposes_rounds and output.rounds is None:
                    raise NonsenseOutput(f"mode {self.mode.name!r} says that it exposes its rounds, but gave none")
            before = self.tokens
            proven = self._judge(requests, outputs)
            self.seconds = time.monotonic() - started
            watch(self.tokens - before)
            if proven:
                return

    def _request(self, number: int) -> Request:
        settings, seed = self.settings, request_seed(self.settings.seed, self.mode.name, number)
        sampling = SamplingSettings(max_tokens=settings.max_tokens, temperature=settings.temperature, eos=self.subject.eos)
        return Request(self.subject.prompts.prompt(seed), sampling, seed)

    def _judge(self, requests: Sequence[Request], outputs: Sequence[Output]) -> bool:
        """Score and observe one chunk; whether this mode alone now proves the engine wrong."""
        sequences = [(r.prompt, judged_part(r, o)) for r, o in zip(requests, outputs)]
        self.first += zip(requests[: KEPT_ANSWERS - len(self.first)], outputs)
        self.beyond += sum(len(o.tokens) > len(part) for o, (_, part) in zip(outputs, sequences))
        logits = self.subject.target.logits(sequences)
        p = [laws_at(rows, self.settings.temperature) for rows in logits]
        q = self._draft_laws(sequences, p)
        block = self._block(sequences, outputs, np.concatenate(p), np.concatenate(q))
        self.requests += len(requests)
        self.tokens += len(block)
        self._remember(block)
        self.rounds.add(self.mode.rule, outputs, p, q)
        with self.lock:
            self.ledger.observe(self.mode.name, block)
            look = self.ledger.look()
        share = look.modes[self.mode.name] + math.log10(self.ledger.plan[self.mode.name].weight)
        self.growth.append((self.tokens, look.modes[self.mode.name]))
        return share >= -math.log10(self.ledger.plan.alpha)

    def _draft_laws(self, sequences: Sequence[tuple[Tokens, Tokens]], p: Sequence[Floats]) -> list[Floats]:
        """What a leak would leak towards; the draft model also where no drafts are made, so that the control bets the same."""
        if self.mode.draft_law == "n-gram":
            return [copying_laws(prompt, output, rows) for (prompt, output), rows in zip(sequences, p)]
        return [laws_at(rows, self.settings.temperature) for rows in self.subject.draft.logits(sequences)]

    def _block(self, sequences: Sequence[tuple[Tokens, Tokens]], outputs: Sequence[Output], p: Floats, q: Floats) -> TokenBlock:
        lengths = np.array([len(output) for _, output in sequences])
        numbers = self.requests + np.arange(len(sequences))
        segment = slot = None
        if self.mode.exposes_rounds:
            places = [list(segments(output.rounds or ()))[:length] for output, length in zip(outputs, lengths)]
            segment, slot = np.array([place for some in places for place in some], dtype=np.int64).reshape(-1, 2).T
        return TokenBlock(
            np.array([token for _, output in sequences for token in output], dtype=np.int64),
            p,
            q,
            request=np.repeat(numbers, lengths),
            segment=segment,
            slot=slot,
            silent=tuple(numbers[lengths == 0].tolist()),
        )

    def _remember(self, block: TokenBlock) -> None:
        self.observed += np.bincount(block.tokens, minlength=block.V)
        self.expected += block.p.sum(axis=0)
        if sum(map(len, self.p_rows)) < KEPT_ROWS and block.q is not None:
            self.p_rows.append(block.p[::16])
            self.q_rows.append(block.q[::16])

    @property
    def rows(self) -> tuple[Floats, Floats]:
        """A sample of p and q `[C, V]`."""
        return np.concatenate(self.p_rows)[:KEPT_ROWS], np.concatenate(self.q_rows)[:KEPT_ROWS]

    def report(self) -> ModeReport:
        """What the report shows of this mode."""
        shown = np.argsort(-self.expected, kind="stable")[:SHOWN]
        observed_lengths, theory = self.rounds.histogram()
        ks = self.ledger.judges[self.mode.name].checks.get("ks")
        curves: tuple[Curve, ...] = ()
        if isinstance(ks, FixedNCheck) and self.tokens:
            n = min(self.tokens, ks.registered_n)
            half_width = math.sqrt(math.log(2 / 0.01) / (2 * n))
            curves = tuple(
                Curve(order, tuple((i + 1) / len(ecdf) for i in range(len(ecdf))), tuple(ecdf), half_width)
                for order, ecdf in ks.distribution().items()
            )
        return ModeReport(
            self.mode.name,
            self.mode.rule,
            ", ".join(f"{name} {value}" for name, value in self.mode.speculation.items()) or "off",
            self.tokens,
            self.seconds,
            curves,
            tuple(self.subject.texts[token] for token in shown),
            tuple(self.observed[shown].tolist()),
            tuple(self.expected[shown].tolist()),
            observed_lengths,
            theory,
            tuple(self.growth),
        )


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
