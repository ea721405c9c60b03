"""The checks on a whole engine: the reference engine conforms, chain and tree; its broken variants are killed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from conformance.checks.accept import metrics_finding
from conformance.checks.batch import company_finding
from conformance.checks.kv import CacheState, cache_finding, draft_cache_finding
from conformance.checks.logprob import logprob_findings
from conformance.checks.seed import repeat_findings
from conformance.checks.stop import stop_findings
from conformance.controls.faults.reports import BonusCounted
from conformance.controls.faults.reports import EmptyRoundsCounted as RoundsWithoutDraftsCounted
from conformance.controls.faults.reports import NoneForTheLast as LogProbabilityOfTheLastMissing
from conformance.controls.faults.reports import OffByARow as LogProbabilitiesOffByARow
from conformance.controls.faults.stopping import LastSlotOnly
from conformance.findings import Finding, Verdict
from conformance.protocols import Output, RecordedRound, Request
from conformance.scoring import TableScorer
from specref.draft import Draft
from specref.engine import CachedTableModel, Engine, Metrics, RequestState, Speculation, by_draft_model
from specref.engine.models import no_entries, read_text
from specref.engine.request import Request as Running
from specref.engine.rounds import Rounds
from specref.models import TableModel, Tokens
from specref.processors import SamplingSettings
from specref.rules import block, chain, tree

V = 8
TABLE = TableModel(V, "target", exact=False)
SMALL = CachedTableModel(TableModel(V, "small", "near", target=TABLE, exact=False))
TARGET = CachedTableModel(TABLE)
SHAPE = (-1, 0, 0, 1, 1, 2)
SPECULATIONS = {
    "ratio": Speculation(chain.ratio, by_draft_model(SMALL), k=3),
    "token matching": Speculation(chain.token_matching, by_draft_model(SMALL), k=3),
    "block": Speculation(block.block, by_draft_model(SMALL), k=3),
    "tree": Speculation(tree.recursive_rejection, by_draft_model(SMALL, SHAPE), k=2, nodes=5),
}


@dataclass
class Observed:
    """Everything that the checks look at."""

    requests: list[Request]
    outputs: list[Output] = field(default_factory=list)
    logprobs: list[Sequence[float]] = field(default_factory=list)
    caches: list[CacheState] = field(default_factory=list)
    draft_caches: list[CacheState] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)


def cache_state(state: RequestState, entries: np.ndarray, model: CachedTableModel) -> CacheState:
    read = state.committed[:-1]
    where = f"request {state.number}, round {len(state.steps) - 1}"
    return CacheState(where, read, entries, read_text(model, no_entries(model), read).entries)


def requests(number: int) -> list[Request]:
    kinds = (
        SamplingSettings(max_tokens=12),
        SamplingSettings(max_tokens=12, eos=(2, 5)),
        SamplingSettings(max_tokens=12, stop_sequences=((1, 2), (6, 6))),
    )
    return [Request((i % V, i // V % V, 1), kinds[i % 3], 1000 + i) for i in range(number)]


def observe(engine: Engine, asked: list[Request]) -> Observed:
    seen = Observed(asked)
    for one in asked:
        settings = SamplingSettings(**{**vars(one.settings), "seed": one.seed})
        engine.submit(one.prompt, settings)
    while engine.scheduler.waiting or engine.scheduler.running:
        for state in engine.step():
            if state.steps and state.cache is not None:
                seen.caches.append(cache_state(state, state.cache, TARGET))
            if state.steps and state.status == "running" and state.draft_cache is not None:
                seen.draft_caches.append(cache_state(state, state.draft_cache, SMALL))
    for number in range(len(asked)):
        state = engine.state(number)
        rounds = (RecordedRound(r.start, r.drafted, r.accepted, r.emitted, r.rule) for r in state.rounds)
        seen.outputs.append(Output(state.output, tuple(rounds)))
        seen.logprobs.append(state.logprobs)
    reported = engine.metrics
    for name in ("rounds", "drafts", "draft_tokens", "accepted", "emitted", "acceptance_rate", "tokens_per_round"):
        seen.metrics[name] = float(getattr(reported, name))
    seen.metrics |= {f"accepted_per_position.{i}": float(count) for i, count in enumerate(reported.accepted_per_position)}
    return seen


def findings(make: Callable[[], Engine], number: int = 48) -> dict[str, Finding]:
    asked = requests(number)
    seen = observe(make(), asked)
    again = observe(make(), asked).outputs
    alone = [observe(make(), [one]).outputs[0] for one in asked[:12]]
    rows = TableScorer(TABLE).logits([(one.prompt, output.tokens) for one, output in zip(asked, seen.outputs)])
    found = [
        cache_finding("m", seen.caches, 100),
        draft_cache_finding("m", seen.draft_caches, 50, lag=3),
        *stop_findings("m", asked, seen.outputs, 2),
        metrics_finding("m", seen.metrics, seen.outputs, 1),
        *logprob_findings("m", seen.outputs, seen.logprobs, rows, 100, promised=True, tolerance=1e-9),
        *repeat_findings("m", seen.outputs[:12], again[:12], alone, 12, promised=True),
        company_finding("m", [one.tokens for one in alone], {"batch": [one.tokens for one in seen.outputs[:12]]}, 12),
    ]
    return {one.requirement: one for one in found}


def engine(name: str, kind: type[Engine] = Engine) -> Callable[[], Engine]:
    return lambda: kind(TARGET, speculation=SPECULATIONS[name], pages=256, batch=8)


@pytest.mark.parametrize("name", SPECULATIONS)
def test_the_reference_engine_conforms(name: str) -> None:
    found = findings(engine(name))
    wrong = [one.summary for one in found.values() if one.verdict is not Verdict.CONFORMS and one.requirement != "STOP-4"]
    assert not wrong


class OneTooMany(Rounds):
    def settle(self, request: Running) -> None:
        super().settle(request)
        request.entries.rollback(request.read - 1)
        request.read -= 1


class OneTooFew(Rounds):
    def keep(self, request: Running, draft: Draft, path: tuple[int, ...]) -> None:
        request.entries.rollback(min(request.read + 1, request.entries.length))


class FirstEosOnly(Rounds):
    def emit(self, request: Running, tokens: Tokens) -> Tokens:
        stops = request.stops
        kept = stops.cut(request.output, tokens)
        return tokens[: len(kept) + 1] if stops.eos and kept[-1] in stops.eos[1:] else kept


def with_rounds(rounds: type[Rounds]) -> type[Engine]:
    return type("Broken", (Engine,), {"rounds_type": rounds})


def with_metrics(metrics: type[Metrics]) -> type[Engine]:
    return type("Broken", (Engine,), {"metrics_type": metrics})


class SeedsByNumber(Engine):
    def chance(self, number: int, settings: SamplingSettings) -> object:  # type: ignore[override]
        return super().chance(number, SamplingSettings(max_tokens=settings.max_tokens))


ENGINES: dict[str, tuple[type[Engine], str]] = {
    "rollback one too many, in an engine": (with_rounds(OneTooMany), "KV-1"),
    "rollback one too few, in an engine": (with_rounds(OneTooFew), "KV-1"),
    "an end looked for in the last slot only, in an engine": (with_rounds(LastSlotOnly), "STOP-1"),
    "first EOS id only, in an engine": (with_rounds(FirstEosOnly), "STOP-1"),
    "log-probabilities off by a row, in an engine": (with_rounds(LogProbabilitiesOffByARow), "LOGPROB-1"),
    "no log-probability of the last token, in an engine": (with_rounds(LogProbabilityOfTheLastMissing), "LOGPROB-2"),
    "bonus counted as accepted, in an engine": (with_metrics(BonusCounted), "ACCEPT-3"),
    "rounds without a draft counted, in an engine": (with_metrics(RoundsWithoutDraftsCounted), "ACCEPT-3"),
    "seeds by order of arrival, in an engine": (SeedsByNumber, "SEED-2"),
}


@pytest.mark.parametrize("name", ENGINES)
def test_a_broken_engine_is_killed(name: str) -> None:
    kind, requirement = ENGINES[name]
    found = findings(engine("ratio", kind))[requirement]
    assert found.verdict is Verdict.VIOLATES, found.summary
    assert "expected" in found.violations[0]
