from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from conformance.checks.edge import ask_edges, edge_findings
from conformance.components import VerifiedBatch
from conformance.engines.own_components import BATCHED_CHAIN_RULES, BatchedChain, ReferenceChain
from conformance.findings import Finding, Verdict
from specref.batched.status import BadRows, require_good


def audit(verifier: Any) -> dict[str, Finding]:
    return {one.requirement: one for one in edge_findings(verifier.name, ask_edges(verifier))}


@pytest.mark.parametrize("rule", BATCHED_CHAIN_RULES)
def test_our_batched_rules_refuse_rows_and_conform(rule: str) -> None:
    found = audit(BatchedChain(rule))
    assert {one.verdict for one in found.values()} == {Verdict.CONFORMS}, [one.summary for one in found.values()]


class Raises(BatchedChain):
    """Says which rows are no good by an error for the whole batch."""

    def verify(self, p: Any, q: Any, drafts: Any, *, uniforms: Any, seed: int) -> VerifiedBatch:
        out = super().verify(p, q, drafts, uniforms=uniforms, seed=seed)
        assert out.refused is not None
        require_good(torch.from_numpy(out.refused.astype(np.int64)))
        return VerifiedBatch(out.accepted, out.next_token)


def test_a_clear_error_is_as_good_as_a_refused_row() -> None:
    assert issubclass(BadRows, ValueError)
    assert {one.verdict for one in audit(Raises("ratio")).values()} == {Verdict.CONFORMS}


def test_our_plain_ratio_rule_conforms() -> None:
    found = audit(ReferenceChain("ratio"))
    assert {one.verdict for one in found.values()} == {Verdict.CONFORMS}, [one.summary for one in found.values()]


def test_without_uniforms_every_case_is_tried_with_many_seeds() -> None:
    verifier = BatchedChain("ratio")
    verifier.takes_uniforms = False
    answers = ask_edges(verifier, repeats=4)
    assert len(answers) == 4 * len(ask_edges(BatchedChain("ratio")))
    assert {one.verdict for one in edge_findings("x", answers)} == {Verdict.CONFORMS}


class Naive:
    """Accepts and picks by the textbook, and asks nothing of its inputs."""

    trees, takes_uniforms, rule, name = False, True, "ratio", "naive"

    def accepts(self, u: float, p: float, q: float) -> bool:
        return u * q < p

    def residual(self, p: np.ndarray, q: np.ndarray) -> np.ndarray:
        left = np.maximum(p - q, 0)
        return left if left.sum() > 0 else p

    def pick(self, law: np.ndarray, u: float) -> int:
        return int(min(np.searchsorted(law.cumsum() / law.sum(), u, side="right"), len(law) - 1))

    def check(self, p: np.ndarray, q: np.ndarray, draft: int) -> bool:
        laws = np.concatenate([p, q])
        return bool(np.isfinite(laws).all() and (laws >= 0).all() and (laws.sum(axis=1) > 0).all() and 0 <= draft < p.shape[1])

    def verify(self, p: Any, q: Any, drafts: Any, *, uniforms: Any, seed: int) -> VerifiedBatch:
        accepted, tokens, refused = [], [], []
        for row, draft in enumerate(drafts[:, 0].tolist()):
            good = self.check(p[row], q[row], draft)
            with np.errstate(all="ignore"):
                index = draft if -p.shape[2] <= draft < p.shape[2] else 0
                kept = good and self.accepts(uniforms[row, 0], p[row, 0, index], q[row, 0, index])
                law = p[row, 1] if kept else self.residual(p[row, 0], q[row, 0])
                tokens.append(self.pick(law, uniforms[row, 1]) if good else 0)
            accepted.append(int(kept))
            refused.append(not good)
        return VerifiedBatch(np.array(accepted), np.array(tokens), refused=np.array(refused))


class LessOrEqual(Naive):
    def accepts(self, u: float, p: float, q: float) -> bool:
        return u * q <= p


class UniformFallback(Naive):
    def residual(self, p: np.ndarray, q: np.ndarray) -> np.ndarray:
        left = np.maximum(p - q, 0)
        return left if left.sum() > 0 else np.ones_like(p)


class DividesByZero(Naive):
    """The residual divided by its sum, which may be zero."""

    def residual(self, p: np.ndarray, q: np.ndarray) -> np.ndarray:
        left = np.maximum(p - q, 0)
        return np.nan_to_num(left / left.sum())


class FirstTokenAtZero(Naive):
    def pick(self, law: np.ndarray, u: float) -> int:
        return int(np.searchsorted(law.cumsum() / law.sum(), u, side="left"))


class NaNIsNoProblem(Naive):
    def check(self, p: np.ndarray, q: np.ndarray, draft: int) -> bool:
        return 0 <= draft < p.shape[1]


class PlaceholderGathered(Naive):
    """An id of -1 reads the last token's probability."""

    def check(self, p: np.ndarray, q: np.ndarray, draft: int) -> bool:
        return super().check(p, q, draft if draft >= 0 else 0)


class IndexErrors(Naive):
    def check(self, p: np.ndarray, q: np.ndarray, draft: int) -> bool:
        return super().check(p, q, 0) and p[0, draft] >= 0


class PhantomRow(Naive):
    """One bad row and the whole batch is refused without a word: nothing accepted, token 0."""

    def verify(self, p: Any, q: Any, drafts: Any, *, uniforms: Any, seed: int) -> VerifiedBatch:
        out = super().verify(p, q, drafts, uniforms=uniforms, seed=seed)
        assert out.refused is not None
        return VerifiedBatch(out.accepted * 0, out.next_token * 0, refused=out.refused) if out.refused.any() else out


FAULTS: dict[str, tuple[Callable[[], Naive], str]] = {
    "<= lets a token of p = 0 through at u = 0": (LessOrEqual, "EDGE-1"),
    "uniform fallback from an empty residual": (UniformFallback, "EDGE-1"),
    "the residual divided by a zero sum": (DividesByZero, "EDGE-1"),
    "inverse CDF emits a first token of p = 0 at u = 0": (FirstTokenAtZero, "EDGE-1"),
    "NaN row accepted": (NaNIsNoProblem, "EDGE-2"),
    "a bad row changes the healthy ones beside it": (PhantomRow, "EDGE-2"),
    "placeholder id -1 gathered and accepted": (PlaceholderGathered, "EDGE-3"),
    "an id outside the vocabulary crashes": (IndexErrors, "EDGE-3"),
}


def test_the_naive_rule_conforms_before_it_is_broken() -> None:
    assert {one.verdict for one in audit(Naive()).values()} == {Verdict.CONFORMS}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_killed(name: str) -> None:
    make, requirement = FAULTS[name]
    found = audit(make())[requirement]
    assert found.verdict is Verdict.VIOLATES
    assert ", u (" in found.violations[0]
    assert "expected" in found.violations[0]


def test_a_row_that_a_rejected_draft_leaves_unread_accuses_nobody() -> None:
    """Without numbers of the judge's own, a one-hot rule rejects the draft in half of the runs and never sees that row."""

    class OwnNumbers(ReferenceChain):
        takes_uniforms = False

    answers = [one for one in ask_edges(OwnNumbers("one_hot")) if one.case.name == "the bonus row is NaN"]
    kept = [one for one in answers if not isinstance(one.answer, Exception) and one.answer.accepted[1] == 0]
    refused = [one for one in answers if isinstance(one.answer, Exception)]
    assert kept
    assert refused
    assert edge_findings("one-hot", answers)[1].verdict is Verdict.CONFORMS
