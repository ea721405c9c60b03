"""Faults of an engine's memory, and of matched drafts that nobody verifies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from conformance.controls.faults.served import fault
from conformance.controls.stages.served import Server
from specref.chance import Chance
from specref.draft import Draft
from specref.engine.memory import Memory
from specref.engine.models import read_text
from specref.engine.request import Request
from specref.engine.rounds import Rounds
from specref.laws import Law
from specref.rules import Verified
from specref.rules.chain import token_matching


class PrefixHitTooLong(Memory):
    """A prefix hit is counted one token longer than it is: the slot of that token is never filled."""

    def open(self, request: Request) -> None:
        """See `Memory.open`."""
        super().open(request)
        if 0 < request.read < len(request.committed) - 1:
            unfilled(request, 1)


class ReadKeptOverPreemption(Memory):
    """The count of what was read survives the loss of the cache, whose new slots stay unfilled."""

    def open(self, request: Request) -> None:
        """See `Memory.open`."""
        super().open(request)
        if request.output:
            unfilled(request, len(request.committed) - 1 - request.read)


def unfilled(request: Request, count: int) -> None:
    """Slots that nobody writes."""
    request.entries.append(np.zeros((count, *request.entries.entry_shape), request.entries.dtype))
    request.read += count


class ChunksRestart(Rounds):
    """Each chunk of a prompt is read as if it were the first."""

    def prefill(self, request: Request, chunk: int) -> None:
        """See `Rounds.prefill`."""
        new = request.committed[:-1][request.read : request.read + chunk]
        request.entries.append(read_text(self.model, request.entries.visible()[:0], new).entries)
        request.read += len(new)
        self.memory.publish(request)


class NotResetBetweenCalls(Memory):
    """A request begins with what the one before it left."""

    left: np.ndarray | None = None

    def open(self, request: Request) -> None:
        """See `Memory.open`."""
        super().open(request)
        if self.left is not None and not request.read and len(request.committed) - 1 >= 1:
            request.entries.append(self.left[:1])
            request.read = 1

    def close(self, request: Request) -> None:
        """See `Memory.close`."""
        if request.cache is not None and request.cache.length:
            self.left = request.cache.visible()
        super().close(request)


MEMORY = (
    fault(
        "a prefix hit counted one token too long", "state", "KV-1", Server(memory=PrefixHitTooLong), "sgl-project/sglang 8726"
    ),
    fault(
        "the count of read tokens kept over pre-emption",
        "state",
        "KV-1",
        Server(memory=ReadKeptOverPreemption),
        "vllm-project/vllm 31955",
    ),
    fault("positions restart with each chunk of a prompt", "state", "KV-1", Server(ChunksRestart), "sgl-project/sglang 34154"),
    fault("reset missing between two calls", "state", "KV-1", Server(memory=NotResetBetweenCalls), "NVIDIA/TensorRT-LLM 2263"),
)


def first_draft_unverified(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    """Token matching that begins with the second draft."""
    if not draft.tokens:
        return token_matching(p, draft, chance)
    rest = token_matching(p[1:], Draft.chosen(draft.tokens[1:]), chance)
    return Verified(1 + rest.accepted, rest.next_token)


def last_draft_unverified(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    """Token matching that takes a whole draft once all but its last token matched."""
    verified, k = token_matching(p, draft, chance), len(draft.tokens)
    return Verified(k, int(p[-1].argmax())) if k and verified.accepted == k - 1 else verified


def two_of_vocabulary_ignored(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    """Token matching that compares ids modulo half the vocabulary."""
    half = len(p[0]) // 2
    for i, x in enumerate(draft.tokens):
        y = chance.picks(p[i], slot=("token", i))
        if y % half != x % half:
            return Verified(i, y)
    return Verified(len(draft.tokens), chance.picks(p[-1], slot=("token", len(draft.tokens))))


def matching(rule: object) -> Server:
    """A server whose rule is declared as token matching."""
    return Server(rule=rule, declared="token_matching")  # type: ignore[arg-type]


HOSTILE = (
    fault(
        "first draft unverified under token matching",
        "sampler",
        "DRAFT-2",
        matching(first_draft_unverified),
        "ohdearquant/lattice 243",
        sees=True,
    ),
    fault(
        "last draft unverified under token matching",
        "sampler",
        "DRAFT-2",
        matching(last_draft_unverified),
        "ggml-org/llama.cpp 27975",
        sees=True,
    ),
    fault(
        "ids compared modulo half the vocabulary",
        "sampler",
        "DRAFT-2",
        matching(two_of_vocabulary_ignored),
        "ggml-org/llama.cpp 3812",
        sees=True,
    ),
)


FAULTS = (*MEMORY, *HOSTILE)
