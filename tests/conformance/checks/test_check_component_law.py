from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from conformance.checks.component_law import PLANNED, ROWS, component_findings, mixup_finding, rounds_of
from conformance.checks.instances import draw
from conformance.components import VerifiedBatch
from conformance.engines.own_components import (
    BATCHED_CHAIN_RULES,
    BATCHED_TREE_RULES,
    BatchedChain,
    BatchedTree,
    ReferenceChain,
    ReferenceTree,
)
from conformance.findings import Finding, Verdict
from specref import batched
from specref.batched import laws
from specref.rules import rewired

N = 6 * ROWS
SEED = 2026


def audit(verifier: Any, rows: int = N, seed: int = SEED) -> dict[str, Finding]:
    found = component_findings(verifier.name, verifier.rule, rounds_of(verifier, rows, seed), planned=rows, seed=seed)
    return {one.requirement: one for one in (*found, mixup_finding(verifier, batches=4, seed=seed))}


class RatioInNumPy:
    """The ratio rule in a few lines, with one of its parts replaced."""

    trees, takes_uniforms, rule, name = False, True, "ratio", "changed"

    def __init__(self, **parts: Callable[..., Any]) -> None:
        vars(self).update(parts)

    def numbers(self, u: np.ndarray) -> np.ndarray:
        return u

    def accepts(self, p: np.ndarray, q: np.ndarray, u: np.ndarray) -> np.ndarray:
        return u * q < p

    def residual(self, p: np.ndarray, q: np.ndarray) -> np.ndarray:
        left = np.maximum(p - q, 0)
        return np.where(left.any(axis=1, keepdims=True), left, p)

    def row_after(self, accepted: np.ndarray, k: int) -> np.ndarray:
        return accepted

    def verify(self, p: Any, q: Any, drafts: Any, *, uniforms: Any, seed: int) -> VerifiedBatch:
        u, k, rows = self.numbers(uniforms), drafts.shape[1], np.arange(len(p))
        at = rows[:, None], np.arange(k), drafts
        flags = self.accepts(p[:, :-1][at], q[at], u[:, :k])
        accepted = np.cumprod(flags, axis=1).sum(axis=1)
        law = p[rows, self.row_after(accepted, k)]
        rejected = accepted < k
        left = self.residual(law[rejected], q[rows[rejected], accepted[rejected]])
        law[rejected] = np.where(left.any(axis=1, keepdims=True), left, law[rejected])
        return VerifiedBatch(accepted, draw(law, u[:, -1]))


class Changed:
    """A batched verifier with its rule, the numbers or the laws changed on the way in, or its answer on the way out."""

    takes_uniforms = True

    def __init__(self, rule: str, trees: bool = False, **helpers: Callable[..., Any]) -> None:
        self.trees, self.rule, self.name = trees, rule, "changed"
        function = (BATCHED_TREE_RULES if trees else BATCHED_CHAIN_RULES)[rule]
        self.function = rewired(function, **helpers) if helpers else function

    def verify(self, p: Any, q: Any, tokens: Any, parents: Any = None, *, uniforms: Any, seed: int) -> VerifiedBatch:
        claimed = None if q is None else torch.from_numpy(np.ascontiguousarray(q))
        drafted = torch.from_numpy(tokens)
        rows: Any = (
            batched.Trees(drafted, torch.from_numpy(parents), claimed) if self.trees else batched.Drafts(drafted, claimed)
        )
        out = self.function(torch.from_numpy(p), rows, torch.from_numpy(uniforms))
        return VerifiedBatch(out.accepted.numpy(), out.next_token.numpy(), out.path.numpy() if self.trees else None)


class RowsOfQSwapped(Changed):
    def verify(self, p: Any, q: Any, tokens: Any, parents: Any = None, *, uniforms: Any, seed: int) -> VerifiedBatch:
        return super().verify(p, np.roll(q, 1, axis=0), tokens, uniforms=uniforms, seed=seed)


class BonusFromTheRowBefore(Changed):
    def verify(self, p: Any, q: Any, tokens: Any, parents: Any = None, *, uniforms: Any, seed: int) -> VerifiedBatch:
        return super().verify(np.concatenate([p[:, :-1], p[:, -2:-1]], axis=1), q, tokens, uniforms=uniforms, seed=seed)


class OneLawForAllSiblings(Changed):
    """q of the eldest sibling, though the others were drawn without replacement."""

    def verify(self, p: Any, q: Any, tokens: Any, parents: Any = None, *, uniforms: Any, seed: int) -> VerifiedBatch:
        q = q.copy()
        shape = parents[0].tolist()
        for node, parent in enumerate(shape[1:], start=1):
            q[:, node] = q[:, shape.index(parent)]
        return super().verify(p, q, tokens, parents, uniforms=uniforms, seed=seed)


class NewDrawAfterMismatch(Changed):
    """Token matching, but the emitted token is another draw than the one compared."""

    def verify(self, p: Any, q: Any, tokens: Any, parents: Any = None, *, uniforms: Any, seed: int) -> VerifiedBatch:
        out = super().verify(p, q, tokens, uniforms=uniforms, seed=seed)
        fresh = np.random.default_rng(seed).random(len(p))
        law = torch.from_numpy(p[np.arange(len(p)), out.accepted])
        again = laws.picks(law, torch.from_numpy(fresh)).numpy()
        return VerifiedBatch(out.accepted, np.where(out.accepted < tokens.shape[1], again, out.next_token))


def softmax_residual(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return np.exp(np.maximum(p - q, 0))


def tokenwise_residual(kept_p: torch.Tensor, of_q: torch.Tensor) -> torch.Tensor:
    """Of block verification: the residual of p and q themselves, without the joint ratio."""
    return laws.residual(laws.norm(kept_p), torch.nan_to_num(laws.norm(of_q)))


# Faults by name: what makes the verifier, and the requirement that must name it.
FAULTS: dict[str, tuple[Callable[[], Any], str]] = {
    "resample from p after a rejection": (lambda: RatioInNumPy(residual=lambda p, q: p), "LAW-3"),
    "softmax of the residual": (lambda: RatioInNumPy(residual=softmax_residual), "LAW-3"),
    "absolute residual": (lambda: RatioInNumPy(residual=lambda p, q: abs(p - q)), "LAW-3"),
    "always accept": (lambda: RatioInNumPy(accepts=lambda p, q, u: np.ones_like(p, dtype=bool)), "LAW-3"),
    "ratio upside down": (lambda: RatioInNumPy(accepts=lambda p, q, u: u * p < q), "LAW-4"),
    "shared coin": (lambda: RatioInNumPy(numbers=lambda u: np.concatenate([u[:, :-1], u[:, :1]], axis=1)), "LAW-4"),
    "one random number for a whole chain": (
        lambda: RatioInNumPy(
            numbers=lambda u: np.concatenate([np.repeat(u[:, :1], u.shape[1] - 1, axis=1), u[:, -1:]], axis=1)
        ),
        "LAW-3",
    ),
    "q rows in the old order after a swap": (lambda: RowsOfQSwapped("ratio"), "LAW-4"),
    "bonus token from the wrong row": (lambda: BonusFromTheRowBefore("ratio"), "LAW-5"),
    "row i+1 used at a rejection": (
        lambda: RatioInNumPy(row_after=lambda accepted, k: np.minimum(accepted + 1, k)),
        "LAW-5",
    ),
    "token matching with a new draw on mismatch": (lambda: NewDrawAfterMismatch("token_matching"), "LAW-4"),
    "block criterion with the token-wise residual": (lambda: Changed("block", residual=tokenwise_residual), "LAW-4"),
    "rejected sibling not zeroed": (
        lambda: Changed("one_hot", trees=True, _left_if_certain=lambda r, x, q: r),
        "LAW-4",
    ),
    "unadjusted q for siblings without replacement": (lambda: OneLawForAllSiblings("without_replacement", trees=True), "LAW-3"),
    "thresholds of target-only sampling below 1": (lambda: Thresholds("target_only", trees=True), "LAW-3"),
}


SUBTLE = {
    "one random number for a whole chain": 8 * N,
    "block criterion with the token-wise residual": 4 * N,
    "thresholds of target-only sampling below 1": 8 * N,
}
"""Faults that need more rows than the others."""


class Thresholds(Changed):
    def __init__(self, rule: str, trees: bool) -> None:
        super().__init__(rule, trees)
        whole = self.function
        self.function = lambda p, trees, u: whole(p, trees, u, tau_single=0.3)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_killed(name: str) -> None:
    make, requirement = FAULTS[name]
    findings = audit(make(), SUBTLE.get(name, N))
    found = findings[requirement]
    assert found.verdict is Verdict.VIOLATES, {key: (one.verdict, one.summary) for key, one in findings.items()}
    assert found.violations
    assert all(": expected " in place and ", found " in place for place in found.violations)
    assert found.n


OWN = [
    *(BatchedChain(rule) for rule in BATCHED_CHAIN_RULES),
    *(BatchedTree(rule) for rule in BATCHED_TREE_RULES),
]


@pytest.mark.parametrize("verifier", OWN, ids=lambda verifier: verifier.name)
def test_our_batched_rules_conform(verifier: Any) -> None:
    findings = audit(verifier)
    silent = {"LAW-4"} if verifier.rule == "traversal" else set()
    for requirement, one in findings.items():
        wanted = Verdict.NOT_EXPOSED if requirement in silent else Verdict.CONFORMS
        assert one.verdict is wanted, one.summary
        assert one.detects or wanted is Verdict.NOT_EXPOSED


@pytest.mark.long
@pytest.mark.parametrize("verifier", OWN, ids=lambda verifier: verifier.name)
def test_our_batched_rules_conform_over_a_hundred_thousand_rows(verifier: Any) -> None:
    seed = int(np.random.default_rng().integers(2**31))
    assert {one.verdict for one in audit(verifier, PLANNED, seed).values()} <= {Verdict.CONFORMS, Verdict.NOT_EXPOSED}, seed


class InFloat32(BatchedChain):
    """Lawful: the same rule on rounded laws and numbers."""

    def verify(self, p: Any, q: Any, drafts: Any, *, uniforms: Any, seed: int) -> VerifiedBatch:
        small = [torch.from_numpy(np.minimum(a, 1 - 2.0**-24 * (a is uniforms)).astype(np.float32)) for a in (p, q, uniforms)]
        out = BATCHED_CHAIN_RULES[self.rule](small[0], batched.Drafts(torch.from_numpy(drafts), small[1]), small[2])
        return VerifiedBatch(out.accepted.numpy(), out.next_token.numpy(), refused=out.status.numpy() != 0)


@pytest.mark.parametrize("rule", ["ratio", "block"])
def test_float32_arithmetic_is_lawful(rule: str) -> None:
    seed = int(np.random.default_rng().integers(2**31))
    assert {one.verdict for one in audit(InFloat32(rule), 2 * N, seed).values()} == {Verdict.CONFORMS}, seed


@pytest.mark.parametrize("verifier", [ReferenceChain("ratio"), ReferenceTree("one_hot")], ids=lambda verifier: verifier.name)
def test_our_plain_rules_conform(verifier: Any) -> None:
    assert {one.verdict for one in audit(verifier, 600).values()} == {Verdict.CONFORMS}


def test_a_verifier_that_draws_its_own_numbers_and_declares_no_rule_is_judged_by_its_law() -> None:
    verifier = BatchedChain("ratio")
    function = verifier.verify

    class Undeclared:
        trees, takes_uniforms, rule, name = False, False, "undeclared", "undeclared"

        def verify(self, p: Any, q: Any, drafts: Any, *, uniforms: Any, seed: int) -> VerifiedBatch:
            assert uniforms is None
            return function(p, q, drafts, uniforms=None, seed=seed)

    findings = audit(Undeclared(), 2 * ROWS)
    assert findings["LAW-3"].verdict is Verdict.CONFORMS
    assert findings["LAW-4"].verdict is Verdict.NOT_EXPOSED


@pytest.mark.parametrize(
    ("accepted", "token", "path", "problem"),
    [
        (7, 0, None, "accepted 7 of"),
        (0, 99, None, "emitted token 99"),
        (1, 0, [[2]], "no branch"),
        (1, 0, None, "must give paths"),
    ],
)
def test_nonsense_is_an_error(accepted: int, token: int, path: Any, problem: str) -> None:
    trees = problem in ("no branch", "must give paths")
    verifier: Any = BatchedTree("one_hot") if trees else BatchedChain("ratio")

    def verify(p: Any, *rest: Any, **more: Any) -> VerifiedBatch:
        rows = len(p)
        paths = np.full((rows, p.shape[1] - 1), -1)
        paths[:, :1] = p.shape[1]
        return VerifiedBatch(np.full(rows, accepted), np.full(rows, token), None if path is None else paths)

    verifier.verify = verify
    findings = component_findings("x", verifier.rule, list(rounds_of(verifier, 100, 0)), planned=100)
    assert {one.verdict for one in findings} == {Verdict.ERROR}
    assert problem in findings[0].summary


def test_fewer_rows_than_planned_are_inconclusive() -> None:
    verifier = BatchedChain("one_hot")
    findings = component_findings("x", "one_hot", list(rounds_of(verifier, 200, 0)), planned=1000)
    assert {one.verdict for one in findings} == {Verdict.INCONCLUSIVE}
