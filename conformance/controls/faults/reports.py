"""Faults of what is reported: metrics and log-probabilities. The tokens are right."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.controls.control import Control
from conformance.controls.stages.served import Server
from conformance.controls.stages.serving import serving
from specref.engine import Engine, Metrics
from specref.engine.request import Request, Step
from specref.engine.rounds import Rounds
from specref.engine.sampling import log_probability
from specref.generate import Round
from specref.processors.rows import Row

KIND = "reports"


class BonusCounted(Metrics):
    """Every round's own token counts as an accepted draft."""

    def add(self, done: Round) -> None:
        """See `Metrics.add`."""
        super().add(done)
        self.accepted += 1


class EmptyRoundsCounted(Metrics):
    """Rounds without a draft count as drafts."""

    def add(self, done: Round) -> None:
        """See `Metrics.add`."""
        super().add(done)
        self.drafts += not done.drafted


class CountedAfterStops(Metrics):
    """Accepted drafts count after a stop has cut them."""

    def add(self, done: Round) -> None:
        """See `Metrics.add`."""
        super().add(Round(done.start, done.drafted, min(done.accepted, len(done.emitted) - 1), done.emitted, done.rule))


class CountedBeforeTheTrim(Metrics):
    """Emitted tokens count before a stop has cut them."""

    def add(self, done: Round) -> None:
        """See `Metrics.add`."""
        super().add(done)
        self.emitted += done.accepted + 1 - len(done.emitted)


class FlagsPastTheRejection(Metrics):
    """A position counts as accepted also after an earlier one was rejected: here the last of every rejected draft."""

    def add(self, done: Round) -> None:
        """See `Metrics.add`."""
        super().add(done)
        if done.accepted < len(done.drafted) - 1:
            self.accepted += 1
            self._add_positions([0] * (len(done.drafted) - 1) + [1])


class VerifiedDraftsOnly(Metrics):
    """Drafts behind a rejection do not count as drafted."""

    def add(self, done: Round) -> None:
        """See `Metrics.add`."""
        super().add(done)
        self.draft_tokens -= max(0, len(done.drafted) - done.accepted - 1)


class MeanOfRatios(Metrics):
    """The acceptance rate is the mean of the rounds' rates."""

    rates = 0.0  # the sum of them

    def add(self, done: Round) -> None:
        """See `Metrics.add`."""
        super().add(done)
        self.rates += done.accepted / len(done.drafted) if done.drafted else 0.0

    def __add__(self, other: Metrics) -> Metrics:
        whole = MeanOfRatios(**vars(Metrics.__add__(self, other)))
        whole.rates = self.rates + getattr(other, "rates", 0.0)
        return whole

    @property
    def acceptance_rate(self) -> float | None:
        """See `Metrics.acceptance_rate`."""
        return self.rates / self.rounds if self.rounds else None


class MeanOfRatiosEngine(Engine):
    """Sums with the metrics' own kind."""

    @property
    def metrics(self) -> Metrics:
        """See `Engine.metrics`."""
        return sum((request.metrics for request in self.requests.values()), start=MeanOfRatios())


class AbandonedCounted(Rounds):
    """A round that was given up after drafting counts its drafts."""

    def abandon(self, request: Request) -> None:
        """See `Rounds.abandon`."""
        super().abandon(request)
        request.metrics.draft_tokens += request.speculation.k


class EmittedReported(Rounds):
    """A round reports the emitted tokens as accepted, the target's own among them."""

    def report(self, request: Request, step: Step, scores: Sequence[Row]) -> None:
        """See `Rounds.report`."""
        done = step.round
        reported = Round(done.start, done.drafted, min(len(done.emitted), len(done.drafted)), done.emitted, done.rule)
        super().report(request, Step(reported, step.p, step.draft), scores)


class OffByARow(Rounds):
    """Log-probabilities are read from the row after."""

    def report(self, request: Request, step: Step, scores: Sequence[Row]) -> None:
        """See `Rounds.report`."""
        super().report(request, step, [*scores[1:], scores[-1]])


class OfCertainty(Rounds):
    """Accepted drafts have the log-probability of a one-hot."""

    def report(self, request: Request, step: Step, scores: Sequence[Row]) -> None:
        """See `Rounds.report`."""
        super().report(request, step, scores)
        for place in range(min(step.round.accepted, len(step.round.emitted))):
            request.logprobs[step.round.start + place] = 0.0


class OfTheDraft(Rounds):
    """Accepted drafts have the draft's log-probability."""

    def report(self, request: Request, step: Step, scores: Sequence[Row]) -> None:
        """See `Rounds.report`."""
        super().report(request, step, scores)
        if step.draft.has_laws:
            for place, token in enumerate(step.round.emitted[: step.round.accepted]):
                request.logprobs[step.round.start + place] = log_probability(step.draft.laws[place], token)


class OfTheProcessedLaw(Rounds):
    """Log-probabilities after the processors, where those before them are promised."""

    def report(self, request: Request, step: Step, scores: Sequence[Row]) -> None:
        """See `Rounds.report`."""
        super().report(request, step, [*step.p[: len(scores)]] if step.draft.tree is None else scores)


class NoneForTheLast(Rounds):
    """The last token of a round has no log-probability."""

    def report(self, request: Request, step: Step, scores: Sequence[Row]) -> None:
        """See `Rounds.report`."""
        super().report(request, step, scores[:-1])


class OnlyTheLastRow(Rounds):
    """Of every round one row is returned."""

    def report(self, request: Request, step: Step, scores: Sequence[Row]) -> None:
        """See `Rounds.report`."""
        super().report(request, step, scores[:1])


def fault(id: str, requirement: str, server: Server, *reports: str, sees: bool = False) -> Control:
    """A fault of a report."""
    return Control(
        id,
        KIND,
        "Metrics" if requirement == "ACCEPT-3" else "Rounds.report",
        (requirement,),
        serving(server),
        reports,
        None,
        sees,
    )


FAULTS = (
    fault("bonus counted as accepted", "ACCEPT-3", Server(metrics=BonusCounted), "SafeAILab/EAGLE 147", sees=True),
    fault(
        "rounds without a draft counted as drafts", "ACCEPT-3", Server(metrics=EmptyRoundsCounted), "vllm-project/vllm 28473"
    ),
    fault("accepted drafts counted after stops", "ACCEPT-3", Server(metrics=CountedAfterStops), "vllm-project/vllm 9565"),
    fault(
        "emitted tokens counted before the trim", "ACCEPT-3", Server(metrics=CountedBeforeTheTrim), "sgl-project/sglang 39826"
    ),
    fault(
        "flags summed past the first rejection",
        "ACCEPT-3",
        Server(metrics=FlagsPastTheRejection),
        "vllm-project/vllm 2658",
        sees=True,
    ),
    fault(
        "only verified drafts counted as drafted",
        "ACCEPT-3",
        Server(metrics=VerifiedDraftsOnly),
        "vllm-project/vllm 9565",
        sees=True,
    ),
    fault(
        "mean of ratios instead of ratio of sums",
        "ACCEPT-3",
        Server(metrics=MeanOfRatios, engine=MeanOfRatiosEngine),
        "THUDM/slime 2240",
        sees=True,
    ),
    fault(
        "an aborted round counted",
        "ACCEPT-3",
        Server(AbandonedCounted),
        "vllm-project/vllm 28473",
        "PaddlePaddle/FastDeploy 7260",
        sees=True,
    ),
    fault(
        "emitted tokens reported as accepted drafts",
        "ACCEPT-3",
        Server(EmittedReported),
        "lmstudio-ai/mlx-engine 111",
        sees=True,
    ),
    fault("log-probability of a one-hot", "LOGPROB-1", Server(OfCertainty), "ggml-org/llama.cpp 27972"),
    fault(
        "log-probabilities off by a row",
        "LOGPROB-1",
        Server(OffByARow),
        "vllm-project/vllm 33391",
        "vllm-project/tpu-inference 2799",
    ),
    fault("the draft's log-probability for accepted drafts", "LOGPROB-1", Server(OfTheDraft)),
    fault("log-probabilities of the processed law", "LOGPROB-1", Server(OfTheProcessedLaw), "verl-project/verl 6240"),
    fault("the last token of a round has no log-probability", "LOGPROB-2", Server(NoneForTheLast), "vllm-project/vllm 37237"),
    fault("one row of a round returned", "LOGPROB-2", Server(OnlyTheLastRow), "sgl-project/sglang 26163"),
)
