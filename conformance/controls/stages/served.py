"""The reference engine with one part replaced, and what is seen of a run of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from conformance.checks.kv import CachedPage, CacheState
from conformance.protocols import Output, RecordedRound, Request, Tokens
from conformance.statistics.greedy import Margin
from specref.engine import CachedTableModel, Engine, Metrics, RequestState, Speculation
from specref.engine.memory import Memory
from specref.engine.models import CachedModel, no_entries, read_text
from specref.engine.rounds import Rounds
from specref.engine.scheduler import Scheduler
from specref.engine.speculation import DraftModel
from specref.kv_cache.pages import page_names
from specref.models import TableModel
from specref.processors import SamplingSettings
from specref.rules import Rule
from specref.rules.chain import ratio

V, K, PAGE, BATCH = 8, 3, 4, 8
TABLE = TableModel(V, "target", exact=False)
SMALL_TABLE = TableModel(V, "small", "near", target=TABLE, exact=False)
TARGET, SMALL = CachedTableModel(TABLE), CachedTableModel(SMALL_TABLE)
EXACT = Margin(1e-9, "float64", 10_000)
STATISTICAL = 12
"""Checks with a false-alarm rate of their own, times looks: each has that share of the control's."""
REQUESTS = 512
"""Requests that one audit of a server spends."""

KINDS = (
    SamplingSettings(max_tokens=12),
    SamplingSettings(max_tokens=16, eos=(2, 5)),
    SamplingSettings(max_tokens=10, stop_sequences=((1, 2), (6,), (3, 0, 4))),
    SamplingSettings(max_tokens=16, stop_sequences=((0, 3), (1, 4), (2, 7), (5, 6), (3, 3))),
    SamplingSettings(max_tokens=14, temperature=0.0, frequency_penalty=0.6),
    SamplingSettings(max_tokens=9, temperature=0.0),
    SamplingSettings(max_tokens=14, temperature=0.0, eos=(0, 3, 6), min_tokens=5),
    SamplingSettings(max_tokens=12, temperature=0.6, presence_penalty=0.8),
    SamplingSettings(max_tokens=13, eos=(1, 4), min_tokens=6),
    SamplingSettings(max_tokens=11, top_k=3, temperature=1.4),
    SamplingSettings(max_tokens=12, temperature=0.0, repetition_penalty=1.3, stop_sequences=((7, 7),)),
)
"""What requests ask for, in turn."""


@dataclass(frozen=True)
class Server:
    """The reference engine with one part replaced. shape: of drafted trees; None for chains. declared: the rule's name.

    draft_sees: the settings that the draft's laws are made with. lag: entries by which the draft's cache may lag behind.
    """

    rounds: type[Rounds] = Rounds
    memory: type[Memory] = Memory
    metrics: type[Metrics] = Metrics
    scheduler: type[Scheduler] = Scheduler
    engine: type[Engine] = Engine
    draft_model: type[DraftModel] = DraftModel
    rule: Rule = ratio
    declared: str = "ratio"
    shape: tuple[int, ...] | None = None
    draft_sees: Callable[[SamplingSettings], SamplingSettings] = lambda settings: settings
    lag: int = K + 1

    def start(self, seed: int, draft: CachedTableModel = SMALL, pages: int = 400) -> Engine:
        """A fresh engine."""
        parts = {"rounds_type": self.rounds, "memory_type": self.memory, "metrics_type": self.metrics}
        kind = type("UnderTest", (self.engine,), {**parts, "scheduler_type": self.scheduler})
        nodes = len(self.shape) - 1 if self.shape else K
        k = 2 if self.shape else K
        proposer = partial(self.draft_model, draft, shape=self.shape)
        made: Engine = kind(
            TARGET, speculation=Speculation(self.rule, proposer, k, nodes), pages=pages, page_size=PAGE, batch=BATCH, seed=seed
        )
        return made


@dataclass
class Observed:
    """What was seen of one run: everything that the checks look at."""

    requests: Sequence[Request]
    outputs: list[Output] = field(default_factory=list)
    logprobs: list[Sequence[float]] = field(default_factory=list)
    caches: list[CacheState] = field(default_factory=list)
    draft_caches: list[CacheState] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    pages: list[CachedPage] = field(default_factory=list)

    @property
    def tokens(self) -> list[Tokens]:
        """The outputs' tokens."""
        return [output.tokens for output in self.outputs]


def observe(
    engine: Engine, asked: Sequence[Request], events: np.random.Generator | None = None, speculation: Speculation | None = None
) -> Observed:
    """Run requests to their ends. events: now and then one is left out, withdrawn after drafting, or pre-empted."""
    seen, rounds = Observed(asked), dict[int, int]()
    for one in asked:
        engine.submit(one.prompt, replace(one.settings, seed=one.seed if one.seed >= 0 else None), speculation)
    for _ in range(40 * len(asked) + 100):
        if not (engine.scheduler.waiting or engine.scheduler.running):
            break
        running = [request.number for request in engine.scheduler.running]
        if events is not None and running:
            event = (engine.skip, engine.withdraw, engine.preempt, None, None, None)[int(events.integers(6))]
            if event is not None:
                event(int(events.choice(running)))
        for state in engine.step():
            if len(state.steps) == rounds.get(state.number, 0):
                continue
            rounds[state.number] = len(state.steps)
            if state.cache is not None:
                seen.caches.append(cache_state(state, state.cache, TARGET))
            if state.status == "running" and state.draft_cache is not None:
                seen.draft_caches.append(cache_state(state, state.draft_cache, SMALL))
    else:
        raise TimeoutError("the engine does not come to an end")
    for number in range(len(asked)):
        state = engine.state(number)
        if state.error is not None:
            raise state.error
        seen.outputs.append(Output(state.output, tuple(recorded(state))))
        seen.logprobs.append(state.logprobs)
    reported = engine.metrics
    for name in ("rounds", "drafts", "draft_tokens", "accepted", "emitted", "acceptance_rate", "tokens_per_round"):
        seen.metrics[name] = float(getattr(reported, name) or 0.0)
    seen.metrics |= {f"accepted_per_position.{i}": float(count) for i, count in enumerate(reported.accepted_per_position)}
    texts: dict[bytes, Tokens] = {
        digest: (one.prompt + output.tokens)[: PAGE * (i + 1)]
        for one, output in zip(asked, seen.outputs)
        for i, digest in enumerate(page_names(one.prompt + output.tokens, PAGE))
    }
    for digest, rows in engine.memory.pool.published().items():
        if digest in texts:
            seen.pages.append(CachedPage(texts[digest], rows, fresh(TARGET, texts[digest])[-PAGE:]))
    return seen


def recorded(state: RequestState) -> Iterator[RecordedRound]:
    """The rounds of a request, how many drafts were accepted seen from the tokens, and beside it what was reported."""
    for number, one in enumerate(state.rounds):
        accepted = one.accepted
        if state.speculation.nodes == state.speculation.k and number < len(state.rounds) - 1:
            agreeing = [x == y for x, y in zip(one.drafted, one.emitted)]
            accepted = (*agreeing, False).index(False)
        yield RecordedRound(one.start, one.drafted, accepted, one.emitted, one.rule, one.accepted)


def fresh(model: CachedModel, tokens: Tokens) -> np.ndarray:
    """The entries that reading these tokens from the start leaves."""
    return read_text(model, no_entries(model), tokens).entries if tokens else no_entries(model)


def cache_state(state: RequestState, entries: np.ndarray, model: CachedTableModel) -> CacheState:
    """A cache beside a fresh one."""
    read = state.committed[:-1]
    return CacheState(f"request {state.number}, round {len(state.steps) - 1}", read, entries, fresh(model, read))
