"""Faults of settings: processors that see the wrong history, or reach some positions of a round only."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.controls.faults.served import fault
from conformance.controls.stages.served import Server
from specref.engine.request import Request
from specref.engine.rounds import Rounds
from specref.engine.sampling import processed
from specref.laws import Law
from specref.models import Tokens
from specref.processors import LogitBias, Processor
from specref.processors.rows import Row
from specref.tree import TokenTree


class PenaltiesFrozen(Rounds):
    """Penalties count what was committed when the round began."""

    def history(self, request: Request, drafted: Tokens) -> Tokens:
        """See `Rounds.history`."""
        return request.output


class LastTokenCountedTwice(Rounds):
    """The last token stands in the counts, and is counted again."""

    def history(self, request: Request, drafted: Tokens) -> Tokens:
        """See `Rounds.history`."""
        return request.output + request.output[-1:] + drafted


class CountsFromTheLastToken(Rounds):
    """Of every round only its last token reaches the counts."""

    def history(self, request: Request, drafted: Tokens) -> Tokens:
        """See `Rounds.history`."""
        return tuple(step.round.emitted[-1] for step in request.steps) + drafted


class RejectedStayInTheCounts(Rounds):
    """Drafts that were rejected stay in the history that penalties see."""

    def history(self, request: Request, drafted: Tokens) -> Tokens:
        """See `Rounds.history`."""
        rejected = [token for step in request.steps[-1:] for token in step.round.drafted[step.round.accepted :]]
        return (*request.output, *rejected, *drafted)


class MinTokensInRounds(Rounds):
    """min_tokens counts rounds, so the end stays banned for too long."""

    def history(self, request: Request, drafted: Tokens) -> Tokens:
        """See `Rounds.history`."""
        return request.output[: len(request.steps)] if request.settings.min_tokens else request.output + drafted


class AtPositions(Rounds):
    """Processors reach some positions of a round only."""

    def processors(self, request: Request, place: int, last: int) -> Sequence[Processor]:
        """Those that position `place` of 0..last gets."""
        return request.processors

    def laws(self, request: Request, tree: TokenTree, scores: Sequence[Row]) -> list[Law]:
        """See `Rounds.laws`."""
        last = len(scores) - 1
        return [
            processed(row, self.processors(request, i, last), request.prompt, self.history(request, tree.spells(i)))
            for i, row in enumerate(scores)
        ]


def named(request: Request, *names: str) -> list[Processor]:
    """Those of the request's processors whose class has one of these names."""
    return [one for one in request.processors if type(one).__name__ in names]


def all_but(request: Request, *names: str) -> list[Processor]:
    """The others."""
    return [one for one in request.processors if type(one).__name__ not in names]


class MinPOnTheBonusOnly(AtPositions):
    """min_p reaches the last row of the window."""

    def processors(self, request: Request, place: int, last: int) -> Sequence[Processor]:
        """See `AtPositions.processors`."""
        return request.processors if place == last else all_but(request, "MinP")


class BiasOnTheFirstRow(AtPositions):
    """The bias reaches the first row of the window."""

    def processors(self, request: Request, place: int, last: int) -> Sequence[Processor]:
        """See `AtPositions.processors`."""
        return all_but(request, "LogitBias") if place else request.processors


class PenaltiesOnTheBonusOnly(AtPositions):
    """Penalties reach the last row of the window."""

    def processors(self, request: Request, place: int, last: int) -> Sequence[Processor]:
        """See `AtPositions.processors`."""
        return (
            request.processors
            if place == last
            else all_but(request, "RepetitionPenalty", "PresencePenalty", "FrequencyPenalty")
        )


class PenaltiesOnTheFirstTokenOnly(AtPositions):
    """Penalties are applied to the first token of the output."""

    def processors(self, request: Request, place: int, last: int) -> Sequence[Processor]:
        """See `AtPositions.processors`."""
        first = not request.output and not place
        return request.processors if first else all_but(request, "RepetitionPenalty", "PresencePenalty", "FrequencyPenalty")


class OtherOrder(AtPositions):
    """With speculation on, temperature comes before the penalties and after top-k."""

    def processors(self, request: Request, place: int, last: int) -> Sequence[Processor]:
        """See `AtPositions.processors`."""
        return (*named(request, "Temperature"), *all_but(request, "Temperature"))


class EndBannedAtEveryRound(AtPositions):
    """What bans the end at the beginning of an output does so at the beginning of every round."""

    def processors(self, request: Request, place: int, last: int) -> Sequence[Processor]:
        """See `AtPositions.processors`."""
        banned = LogitBias(dict.fromkeys(request.stops.eos, -1e4))
        return request.processors if place else (banned, *request.processors)


class MinTokensByTheRoundsStart(Rounds):
    """Whether the end is still banned is decided once a round: by its last position."""

    def history(self, request: Request, drafted: Tokens) -> Tokens:
        """See `Rounds.history`."""
        ahead = (0,) * (request.speculation.k - len(drafted)) if request.settings.min_tokens else ()
        return request.output + ahead + drafted


def ignoring(setting: str) -> type[Rounds]:
    """Verification that ignores a setting without a word."""
    classes = {
        "temperature": "Temperature",
        "top_k": "TopK",
        "top_p": "TopP",
        "min_p": "MinP",
        "repetition_penalty": "RepetitionPenalty",
        "presence_penalty": "PresencePenalty",
        "frequency_penalty": "FrequencyPenalty",
        "logit_bias": "LogitBias",
        "bad_words": "BadWords",
        "min_tokens": "MinTokens",
    }

    class Ignoring(AtPositions):
        def processors(self, request: Request, place: int, last: int) -> Sequence[Processor]:
            return all_but(request, classes[setting])

    return Ignoring


FAULTS = (
    fault(
        "penalties frozen at the start of the round",
        "processors",
        "LOUD-1",
        Server(PenaltiesFrozen),
        "sgl-project/sglang 28242",
    ),
    fault("last token counted twice", "processors", "GREEDY-1", Server(LastTokenCountedTwice), "vllm-project/vllm 33251"),
    fault(
        "counts from the last accepted token only",
        "processors",
        "LOUD-1",
        Server(CountsFromTheLastToken),
        "sgl-project/sglang 33643",
    ),
    fault(
        "rejected drafts kept in the counts",
        "processors",
        "GREEDY-1",
        Server(RejectedStayInTheCounts),
        "vllm-project/vllm 20247",
    ),
    fault("min-p on the bonus only", "processors", "LOUD-1", Server(MinPOnTheBonusOnly), "vllm-project/vllm 19482"),
    fault("min-tokens counted in rounds", "processors", "GREEDY-1", Server(MinTokensInRounds), "sgl-project/sglang 33643"),
    fault(
        "the ban of the end decided once a round",
        "processors",
        "STOP-4",
        Server(MinTokensByTheRoundsStart),
        "sgl-project/sglang 33643",
    ),
    fault("bias on the first row only", "processors", "LOUD-1", Server(BiasOnTheFirstRow), "vllm-project/vllm 19482"),
    fault("penalties on the bonus only", "processors", "LOUD-1", Server(PenaltiesOnTheBonusOnly), "sgl-project/sglang 28242"),
    fault(
        "penalties on the first token only",
        "processors",
        "LOUD-1",
        Server(PenaltiesOnTheFirstTokenOnly),
        "mlx-node/mlx-node 11",
    ),
    fault(
        "processors in another order with speculation on",
        "processors",
        "BATCH-1",
        Server(OtherOrder),
        "Blaizzy/mlx-vlm 2029",
        n=2_048,
    ),
    fault(
        "the end banned at the beginning of every round",
        "processors",
        "GREEDY-1",
        Server(EndBannedAtEveryRound),
        "huggingface/transformers 47995",
    ),
    *(
        fault(
            f"{setting} ignored without a word", "processors", "LOUD-1", Server(ignoring(setting)), *reports, replaces="Rounds"
        )
        for setting, reports in {
            "temperature": ("vllm-project/vllm 9834",),
            "top_k": ("Blaizzy/mlx-vlm 2029",),
            "top_p": ("sgl-project/sglang 31214",),
            "min_p": ("vllm-project/vllm 19482",),
            "repetition_penalty": ("NVIDIA/TensorRT-LLM 17701",),
            "presence_penalty": ("NVIDIA/TensorRT-LLM 17701",),
            "frequency_penalty": ("NVIDIA/TensorRT-LLM 17701",),
            "logit_bias": ("vllm-project/vllm 19482",),
            "bad_words": ("vllm-project/vllm 19482",),
            "min_tokens": ("vllm-project/vllm 19482",),
        }.items()
    ),
)
