"""One sampled case of an engine: requests go out in order, what comes back is scored and handed to the ledger in that order."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import count
from threading import Lock

import numpy as np

from conformance.asked_law import Asked, as_declared, asked_laws, drafted_places
from conformance.cases import PLAIN, Case
from conformance.checks.accept import looked_at
from conformance.components import Floats, Ints, Mask
from conformance.crew import Crew
from conformance.findings import Curve, ModeReport
from conformance.harness import Runner
from conformance.levels import AuditSettings
from conformance.problems import EngineFailed
from conformance.protocols import Output, Request, Tokens
from conformance.sampling import AcceptedLengths, NonsenseOutput, check_outputs, judged_part, request_seed, segments
from conformance.statistics import Ledger, TokenBlock
from conformance.statistics.fixed_n import FixedNCheck
from conformance.statistics.stream_bounds import StreamBounds
from conformance.statistics.wealth import BetMixture
from conformance.subject import Subject
from specref.processors import SamplingSettings

LOOKS, MOST_LOOKS = 20, 2_000
"""About how often the ledger is looked at: after each chunk of requests."""
SMALLEST_CHUNK, LARGEST_CHUNK = 8, 64
MOST_NUMBERS = 1 << 23
"""Probabilities of one chunk that are held at once, for each of p and q, unless one request's answer takes more."""
SHOWN_LOOKS = 400
SHOWN = 40
"""Tokens in the report's picture of frequencies."""
KEPT_ANSWERS = 1_000
KEPT_ROWS, KEPT_NUMBERS = 256, 1 << 20
"""Rows of p and q kept for saying what was detectable, and the probabilities that they may hold."""
BOUND_ERROR = 0.01
"""How often a mode's bounds may be wrong, all of them together, at any n."""
KEPT_DRAFTS, KEPT_OF_DRAFTS = 4_000, 1 << 24
"""Drafts kept, with their laws, for ACCEPT, and the probabilities that these may hold."""

Watch = Callable[[int], None]
"""Is told how many more tokens (or prompts) were judged."""


def chunk_size(requests: int, numbers: int) -> int:
    """Requests asked for at once, of so many. numbers: probabilities that one request's answer is judged by.

    >>> [chunk_size(n, 64 * 256) for n in (10, 100, 1_000, 100_000, 10_000_000)]
    [8, 8, 50, 64, 512]
    >>> chunk_size(1_000, 64 * 49_152)
    2
    """
    size = min(LARGEST_CHUNK, max(math.ceil(requests / LOOKS), min(SMALLEST_CHUNK, requests)))
    return max(1, min(max(size, requests // MOST_LOOKS), MOST_NUMBERS // numbers))


@dataclass
class SampledCase:
    """The state of one case while it is sampled.

    beyond: outputs that went on after their end. first: the first `KEPT_ANSWERS` requests with their outputs, for the checks
    that look at an output as a whole. refused: fields of the setting that the engine refuses, left out of a combined one.
    drafts: what ACCEPT looks at, as p, q, drafts and flags. bounds: what bounds the mean errors.
    """

    case: Case
    subject: Subject
    settings: AuditSettings
    ledger: Ledger
    lock: Lock
    tokens: int = 0
    requests: int = 0
    beyond: int = 0
    first: list[tuple[Request, Output]] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    p_rows: list[Floats] = field(default_factory=list)
    q_rows: list[Floats] = field(default_factory=list)
    growth: list[tuple[int, float]] = field(default_factory=list)
    rounds: AcceptedLengths = field(default_factory=AcceptedLengths)
    drafts: list[tuple[Floats, Floats, Ints, Mask]] = field(default_factory=list)
    bounds: StreamBounds | None = None

    def __post_init__(self) -> None:
        self.mode = self.case.mode
        self.subject = self.subject.under(self.mode)
        self.observed = np.zeros(self.subject.target.vocabulary)
        self.expected = np.zeros(self.subject.target.vocabulary)
        self.edges: BetMixture | None = None

    @property
    def done(self) -> bool:
        """Whether the planned number of tokens was judged."""
        return self.tokens >= self.case.tokens

    @property
    def standing(self) -> str:
        """For a progress display: the evidence against this case at the last look, and how much of it would prove it wrong."""
        return f"log10 evidence {self.growth[-1][1] if self.growth else 0:.1f}, of {self.alarm:.1f} that would prove it wrong"

    @property
    def alarm(self) -> float:
        """The evidence, in powers of ten, at which this case alone proves the engine wrong."""
        return -math.log10(self.ledger.plan.alpha * self.ledger.plan[self.case.name].weight)

    def run(self, crew: Crew, watch: Watch) -> None:
        """Sample until the planned n, or until this case alone has proven the engine wrong."""
        started = time.monotonic()
        self._leave_out_what_is_refused(crew.first)
        whole = math.ceil(self.case.tokens / self.settings.max_tokens)
        size = chunk_size(whole, self.settings.max_tokens * self.subject.target.vocabulary)
        chunks = ([self._request(first + i) for i in range(size)] for first in count(0, size))
        with closing(crew.answers(self.mode, chunks, math.ceil(whole / size))) as answers:
            for requests, outputs in answers:
                self._check(requests, outputs)
                before = min(self.tokens, self.case.tokens)
                proven = self.judge(requests, outputs)
                self.seconds = time.monotonic() - started
                # Of the plan: the last chunk goes beyond it, and what is proven wrong is not sampled to its end.
                watch((self.case.tokens if proven else min(self.tokens, self.case.tokens)) - before)
                if proven or self.done:
                    return

    def _check(self, requests: Sequence[Request], outputs: Sequence[Output]) -> None:
        check_outputs(requests, outputs, self.subject.target.vocabulary)
        for output in outputs:
            if self.mode.exposes_rounds and output.rounds is None:
                raise NonsenseOutput(f"mode {self.mode.name!r} says that it exposes its rounds, but gave none")

    def _leave_out_what_is_refused(self, runner: Runner) -> None:
        """A combined setting is tried first; what the engine refuses by itself is left out, and the rest judged together."""
        fields = self.case.setting.fields
        if len(fields) < 4 or self._refusal(runner, self.case.asks(self.settings, self.subject)) is None:
            return
        plain = Case(self.mode, self.case.setting.without(list(fields)))
        for name, value in fields.items():
            alone = SamplingSettings(**{**vars(plain.asks(self.settings, self.subject)), name: value})
            refusal = self._refusal(runner, alone)
            if refusal is not None:
                self.refused[name] = refusal
        self.case = Case(**{**vars(self.case), "setting": self.case.setting.without(list(self.refused))})

    def _refusal(self, runner: Runner, sampling: SamplingSettings) -> str | None:
        seed = request_seed(self.settings.seed, self.case.name, "tried")
        try:
            list(runner.generate(self.mode, [Request(self.case.prompt(self.subject, seed), sampling, seed)]))
        except EngineFailed as failed:
            if failed.kind != "unsupported":
                raise
            return str(failed)
        return None

    def _request(self, number: int) -> Request:
        seed = request_seed(self.settings.seed, self.case.name, number)
        return Request(self.case.prompt(self.subject, seed), self.case.asks(self.settings, self.subject), seed)

    def judge(self, requests: Sequence[Request], outputs: Sequence[Output]) -> bool:
        """Score and observe one chunk; whether this case alone now proves the engine wrong."""
        sequences = [(r.prompt, judged_part(r, o)) for r, o in zip(requests, outputs)]
        self.first += zip(requests[: KEPT_ANSWERS - len(self.first)], outputs)
        self.beyond += sum(len(o.tokens) > len(part) for o, (_, part) in zip(outputs, sequences))
        asked = self.laws(requests[0].settings, sequences, outputs)
        block = self._block(sequences, outputs, asked.p, asked.q)
        self.requests += len(requests)
        self.tokens += len(block)
        self._remember(block)
        self._bound(block)
        self._rounds(sequences, outputs, asked)
        name, check = self.case.name, "edges"
        if asked.edges is not None and check in self.ledger.plan[name].checks:
            self.edges = self.edges or asked.edges.mixture()
            self.edges.add(asked.edges.log_factors(block.tokens))
        with self.lock:
            self.ledger.observe(name, block)
            if self.edges is not None:
                self.ledger.put(name, self.edges.evidence(check))
            look = self.ledger.look()
        self.growth.append((self.tokens, look.modes[name]))
        if len(self.growth) > SHOWN_LOOKS:
            self.growth = self.growth[::2]
        return look.modes[name] >= self.alarm

    def laws(self, sampling: SamplingSettings, sequences: Sequence[tuple[Tokens, Tokens]], outputs: Sequence[Output]) -> Asked:
        """p and q of every token. q is what a leak would leak to; also where nothing is drafted: the control bets the same."""
        target = self.subject.target.logits(sequences)
        draft = None if self.mode.draft_law == "n-gram" else self.subject.draft.logits(sequences)
        tolerance = self.subject.tolerance
        asked = asked_laws(sampling, self.mode.order, sequences, target, draft, tolerance, self.case.tokens)
        drafted = [place for (_, part), made in zip(sequences, outputs) for place in drafted_places(made, len(part))]
        return replace(asked, p=as_declared(self.mode, asked.p, asked.q, drafted))

    def _rounds(self, sequences: Sequence[tuple[Tokens, Tokens]], outputs: Sequence[Output], asked: Asked) -> None:
        """What rounds show of acceptance; only where no setting truncates, so that p and q are the engine's own."""
        if asked.edges is not None or not self.mode.exposes_rounds:
            return
        ends = np.cumsum([len(output) for _, output in sequences])[:-1]
        p, q = np.split(asked.p, ends), np.split(asked.q, ends)
        self.rounds.add(self.mode.rule, outputs, p, q)
        if sum(len(one[2]) for one in self.drafts) < min(KEPT_DRAFTS, KEPT_OF_DRAFTS // asked.p.shape[1]):
            parts = [Output(output, made.rounds) for (_, output), made in zip(sequences, outputs)]
            found = looked_at(parts, p, q)
            if len(found[2]):
                self.drafts.append(found)

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

    def _bound(self, block: TokenBlock) -> None:
        """What bounds the mean errors: the first chunk plans the stake, so that it is fixed before the tokens that count."""
        if block.q is None or not len(block):
            return
        if self.bounds is None:
            self.bounds = StreamBounds.plan(block.p, block.q, self.case.tokens, BOUND_ERROR)
        else:
            self.bounds.add(block.tokens, block.p, block.q)

    def _remember(self, block: TokenBlock) -> None:
        self.observed += np.bincount(block.tokens, minlength=block.V)
        self.expected += block.p.sum(axis=0)
        if sum(map(len, self.p_rows)) < self._kept_rows and block.q is not None:
            self.p_rows.append(block.p[::16].copy())  # views would keep the whole block
            self.q_rows.append(block.q[::16].copy())

    @property
    def _kept_rows(self) -> int:
        return min(KEPT_ROWS, max(1, KEPT_NUMBERS // self.subject.target.vocabulary))

    @property
    def rows(self) -> tuple[Floats, Floats]:
        """A sample of p and q `[C, V]`."""
        return np.concatenate(self.p_rows)[: self._kept_rows], np.concatenate(self.q_rows)[: self._kept_rows]

    def report(self) -> ModeReport:
        """What the report shows of this case; pictures only of the plain one."""
        shown = np.argsort(-self.expected, kind="stable")[: SHOWN if self.case.setting.name == PLAIN else 0]
        observed_lengths, theory = self.rounds.histogram()
        ks = self.ledger.judges[self.case.name].checks.get("ks")
        curves: tuple[Curve, ...] = ()
        if isinstance(ks, FixedNCheck) and self.tokens and len(shown):
            n = min(self.tokens, ks.registered_n)
            half_width = math.sqrt(math.log(2 / 0.01) / (2 * n))
            curves = tuple(
                Curve(order, tuple((i + 1) / len(ecdf) for i in range(len(ecdf))), tuple(ecdf), half_width)
                for order, ecdf in ks.distribution().items()
            )
        return ModeReport(
            self.case.name,
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
            **self._upper_bounds(),
            alarm=self.alarm,
        )

    def _upper_bounds(self) -> dict[str, float]:
        """On leak, sets of q/p, total variation and what is left unclaimed of it; none without speculation or tokens."""
        if self.bounds is None or not self.mode.speculates:
            return {}
        found = self.bounds.upper()
        return {
            "leak_bound": found.leak,
            "ratio_sets_bound": found.ratio_sets,
            "total_variation_bound": found.total_variation,
            "unclaimed": found.unclaimed,
        }
