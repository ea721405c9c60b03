"""The bounds on mean errors that a case gathers as it goes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conformance.sampled_case import SampledCase
from conformance.statistics import TokenBlock

P, Q = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.05, 0.05, 0.1, 0.8])


def case(tokens: int) -> SampledCase:
    mode = SimpleNamespace(speculates=True)
    subject = SimpleNamespace(target=SimpleNamespace(vocabulary=4), under=lambda mode: subject)
    one: Any = SampledCase(SimpleNamespace(mode=mode, tokens=tokens), subject, None, None, None)  # type: ignore[arg-type]
    return one


def block(leak: float, n: int, rng: np.random.Generator) -> TokenBlock:
    tokens = rng.choice(4, size=n, p=(1 - leak) * P + leak * Q)
    return TokenBlock(tokens, np.tile(P, (n, 1)), np.tile(Q, (n, 1)), request=np.arange(n))


@pytest.mark.parametrize("leak", [0.0, 0.2, 1.0])
def test_it_lies_above_the_true_leak_and_not_far_above(leak: float) -> None:
    rng, one = np.random.default_rng(), case(10_000)
    for _ in range(20):
        one._bound(block(leak, 500, rng))
    assert one.bounds is not None
    assert one.bounds.n == 9_500, "the first chunk plans the stake, and does not count"
    bound = one.bounds.upper().leak
    assert bound > leak - 0.03  # it is wrong in 1% of the runs at most, and then by little
    assert bound < leak + 0.12
