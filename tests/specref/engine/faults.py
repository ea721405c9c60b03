"""Engines that are wrong in the ways of real ones. Each overrides one part of the reference engine; nothing crashes.

`FAULTS` names each with the state machine that meets it. `LAWFUL` are engines that do something otherwise and are right.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from conformance.controls.faults.batches import PlaceholderSurvives, SettingsOfTheFirstRow
from conformance.controls.faults.memory import ChunksRestart as ChunkPositionsRestart
from conformance.controls.faults.memory import PrefixHitTooLong, ReadKeptOverPreemption
from conformance.controls.faults.reports import BonusCounted
from conformance.controls.faults.reports import CountedAfterStops as AcceptedCountedAfterStops
from conformance.controls.faults.reports import EmittedReported as EmittedCountIsReported
from conformance.controls.faults.reports import EmptyRoundsCounted as RoundsWithoutDraftsCounted
from conformance.controls.faults.reports import OffByARow as LogProbabilitiesOffByARow
from conformance.controls.faults.settings import LastTokenCountedTwice, PenaltiesFrozen
from conformance.controls.faults.stopping import EndKeptInTheCache as TokensAfterTheEndKeptInTheCache
from conformance.controls.faults.stopping import LastSlotOnly as EndLookedForInTheLastSlotOnly
from conformance.controls.faults.stopping import NotClamped as NotClampedToMaxTokens
from conformance.controls.lawful import DraftForgetsEverything, NothingShared, RowsReversed
from specref.chance import Chance, SampledChance
from specref.draft import Draft
from specref.engine import Engine
from specref.engine.memory import Memory
from specref.engine.models import Mask, read_text
from specref.engine.request import Request
from specref.engine.rounds import Rounds
from specref.engine.speculation import DraftModel
from specref.models import Tokens
from specref.processors import SamplingSettings
from specref.processors.rows import Row
from specref.tree import TokenTree

from .machine import Schedules
from .subjects import speculations

# The target's cache.


class OneTooMany(Rounds):
    """Rollback takes the last accepted token with it."""

    def settle(self, request: Request) -> None:
        super().settle(request)
        request.entries.rollback(request.read - 1)


class OneTooFew(Rounds):
    """Rollback leaves the first rejected draft."""

    def keep(self, request: Request, draft: Draft, path: tuple[int, ...]) -> None:
        if draft.tree is None:
            request.entries.rollback(min(request.read + 1, request.entries.length))
        else:
            super().keep(request, draft, path)


class ResetInstead(Rounds):
    """After a rejection everything is forgotten and read again: the output is right, the state is not."""

    def keep(self, request: Request, draft: Draft, path: tuple[int, ...]) -> None:
        super().keep(request, draft, path)
        if len(path) < len(draft.tokens):
            request.entries.rollback(0)
            request.read = 0


class FirstRowsKept(Rounds):
    """A tree's first rows stay, not those of the accepted path."""

    def keep(self, request: Request, draft: Draft, path: tuple[int, ...]) -> None:
        cache = request.entries
        if draft.tree is None:
            super().keep(request, draft, path)
        else:
            leftmost: tuple[int, ...] = ()
            while len(leftmost) < len(path):
                leftmost += draft.tree.children(leftmost[-1] if leftmost else 0)[:1]
            cache.gather(leftmost)


class PublishedWithRejectedTokens(Rounds):
    """Full pages are published under the tokens of the output while rejected drafts still lie in them."""

    def keep(self, request: Request, draft: Draft, path: tuple[int, ...]) -> None:
        if request.entries.length >= len(request.committed):
            request.entries.publish(request.committed)
        super().keep(request, draft, path)


class PagesLeaked(Memory):
    """The pages of a request that ends in the middle of a page are not given back."""

    def close(self, request: Request) -> None:
        if request.cache is not None and request.cache.length % self.pool.page_size:
            request.cache = None
        super().close(request)


# The draft's cache.


class LastDraftNeverRead(DraftModel):
    """After full acceptance the bonus token is read at the place of the last draft."""

    def unread(self, committed: Tokens) -> Tokens:
        return committed[-1:]


class DraftSettledForTheBonus(DraftModel):
    """The rejected entry at the place of the emitted token stays, and the token itself is never read."""

    def settle(self, committed: Tokens) -> None:
        self.cache.rollback(min(self.cache.length, len(committed)))

    def unread(self, committed: Tokens) -> Tokens:
        return committed[self.cache.length :] or committed[-1:]


# Trees.


class PositionsByOrder(Rounds):
    def positions(self, request: Request, tree: TokenTree) -> Tokens:
        return tuple(range(request.read, request.read + len(tree)))


class EverythingBelowTheDiagonal(Rounds):
    def mask(self, tree: TokenTree) -> Mask:
        return np.tri(len(tree), dtype=np.bool_)


# Batches.


class SeedsShared(Engine):
    """The engine's seed, not the request's."""

    def chance(self, number: int, settings: SamplingSettings) -> Chance:
        return SampledChance(self.seed)


class SeedsByRow(Engine):
    """A generator per row of the batch: it changes hands when rows move."""

    def draft_rows(self, rows: list[Request]) -> dict[int, Draft]:
        for row, request in enumerate(rows):
            assert isinstance(request.chance, SampledChance)
            if row:
                request.chance = SampledChance(request.chance.seed + row)
        return super().draft_rows(rows)


class DraftLawsInOldOrder(Engine):
    """A row leaves the batch after drafting and the others move up, but the table of q rows does not."""

    def draft_rows(self, rows: list[Request]) -> dict[int, Draft]:
        self.table: list[Draft] = []
        return super().draft_rows(rows)

    def draft_row(self, request: Request, drafts: dict[int, Draft]) -> None:
        super().draft_row(request, drafts)
        self.table.append(drafts[request.number])

    def verify_rows(self, rows: list[Request], drafts: dict[int, Draft]) -> None:
        for request, row in zip(rows, self.table):
            own = drafts[request.number]
            if own.tree is None and row.tree is None and own.has_laws and row.has_laws and len(own.tokens) == len(row.tokens):
                drafts[request.number] = Draft.claimed(own.tokens, row.laws)
        super().verify_rows(rows, drafts)


# Settings.


# Stops.


class FirstEosIdOnly(Rounds):
    def emit(self, request: Request, tokens: Tokens) -> Tokens:
        stops, first = request.stops, request.stops.eos[:1]
        kept = stops.cut(request.output, tokens)
        return tokens[: len(kept) + 1] if stops.eos and kept[-1] in stops.eos and kept[-1] not in first else kept


# Reports.


# Lawful variations.


class OneTokenPerPass(Rounds):
    """A chain is read one token at a time, as without speculation."""

    def read(self, request: Request, tree: TokenTree, draft: Draft) -> Sequence[Row]:
        if draft.tree is not None:
            return super().read(request, tree, draft)
        scores: list[Row] = []
        seen = request.entries.visible()
        for token in tree.tokens:
            reading = read_text(self.model, seen, (token,))
            seen = np.concatenate([seen, reading.entries])
            scores += reading.scores
        request.entries.append(seen[request.read :])
        return scores


def driving(**parts: type) -> type[Schedules]:
    """Schedules of an engine with one part replaced."""
    return of(type("Engine", (Engine,), parts))


def of(engine: type[Engine]) -> type[Schedules]:
    return type("Machine", (Schedules,), {"engine_type": engine})


def rounds(part: type[Rounds]) -> type[Schedules]:
    return driving(rounds_type=part)


def drafting(draft_model: type[DraftModel]) -> type[Schedules]:
    return type("Machine", (Schedules,), {"speculations": speculations(draft_model)})


FAULTS: dict[str, type[Schedules]] = {
    part.__name__: make(part)
    for make, parts in [
        (
            rounds,
            [
                OneTooMany,
                OneTooFew,
                ResetInstead,
                FirstRowsKept,
                PublishedWithRejectedTokens,
                ChunkPositionsRestart,
                PositionsByOrder,
                EverythingBelowTheDiagonal,
                PlaceholderSurvives,
                PenaltiesFrozen,
                LastTokenCountedTwice,
                EndLookedForInTheLastSlotOnly,
                FirstEosIdOnly,
                NotClampedToMaxTokens,
                TokensAfterTheEndKeptInTheCache,
                LogProbabilitiesOffByARow,
                EmittedCountIsReported,
            ],
        ),
        (lambda part: driving(memory_type=part), [PrefixHitTooLong, ReadKeptOverPreemption, PagesLeaked]),
        (lambda part: driving(metrics_type=part), [BonusCounted, AcceptedCountedAfterStops, RoundsWithoutDraftsCounted]),
        (of, [SeedsShared, SeedsByRow, DraftLawsInOldOrder, SettingsOfTheFirstRow]),
        (drafting, [LastDraftNeverRead, DraftSettledForTheBonus]),
    ]
    for part in parts
}

LAWFUL: dict[str, type[Schedules]] = {
    "RowsReversed": driving(scheduler_type=RowsReversed),
    "NothingShared": driving(memory_type=NothingShared),
    "OneTokenPerPass": rounds(OneTokenPerPass),
    "DraftForgetsEverything": drafting(DraftForgetsEverything),
}
