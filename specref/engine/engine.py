"""The engine: requests come and go, steps are taken. It decides nothing itself; it calls the parts in the right order."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain

from specref.chance import Chance, SampledChance
from specref.draft import Draft
from specref.engine.grammar import Grammar
from specref.engine.memory import Memory
from specref.engine.metrics import Metrics
from specref.engine.models import CachedModel
from specref.engine.request import Request, RequestState, Status
from specref.engine.rounds import Rounds
from specref.engine.scheduler import Scheduler
from specref.engine.speculation import PLAIN, Speculation
from specref.kv_cache import CacheFull, PagePool
from specref.laws import BadLaw
from specref.models import BadModel
from specref.processors import NothingLeft, SamplingSettings
from specref.rules import chain as chain_rules
from specref.rules import tree as tree_rules

REFUSALS = (NothingLeft, BadLaw, BadModel)
"""What ends one request and must not end the others."""


class Engine:
    """A speculative decoding engine, written to be read.

    model: the target. speculation: how requests speculate that don't say. pages, page_size: the cache's memory. batch, chunk:
    see `Scheduler`. seed: what requests without a seed of their own draw from, each differently.

    A part is replaced by a subclass that names another: `scheduler_type`, `memory_type`, `rounds_type`, `metrics_type`.

    >>> from specref.engine.models import CachedTableModel
    >>> from specref.engine.speculation import by_draft_model
    >>> from specref.models import TableModel
    >>> from specref.rules.chain import ratio
    >>> target, small = (CachedTableModel(TableModel(5, seed)) for seed in (1, 2))
    >>> engine = Engine(target, speculation=Speculation(ratio, by_draft_model(small), k=3))
    >>> one = engine.submit((1, 2, 3), SamplingSettings(max_tokens=6, seed=0))
    >>> two = engine.submit((1, 2), SamplingSettings(max_tokens=8, seed=1, presence_penalty=0.5), PLAIN)
    >>> engine.run()
    >>> len(engine.state(one).output), engine.state(two).status, engine.metrics.emitted
    (6, 'finished', 14)
    """

    scheduler_type: type[Scheduler] = Scheduler
    memory_type: type[Memory] = Memory
    rounds_type: type[Rounds] = Rounds
    metrics_type: type[Metrics] = Metrics

    def __init__(
        self,
        model: CachedModel,
        *,
        speculation: Speculation = PLAIN,
        pages: int = 64,
        page_size: int = 4,
        batch: int = 4,
        chunk: int = 8,
        seed: int = 0,
    ) -> None:
        self.model, self.speculation, self.seed = model, speculation, seed
        self.memory = self.memory_type(PagePool(pages, page_size, model.entry_shape, model.dtype))
        self.scheduler = self.scheduler_type(batch, chunk)
        self.rounds = self.rounds_type(model, self.memory)
        self.requests: dict[int, Request] = {}
        self._withdrawn: set[int] = set()

    def submit(
        self,
        prompt: Sequence[int],
        settings: SamplingSettings,
        speculation: Speculation | None = None,
        grammar: Grammar | None = None,
    ) -> int:
        """A new request; its number. Everything that can be wrong with it is found here. grammar: what its output must follow.

        Raises ValueError for an empty prompt, a token outside the vocabulary (in prompt or settings), more tokens than the
        memory could ever hold, a greedy rule at a temperature above 0, which it would ignore, or a grammar over another
        vocabulary or whose end would not end the output.
        """
        prompt, speculation = tuple(int(token) for token in prompt), speculation or self.speculation
        if not prompt:
            raise ValueError("the prompt is empty; a round begins with the last committed token, so start with a BOS token")
        processors = settings.processors()
        named = chain(prompt, settings.eos, *settings.stop_sequences, *(processor.ids() for processor in processors))
        for token in named:
            if not 0 <= token < self.model.vocabulary:
                raise ValueError(f"token {token} is outside the target's vocabulary of {self.model.vocabulary}")
        if speculation.rule in (chain_rules.greedy, tree_rules.greedy) and settings.temperature != 0:
            raise ValueError(f"the rule is greedy, the temperature {settings.temperature}; ask for 0 or take another rule")
        if grammar is not None and (grammar.vocabulary, grammar.eos in settings.eos) != (self.model.vocabulary, True):
            raise ValueError(
                f"the grammar has {grammar.vocabulary} tokens and ends with {grammar.eos}; the target has "
                f"{self.model.vocabulary} tokens, and the request's eos is {settings.eos}: both must agree"
            )
        self.memory.check_fits(len(prompt) + settings.max_tokens + speculation.nodes)
        number = len(self.requests)
        request = Request(
            number,
            prompt,
            settings,
            speculation,
            self.chance(number, settings),
            speculation.proposer(prompt, settings),
            processors,
            settings.stops(),
            self.metrics_type(),
            grammar.matcher() if grammar is not None else None,
        )
        if request.matcher is not None:
            request.proposer.constrain(request.matcher)
        self.requests[number] = request
        self.scheduler.waiting.append(request)
        return number

    def chance(self, number: int, settings: SamplingSettings) -> Chance:
        """The request's own chance: keyed by its seed and by what each decision is for, so by nothing of the batch."""
        if settings.seed is not None:
            return SampledChance(settings.seed)
        digest = hashlib.blake2b(repr((self.seed, number)).encode(), digest_size=8).digest()
        return SampledChance(int.from_bytes(digest, "big"))

    def step(self) -> list[RequestState]:
        """One step of the batch: prefilling requests read a chunk, the others make a round. The state of each row after it."""
        for request in self.scheduler.admit():
            request.status = "running"
            self.memory.open(request)
        rows = self.scheduler.rows()
        drafts = self.draft_rows([request for request in rows if request.ready])
        for request in rows:
            if request.status == "running" and not request.ready:
                self._work(request, partial(self.rounds.prefill, request, self.scheduler.chunk))
        self.verify_rows([request for request in rows if request.number in drafts], drafts)
        return [self._after_step(request) for request in rows]

    def draft_rows(self, rows: list[Request]) -> dict[int, Draft]:
        """Drafts of these requests by number, less those of which a round was begun in vain."""
        drafts: dict[int, Draft] = {}
        for request in rows:
            self._work(request, partial(self.draft_row, request, drafts))
        for request in rows:
            if request.number in self._withdrawn and drafts.pop(request.number, None) is not None:
                self.rounds.abandon(request)
        self._withdrawn.clear()
        return drafts

    def draft_row(self, request: Request, drafts: dict[int, Draft]) -> None:
        """Draft for one request, and keep the draft under its number, not under its row: rows move."""
        drafts[request.number] = self.rounds.draft(request)

    def verify_rows(self, rows: list[Request], drafts: dict[int, Draft]) -> None:
        """Verify each row's own draft, unless the request has lost its place meanwhile."""
        for request in rows:
            if request.status == "running":
                self._work(request, partial(self.rounds.verify, request, drafts[request.number]))
            if request.status == "running" and request.stops.finished(request.output):
                request.status = "finished"  # at once: a row after it that needs memory must not send it back to wait

    def run(self) -> None:
        """Steps until every request has ended."""
        while self.scheduler.waiting or self.scheduler.running:
            self.step()

    def cancel(self, number: int) -> None:
        """End a request here; one that has ended stays as it is. Raises KeyError for an unknown number."""
        if not self._request(number).ended:
            self._end(self._request(number), "cancelled")

    def preempt(self, number: int) -> None:
        """Take a running request's memory; it waits, and begins again from its committed tokens. Raises KeyError."""
        request = self._request(number)
        if request.status == "running":
            request.status = "waiting"
            self.memory.close(request)
            self.scheduler.send_back(request)

    def skip(self, number: int) -> None:
        """Leave a request out of the next step. Raises KeyError."""
        self.scheduler.skip(self._request(number).number)

    def withdraw(self, number: int) -> None:
        """Take a request out of the next step after it has drafted, before it is verified. Raises KeyError."""
        self._withdrawn.add(self._request(number).number)

    def state(self, number: int) -> RequestState:
        """What can be seen of a request now. Raises KeyError."""
        return RequestState.of(self._request(number))

    @property
    def metrics(self) -> Metrics:
        """The counts of all requests together."""
        return sum((request.metrics for request in self.requests.values()), start=Metrics())

    def _request(self, number: int) -> Request:
        if number not in self.requests:
            raise KeyError(f"there is no request {number}; {len(self.requests)} were submitted, numbered from 0")
        return self.requests[number]

    def _work(self, request: Request, action: Callable[[], None]) -> None:
        """Do something that needs memory. The youngest give way until there is enough, perhaps the request itself."""
        while request.status == "running":
            try:
                return action()
            except CacheFull:
                self.preempt(self.scheduler.victim().number)
            except REFUSALS as error:
                request.error = error
                self._end(request, "failed")
        return None

    def _after_step(self, request: Request) -> RequestState:
        state = RequestState.of(request)  # before its memory goes
        if request.status == "finished":
            self._end(request, "finished")
        return state

    def _end(self, request: Request, status: Status) -> None:
        request.status = status
        self.memory.close(request)
        self.scheduler.remove(request)
