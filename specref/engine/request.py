"""One request: what was asked, what has been committed, and everything that must survive from round to round.

Nothing about a request lives in the batch: no row numbers, no shared generator, no draft that waits in an array. What a request
becomes can then not depend on who shares its batch, on its row, or on rounds that it was left out of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from specref.chance import Chance
from specref.draft import Draft
from specref.engine.grammar import Grammar, Matcher, MatcherState
from specref.engine.metrics import Metrics
from specref.engine.speculation import Proposer, Speculation
from specref.generate import Round
from specref.kv_cache import PagedCache
from specref.kv_cache.base import Rows
from specref.laws import Law
from specref.models import Tokens
from specref.processors import Processor, SamplingSettings
from specref.stopping import Reason, Stops

Status = Literal["waiting", "running", "finished", "cancelled", "failed"]


@dataclass(frozen=True)
class Step:
    """A round, and what its rule was given: p (`[k+1, V]`; a tree: `[N, V]`) and the draft."""

    round: Round
    p: Sequence[Law]
    draft: Draft


@dataclass
class Request:
    """A request as the engine keeps it.

    number: order of arrival. cache: its entries, while it runs. read: how many committed tokens the engine believes are in the
    cache; after a round all but the last one, which no model has read. matcher: where the output stands in its grammar, if it
    has one; like the output, it survives the loss of the cache.
    """

    number: int
    prompt: Tokens
    settings: SamplingSettings
    speculation: Speculation
    chance: Chance
    proposer: Proposer
    processors: tuple[Processor, ...]
    stops: Stops
    metrics: Metrics
    matcher: Matcher | None = None
    output: Tokens = ()
    status: Status = "waiting"
    cache: PagedCache | None = None
    read: int = 0
    steps: list[Step] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    error: Exception | None = None

    @property
    def committed(self) -> Tokens:
        """Prompt and output."""
        return self.prompt + self.output

    @property
    def ready(self) -> bool:
        """Whether everything committed has been read but the last token, with which a round begins."""
        return self.read == len(self.committed) - 1

    @property
    def ended(self) -> bool:
        """Whether it has nothing more to do."""
        return self.status in ("finished", "cancelled", "failed")

    @property
    def entries(self) -> PagedCache:
        """Its cache. Raises RuntimeError if it does not run, and so has none."""
        if self.cache is None:
            raise RuntimeError(f"request {self.number} is {self.status}, so it holds no cache; only running requests do")
        return self.cache


@dataclass(frozen=True)
class RequestState:
    """What can be seen of a request after a step; arrays are copies.

    reason: why the output ended, None while it goes on. cache `[n, *entry_shape]`: its entries, None while it holds no memory.
    draft_cache: those of its proposer, None if it keeps none. rounds: what each round did. logprobs: one per token of `output`.
    matcher: where it stands in its grammar; both None if it has none.

    >>> from specref.engine import CachedTableModel, Engine
    >>> from specref.models import TableModel
    >>> engine = Engine(CachedTableModel(TableModel(5, seed=1)))
    >>> number = engine.submit((1, 4), SamplingSettings(max_tokens=2, seed=0))
    >>> before = engine.state(number)
    >>> engine.run()
    >>> after = engine.state(number)
    >>> before.status, after.status, len(after.output) == len(after.logprobs), after.committed[:2]
    ('waiting', 'finished', True, (1, 4))
    """

    number: int
    prompt: Tokens
    settings: SamplingSettings
    speculation: Speculation
    status: Status
    output: Tokens
    reason: Reason | None
    cache: Rows | None
    draft_cache: Rows | None
    steps: tuple[Step, ...]
    logprobs: tuple[float, ...]
    metrics: Metrics
    grammar: Grammar | None
    matcher: MatcherState | None
    error: Exception | None

    @property
    def rounds(self) -> tuple[Round, ...]:
        """What each round did; their emitted parts add up to the output."""
        return tuple(step.round for step in self.steps)

    @property
    def committed(self) -> Tokens:
        """Prompt and output."""
        return self.prompt + self.output

    @classmethod
    def of(cls, request: Request) -> RequestState:
        """The state of a request now."""
        return cls(
            request.number,
            request.prompt,
            request.settings,
            request.speculation,
            request.status,
            request.output,
            request.stops.reason(request.output),
            None if request.cache is None else request.cache.visible(),
            request.proposer.visible(),
            tuple(request.steps),
            tuple(request.logprobs),
            request.metrics + Metrics(),
            None if request.matcher is None else request.matcher.grammar,
            None if request.matcher is None else request.matcher.state,
            request.error,
        )
