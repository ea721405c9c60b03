from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from conformance.checks.component_exact import exact_finding
from conformance.components import VerifiedBatch
from conformance.engines.own_components import BATCHED_CHAIN_RULES, BatchedChain
from conformance.findings import Verdict


@pytest.mark.parametrize("rule", BATCHED_CHAIN_RULES)
def test_our_batched_rules_have_the_targets_exact_law(rule: str) -> None:
    found = exact_finding(BatchedChain(rule))
    assert found.verdict is Verdict.CONFORMS, found.summary


class SlightlyLeaky(BatchedChain):
    """Lets a draft in a thousand through: no sample of a test's size shows it."""

    def verify(self, p: Any, q: Any, drafts: Any, *, uniforms: Any, seed: int) -> VerifiedBatch:
        out = super().verify(p, q, drafts, uniforms=uniforms, seed=seed)
        let_through = uniforms[:, 0] > 0.999
        return VerifiedBatch(np.where(let_through, 1, out.accepted), out.next_token)


class SameCoin(BatchedChain):
    def verify(self, p: Any, q: Any, drafts: Any, *, uniforms: Any, seed: int) -> VerifiedBatch:
        return super().verify(p, q, drafts, uniforms=uniforms[:, [0, 0]], seed=seed)


FAULTS = {"one rejected draft in a thousand let through": SlightlyLeaky, "shared coin, exactly": SameCoin}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_killed(name: str) -> None:
    found = exact_finding(FAULTS[name]("ratio"))
    assert found.verdict is Verdict.VIOLATES
    assert "total variation" in found.violations[0]


def test_a_verifier_without_uniforms_does_not_expose_its_law() -> None:
    verifier = BatchedChain("ratio")
    verifier.takes_uniforms = False
    assert exact_finding(verifier).verdict is Verdict.NOT_EXPOSED


def test_float32_arithmetic_is_within_the_tolerance() -> None:
    class Float32(BatchedChain):
        def verify(self, p: Any, q: Any, drafts: Any, *, uniforms: Any, seed: int) -> VerifiedBatch:
            rows = BATCHED_CHAIN_RULES[self.rule]
            from specref.batched import Drafts

            small = [torch.from_numpy(np.asarray(a, np.float32)) for a in (p, q, uniforms)]
            out = rows(small[0], Drafts(torch.from_numpy(drafts), small[1]), small[2])
            return VerifiedBatch(out.accepted.numpy(), out.next_token.numpy())

    assert exact_finding(Float32("ratio")).verdict is Verdict.CONFORMS
