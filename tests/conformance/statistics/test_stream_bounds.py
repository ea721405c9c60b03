"""Upper bounds on means over a stream: above the truth, not far above it, and together."""

from __future__ import annotations

import numpy as np
import pytest

from conformance.statistics.evidence import WrongUse
from conformance.statistics.stream_bounds import RESOLUTION, StreamBounds

RARE = 1e-6
"""The error that is asked for: fresh seeds then fail once in a million runs."""


def stream(n, vocabulary, leak, rng=None):
    """Tokens with their laws p, q and the law r that they were drawn from; every token has a context of its own."""
    rng = rng or np.random.default_rng()
    p, q = rng.dirichlet(np.full(vocabulary, 0.3), n), rng.dirichlet(np.full(vocabulary, 0.3), n)
    r = (1 - leak) * p + leak * q
    return (r.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1), p, q, r


def truth(p, q, r):
    """The mean errors: on the worst of the sets {q/p >= t}, between ranks of p, and over the whole vocabulary by rank."""
    thresholds = 2.0 ** np.arange(-4, 5)
    sets = max(abs(((q >= t * p) * (r - p)).sum(axis=1).mean()) for t in thresholds)
    order = np.argsort(-p, axis=1, kind="stable")
    by_rank = np.take_along_axis(r - p, order, axis=1).mean(axis=0)
    coarse = np.append(by_rank[:RESOLUTION], by_rank[RESOLUTION:].sum())
    return sets, abs(coarse).sum() / 2, abs(by_rank).sum() / 2


@pytest.mark.parametrize("vocabulary", [4, 50, 120])
@pytest.mark.parametrize("leak", [0.0, 0.3, 1.0])
def test_the_bounds_lie_above_the_truth_and_not_far_above(vocabulary, leak):
    tokens, p, q, r = stream(4_000, vocabulary, leak)
    bounds = StreamBounds.plan(p[:100], q[:100], 4_000, RARE)
    for some in np.split(np.arange(4_000), 20):
        bounds.add(tokens[some], p[some], q[some])
    found = bounds.upper()
    sets, coarse, whole = truth(p, q, r)
    assert found.n == 4_000
    assert leak <= found.leak <= leak + 0.25
    assert sets <= found.ratio_sets <= min(1, sets + 0.12)
    assert coarse <= found.total_variation <= min(1, coarse + 0.2)
    assert whole <= found.unclaimed
    if vocabulary <= RESOLUTION:
        assert found.unclaimed == pytest.approx(found.total_variation), "no token is left out"


def test_ties_and_tokens_that_the_target_cannot_give_are_counted_once():
    p, q = np.tile([0.5, 0.5, 0.0, 0.0], (4, 1)), np.tile([0.0, 0.5, 0.5, 0.0], (4, 1))
    bounds = StreamBounds.plan(p, q, 4, 0.01)
    bounds.add([0, 1, 2, 3], p, q)
    assert bounds.ranks.tolist() == [-1, -1, 1, 1, 0]
    assert bounds.sets.tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1], (
        "a token that q alone gives lies in every set, one of neither in none"
    )


def test_more_tokens_bound_more_tightly_and_none_bound_nothing():
    tokens, p, q, _ = stream(8_000, 20, 0.0)
    nothing, some, all_of_them = (StreamBounds.plan(p[:100], q[:100], max(n, 1), 0.01) for n in (0, 1_000, 8_000))
    some.add(tokens[:1_000], p[:1_000], q[:1_000])
    all_of_them.add(tokens, p, q)
    assert nothing.upper().total_variation == 1
    assert all_of_them.upper().total_variation < some.upper().total_variation
    assert all_of_them.upper().ratio_sets < some.upper().ratio_sets


def test_a_plan_for_nothing_is_refused():
    with pytest.raises(WrongUse, match="give 1 token or more"):
        StreamBounds.plan([[1.0]], [[1.0]], 0, 0.01)
