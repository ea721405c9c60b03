"""Faults of company: rows that read what belongs to another row, seeds, and steps that come too late."""

from __future__ import annotations

from dataclasses import replace

from conformance.controls.faults.served import fault
from conformance.controls.faults.settings import all_but
from conformance.controls.stages.served import Server
from specref.chance import Chance, Number, SampledChance
from specref.draft import Draft
from specref.engine import Engine
from specref.engine.request import Request
from specref.engine.rounds import Rounds
from specref.models import Tokens
from specref.processors import SamplingSettings


class LawsInTheOldOrder(Engine):
    """A row leaves the batch after drafting and the others move up, but the table of q rows does not."""

    def draft_rows(self, rows: list[Request]) -> dict[int, Draft]:
        """See `Engine.draft_rows`."""
        self.table: list[Draft] = []
        return super().draft_rows(rows)

    def draft_row(self, request: Request, drafts: dict[int, Draft]) -> None:
        """See `Engine.draft_row`."""
        super().draft_row(request, drafts)
        self.table.append(drafts[request.number])

    def verify_rows(self, rows: list[Request], drafts: dict[int, Draft]) -> None:
        """See `Engine.verify_rows`."""
        for request, row in zip(rows, [*self.table[1:], *self.table[:1]]):
            own = drafts[request.number]
            if own.has_laws and row.has_laws and len(own.tokens) == len(row.tokens):
                drafts[request.number] = Draft.claimed(own.tokens, row.laws)
        super().verify_rows(rows, drafts)


class SettingsOfAnotherRow(Engine):
    """Processors are looked up by the row of the token, not by the request."""

    def verify_rows(self, rows: list[Request], drafts: dict[int, Draft]) -> None:
        """See `Engine.verify_rows`."""
        own = [request.processors for request in rows]
        for request, other in zip(rows, [*own[-1:], *own[:-1]]):
            request.processors = other
        super().verify_rows(rows, drafts)
        for request, processors in zip(rows, own):
            request.processors = processors


class SettingsOfTheFirstRow(Engine):
    """Request 0's settings spread over the batch."""

    def verify_rows(self, rows: list[Request], drafts: dict[int, Draft]) -> None:
        """See `Engine.verify_rows`."""
        own = [request.processors for request in rows]
        for request in rows:
            request.processors = own[0]
        super().verify_rows(rows, drafts)
        for request, processors in zip(rows, own):
            request.processors = processors


class AdaptersByPromptRow(Engine):
    """Each request's own bias (as an adapter is) is that of the request that was submitted before it."""

    def draft_row(self, request: Request, drafts: dict[int, Draft]) -> None:
        """See `Engine.draft_row`."""
        if request.number % 2 and not request.output:
            request.processors = self.requests[request.number - 1].processors
        super().draft_row(request, drafts)


class PlaceholderSurvives(Rounds):
    """The drafts of a round that was given up are still counted by the penalties of the next ones."""

    def __init__(self, *parts: object) -> None:
        super().__init__(*parts)  # type: ignore[arg-type]
        self.placeholders: dict[int, Tokens] = {}
        self.last: Tokens = ()

    def draft(self, request: Request) -> Draft:
        """See `Rounds.draft`."""
        draft = super().draft(request)
        self.last = draft.tokens
        return draft

    def abandon(self, request: Request) -> None:
        """See `Rounds.abandon`."""
        super().abandon(request)
        self.placeholders[request.number] = self.last

    def history(self, request: Request, drafted: Tokens) -> Tokens:
        """See `Rounds.history`."""
        return request.output + self.placeholders.get(request.number, ()) + drafted


class StaleStepAfterPreemption(Rounds):
    """A request that was pre-empted or withdrawn after drafting gets the output of that step when it comes back."""

    def __init__(self, *parts: object) -> None:
        super().__init__(*parts)  # type: ignore[arg-type]
        self.stale: dict[int, Draft] = {}

    def abandon(self, request: Request) -> None:
        """See `Rounds.abandon`."""
        super().abandon(request)
        self.stale[request.number] = Draft.chosen((0,))

    def emit(self, request: Request, tokens: Tokens) -> Tokens:
        """See `Rounds.emit`."""
        if self.stale.pop(request.number, None) is not None and request.output:
            tokens = (request.output[-1], *tokens[1:])
        return super().emit(request, tokens)


class SeedsByRow(Engine):
    """A generator per row of the batch: it changes hands when rows move."""

    def draft_rows(self, rows: list[Request]) -> dict[int, Draft]:
        """See `Engine.draft_rows`."""
        for row, request in enumerate(rows):
            if row and isinstance(request.chance, SampledChance):
                request.chance = SampledChance(request.chance.seed + row)
        return super().draft_rows(rows)


class SeedsByArrival(Engine):
    """The number of the request, not its seed."""

    def chance(self, number: int, settings: SamplingSettings) -> Chance:
        """See `Engine.chance`."""
        return super().chance(number, replace(settings, seed=None))


class GlobalGenerator(Engine):
    """One generator for all requests, never set back."""

    drawn = 0

    def chance(self, number: int, settings: SamplingSettings) -> Chance:
        """See `Engine.chance`."""
        type(self).__mro__[1].drawn += 1  # type: ignore[attr-defined]
        return SampledChance(GlobalGenerator.drawn)


class UnseededMixed(Engine):
    """Where a batch holds a request without a seed, the seeded ones draw from the engine's generator too."""

    def draft_rows(self, rows: list[Request]) -> dict[int, Draft]:
        """See `Engine.draft_rows`."""
        if len(rows) > 4:
            for request in rows:
                request.chance = super().chance(request.number, replace(request.settings, seed=None))
        return super().draft_rows(rows)


class ConstantSeed(Engine):
    """Requests without a seed all begin with the same generator state."""

    def chance(self, number: int, settings: SamplingSettings) -> Chance:
        """See `Engine.chance`."""
        return SampledChance(17) if settings.seed is None else super().chance(number, settings)


class UniformsSharedAcrossRows(Engine):
    """The rows of a batch read the same uniforms; each row alone is right."""

    def chance(self, number: int, settings: SamplingSettings) -> Chance:
        """See `Engine.chance`."""
        return SampledChance(self.seed * 1_000_003 + number // 8)


class SamplesShareADraft(SampledChance):
    """Eight samples of a batch draw their drafts from the same numbers; acceptance and replacements are their own."""

    def __init__(self, seed: int, group: int) -> None:
        super().__init__(seed)
        self.group = group

    def uniform(self, number: Number) -> float:
        """See `UniformChance.uniform`."""
        if isinstance(number, tuple) and len(number) > 1 and number[1] == "draft":
            return SampledChance(self.group).uniform(number)
        return super().uniform(number)


class DraftsShared(Engine):
    """Samples of one prompt share their draft."""

    def chance(self, number: int, settings: SamplingSettings) -> Chance:
        """See `Engine.chance`."""
        own = super().chance(number, settings)
        assert isinstance(own, SampledChance)
        return SamplesShareADraft(own.seed, self.seed + number // 8)


class GreedyRowsSampled(Engine):
    """Where any row of a batch samples, all rows do."""

    def verify_rows(self, rows: list[Request], drafts: dict[int, Draft]) -> None:
        """See `Engine.verify_rows`."""
        mixed = any(request.settings.temperature for request in rows)
        own = [request.processors for request in rows]
        for request in rows:
            if mixed and request.settings.temperature == 0:
                request.processors = tuple(all_but(request, "Temperature"))
        super().verify_rows(rows, drafts)
        for request, processors in zip(rows, own):
            request.processors = processors


class ColumnForId(Rounds):
    """The greedy choice is a column of the row as top-k sorted it, wherever rows that sample stand beside it."""

    def emit(self, request: Request, tokens: Tokens) -> Tokens:
        """See `Rounds.emit`."""
        if request.settings.temperature == 0 and self.memory.pool.free < 390:
            tokens = (*tokens[:-1], (tokens[-1] + 1) % self.model.vocabulary)
        return super().emit(request, tokens)


FAULTS = (
    fault(
        "q rows in the old order after a row left",
        "batch",
        "SEED-2",
        Server(engine=LawsInTheOldOrder),
        "vllm-project/vllm 41044",
        sees=True,
    ),
    fault(
        "settings indexed by token row",
        "batch",
        "BATCH-1",
        Server(engine=SettingsOfAnotherRow),
        "NVIDIA/TensorRT-LLM 12588",
        n=2_048,
    ),
    fault(
        "request 0's settings spread over the batch",
        "batch",
        "BATCH-2",
        Server(engine=SettingsOfTheFirstRow),
        "NVIDIA/TensorRT-LLM 12588",
    ),
    fault("adapters by prompt row", "batch", "BATCH-2", Server(engine=AdaptersByPromptRow)),
    fault(
        "a placeholder surviving a skipped round",
        "batch",
        "BATCH-2",
        Server(PlaceholderSurvives),
        "vllm-project/vllm 46899",
        "vllm-project/vllm 46669",
    ),
    fault(
        "output of a step from before pre-emption",
        "batch",
        "BATCH-2",
        Server(StaleStepAfterPreemption),
        "vllm-project/vllm 49620",
        "tenstorrent/vllm-tt-plugin 131",
    ),
    fault(
        "greedy and sampled rows mixed", "batch", "BATCH-2", Server(engine=GreedyRowsSampled), "vllm-project/vllm-ascend 16430"
    ),
    fault(
        "a column's number for a token id in mixed batches",
        "batch",
        "BATCH-2",
        Server(ColumnForId),
        "vllm-project/vllm-ascend 16430",
    ),
    fault("seeded and unseeded rows mixed", "batch", "SEED-2", Server(engine=UnseededMixed), "vllm-project/vllm 6038"),
    fault(
        "per-request seed not honoured",
        "randomness",
        "SEED-1",
        Server(engine=GlobalGenerator),
        "vllm-project/vllm 6038",
        "NVIDIA/TensorRT-LLM 17599",
    ),
    fault("seeds by order of arrival", "randomness", "SEED-2", Server(engine=SeedsByArrival), "NVIDIA/TensorRT-LLM 17599"),
    fault("seeds by batch row", "randomness", "SEED-2", Server(engine=SeedsByRow), "vllm-project/vllm 6698"),
    fault(
        "generator state constant per request",
        "randomness",
        "SEED-3",
        Server(engine=ConstantSeed),
        "warpfront/hipfire 627",
        "NVIDIA/TensorRT-LLM 19487",
    ),
    fault("samples of one prompt share a draft", "randomness", "SEED-3", Server(engine=DraftsShared), "vllm-project/vllm 4934"),
    fault(
        "uniforms shared across rows", "randomness", "SEED-3", Server(engine=UniformsSharedAcrossRows), "vllm-project/vllm 4934"
    ),
)
