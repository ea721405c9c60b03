"""Our reference over the trained family, with every draft accepted: what the command must find wrong."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.engines import own
from conformance.protocols import Mode, Models, Request
from specref.chance import Chance
from specref.draft import Draft
from specref.laws import Law
from specref.rules import Rule, Verified


def accept_all(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    return Verified(len(draft.tokens), chance.picks(p[-1], slot=("emit",)))


class AcceptsAll(own.ReferenceEngine):
    def modes(self, k: int) -> Sequence[Mode]:
        return super().modes(k)[:2]

    def rule(self, mode: Mode, request: Request) -> Rule:
        return accept_all if mode.speculates else super().rule(mode, request)


def make(models: Models) -> AcceptsAll:
    engine = own.make(models)
    return AcceptsAll(engine.target, engine.draft)
