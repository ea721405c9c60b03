"""Numerical margins through the whole audit: noise explains near-ties and nothing else, and a wide margin convicts nobody."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from conformance.findings import EngineReport, Verdict
from conformance.scoring import TableScorer
from conformance.statistics.greedy import Margin, hard_margin
from conformance.statistics.tolerance import Tolerance
from conformance.subject import Subject
from specref.engine import CachedTableModel, Engine
from specref.engine.models import Mask, Reading
from specref.kv_cache.base import Rows
from specref.laws import Law
from specref.models import Tokens
from tests.conformance.audited_tables import LEVEL, TARGET, audited, engine_with, finding, subject
from tests.conformance.broken_rounds import FirstUnverified

MODE = "draft model, ratio"
NOISE, TIE = 1e-11, 1e-12
"""Standard deviation of the noise on a logit, and how far apart the two best logits lie in every context."""


class NearlyTied:
    """The table, with its two best tokens almost equally probable."""

    vocabulary = TARGET.vocabulary

    def next_law(self, context: Tokens) -> Law:
        law: Law = TARGET.next_law(context).copy()
        second, first = np.argsort(law)[-2:]
        mean = (law[first] + law[second]) / 2
        law[first], law[second] = mean * (1 + TIE / 2), mean * (1 - TIE / 2)
        return law

    def next_laws(self, context: Tokens, drafted: Tokens) -> list[Law]:
        return [self.next_law(context + drafted[:i]) for i in range(len(drafted) + 1)]


class Noisy(CachedTableModel):
    """Logits that depend on how many tokens a pass reads, as kernels' sums do."""

    def read(self, past: Rows, tokens: Tokens, positions: Tokens, mask: Mask) -> Reading:
        exact = super().read(past, tokens, positions, mask)
        rng = np.random.default_rng([len(tokens), len(past)])
        return Reading(exact.entries, [row + NOISE * rng.standard_normal(len(row)) for row in exact.scores])


class Measured(Subject):
    """A subject whose two lawful ways of computing a row lie `eta` apart."""

    eta = 4 * NOISE

    @property
    def tolerance(self) -> Tolerance:  # type: ignore[override]
        return Tolerance(self.eta, self.eta / 4, self.eta / 8, 10_000)

    @property
    def margin(self) -> Margin:  # type: ignore[override]
        return hard_margin(self.tolerance, "float64")


class TooCoarse(Measured):
    """Four times this is above the cap of 1e-9."""

    eta = 1e-6


def noisy_report(kind: type[Measured], engine_type: type[Engine] = Engine) -> EngineReport:
    table = NearlyTied()
    plain = replace(subject(), target=TableScorer(table))  # type: ignore[arg-type]
    judge = kind(**{name: getattr(plain, name) for name in plain.__dataclass_fields__})
    level = replace(LEVEL, prompts=12)
    watched = f"component: rounds, {MODE}"
    return audited(
        engine_type,
        ("off", MODE),
        components=lambda one: f"component: {one.name}" == watched,
        level=level,
        judge=judge,
        target=Noisy(table),  # type: ignore[arg-type]
    )


def test_window_dependent_noise_is_explained() -> None:
    report = noisy_report(Measured)
    bad = [one for one in report.findings if one.verdict in (Verdict.VIOLATES, Verdict.ERROR, Verdict.INCONCLUSIVE)]
    assert not bad
    assert "differ by a near-tie within the numerical margin" in finding(report, "GREEDY-1", MODE).summary
    assert "part at an explained near-tie" in finding(report, "GREEDY-4", MODE).summary
    turned = finding(report, "GREEDY-3", f"component: rounds, {MODE}").summary
    assert "at a top-2 margin of at most" in turned


def test_a_wrong_token_at_a_wide_margin_fails_under_the_same_noise() -> None:
    report = noisy_report(Measured, engine_with(rounds_type=FirstUnverified))
    for requirement in ("GREEDY-1", "GREEDY-4"):
        assert finding(report, requirement, MODE).verdict is Verdict.VIOLATES
    assert finding(report, "GREEDY-1", "off").verdict is Verdict.CONFORMS


def test_a_margin_above_the_cap_convicts_by_no_single_token() -> None:
    report = noisy_report(TooCoarse, engine_with(rounds_type=FirstUnverified))
    refused = finding(report, "GREEDY-1", MODE)
    assert refused.verdict is Verdict.NOT_RUN
    assert "above the cap" in refused.summary
    assert finding(report, "GREEDY-2", MODE).n == 12
    assert finding(report, "GREEDY-4", MODE).verdict is Verdict.NOT_RUN
    assert not [one for one in report.findings if one.requirement in ("GREEDY-1", "GREEDY-3", "GREEDY-4") and one.violations]
