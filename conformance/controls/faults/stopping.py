"""Faults of stopping: where in a round an output ends, and what is kept then."""

from __future__ import annotations

from conformance.controls.faults.served import fault
from conformance.controls.stages.served import Server
from specref.draft import Draft
from specref.engine.request import Request
from specref.engine.rounds import Rounds
from specref.models import Tokens


class LastSlotOnly(Rounds):
    """The end is looked for in the last slot of a round."""

    def emit(self, request: Request, tokens: Tokens) -> Tokens:
        """See `Rounds.emit`."""
        return tokens[: request.stops.room(request.output)]


class FirstEosIdOnly(Rounds):
    """Of several ids the first ends the output within a round."""

    def emit(self, request: Request, tokens: Tokens) -> Tokens:
        """See `Rounds.emit`."""
        stops, kept = request.stops, super().emit(request, tokens)
        late = stops.eos and kept[-1] in stops.eos[1:] and len(request.output + kept) < stops.max_tokens
        return tokens[: len(kept) + 1] if late else kept


class LengthBeforeStop(Rounds):
    """A round that reaches the limit is cut there, and no stop sequence is looked for in it."""

    def emit(self, request: Request, tokens: Tokens) -> Tokens:
        """See `Rounds.emit`."""
        room = request.stops.room(request.output)
        return tokens[:room] if len(tokens) >= room else super().emit(request, tokens)


class NotClamped(Rounds):
    """A round is emitted whole unless EOS or a stop sequence cuts it, and drafts as deep as ever."""

    def room(self, request: Request) -> int:
        """See `Rounds.room`."""
        return request.speculation.k

    def emit(self, request: Request, tokens: Tokens) -> Tokens:
        """See `Rounds.emit`."""
        for length in range(1, len(tokens)):
            if request.stops.reason(request.output + tokens[:length]) in ("eos", "stop_sequence"):
                return tokens[:length]
        return tokens


class TextTrimmedOnly(Rounds):
    """After a stop sequence the text is cut, the ids of the round are not."""

    def emit(self, request: Request, tokens: Tokens) -> Tokens:
        """See `Rounds.emit`."""
        kept = super().emit(request, tokens)
        stopped = request.stops.reason(request.output + kept) == "stop_sequence"
        return tokens[: request.stops.room(request.output)] if stopped else kept


class SequencesWithinARound(Rounds):
    """Stop sequences are looked for in what a round emits, not across rounds."""

    def emit(self, request: Request, tokens: Tokens) -> Tokens:
        """See `Rounds.emit`."""
        kept = super().emit(request, tokens)
        sequences = [one for one in request.stops.sequences if (request.output + kept)[-len(one) :] == one]
        if sequences and len(kept) < min(map(len, sequences)):
            return tokens[: min(len(kept) + 1, request.stops.room(request.output))]
        return kept


class EndAmongTheDrafts(Rounds):
    """An end among the drafts ends the output, accepted or not."""

    def settle(self, request: Request) -> None:
        """See `Rounds.settle`."""
        super().settle(request)
        if self.drafted & set(request.stops.eos):
            request.status = "finished"

    def verify(self, request: Request, draft: Draft) -> None:
        """See `Rounds.verify`."""
        self.drafted = set(draft.tokens)
        super().verify(request, draft)


class ResampledAfterTheEnd(Rounds):
    """An accepted end is followed by one token more."""

    def emit(self, request: Request, tokens: Tokens) -> Tokens:
        """See `Rounds.emit`."""
        kept = super().emit(request, tokens)
        ended = request.stops.reason(request.output + kept) == "eos" and len(request.output + kept) < request.stops.max_tokens
        return tokens[: len(kept) + 1] if ended else kept


class StopsShort(Rounds):
    """A request ends when less room is left than a whole round may need."""

    def settle(self, request: Request) -> None:
        """See `Rounds.settle`."""
        super().settle(request)
        if request.stops.room(request.output) < request.speculation.k:
            request.status = "finished"


class EndKeptInTheCache(Rounds):
    """The output is cut, the cache is not."""

    def keep(self, request: Request, draft: Draft, path: tuple[int, ...]) -> None:
        """See `Rounds.keep`."""
        if draft.tree is None and request.stops.finished(request.output):
            request.entries.rollback(min(request.read + 1, request.entries.length))
        else:
            super().keep(request, draft, path)


FAULTS = (
    fault(
        "EOS looked for in the block's last slot only",
        "stopping",
        "STOP-1",
        Server(LastSlotOnly),
        "huggingface/transformers 47912",
        "LostRuins/koboldcpp 1276",
        "openvinotoolkit/openvino.genai 1951",
    ),
    fault("first of several EOS ids only", "stopping", "STOP-1", Server(FirstEosIdOnly), "intel/ipex-llm 11896"),
    fault("length cap before stop", "stopping", "STOP-1", Server(LengthBeforeStop), "sgl-project/sglang 31599", n=6_144),
    fault(
        "no clamp to max tokens",
        "stopping",
        "STOP-3",
        Server(NotClamped),
        "ohdearquant/lattice 242",
        "rohitg00/ai-engineering-from-scratch 185",
    ),
    fault("text trimmed, ids not", "stopping", "STOP-2", Server(TextTrimmedOnly), "sgl-project/sglang 31599"),
    fault(
        "stop sequences looked for within one round",
        "stopping",
        "STOP-2",
        Server(SequencesWithinARound),
        "sgl-project/sglang 31599",
    ),
    fault(
        "an end among rejected drafts ends the output",
        "stopping",
        "STOP-5",
        Server(EndAmongTheDrafts),
        "huggingface/transformers 28508",
    ),
    fault(
        "a token sampled after an accepted end",
        "stopping",
        "STOP-1",
        Server(ResampledAfterTheEnd),
        "huggingface/transformers 28508",
    ),
    fault(
        "a request ends when a whole round no longer fits", "stopping", "STOP-5", Server(StopsShort), "vllm-project/vllm 57941"
    ),
    fault(
        "tokens after EOS kept as context", "stopping", "KV-1", Server(EndKeptInTheCache), "openvinotoolkit/openvino.genai 1951"
    ),
)
