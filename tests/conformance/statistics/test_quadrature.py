"""Laws found from injected uniforms: exact where exactness is known, and faults at their exact total variation."""

from __future__ import annotations

import numpy as np
import pytest

from conformance.statistics.evidence import WrongUse
from conformance.statistics.fault_laws import same_coin
from conformance.statistics.quadrature import (
    assert_law_by_quadrature,
    calls_needed_by_quadrature,
    law_over_uniforms,
    smallest_detectable_by_quadrature,
)
from conformance.studies.instances import instance
from specref.chance import ReplayedChance
from specref.draft import Draft
from specref.rules.chain import one_hot_ratio, ratio


def verifier(p, q, replacement=None, accept=None, dtype=float, same_number=False):
    """The ratio rule for one draft token by inverse CDF; parts may be replaced."""
    left = np.maximum(p - q, 0) if replacement is None else replacement
    total = np.cumsum(left, dtype=dtype)
    rho = np.minimum(1, p / q).astype(dtype) if accept is None else accept

    def emits(window, u):
        u = u.astype(dtype)
        number = u[:, 0] if same_number else u[:, 1]
        drawn = np.minimum(np.searchsorted(total, number * total[-1], side="right"), len(p) - 1)
        return np.where(u[:, 0] < rho[window], window, drawn)

    return emits


@pytest.mark.parametrize("V", [16, 256])
@pytest.mark.parametrize("hostile", [False, True])
def test_the_law_of_a_correct_verifier_is_found(V, hostile):
    given = instance(V, hostile=hostile)
    found = assert_law_by_quadrature(verifier(given.p, given.q), given.q, given.p, uniforms=2, tolerance=1e-7)
    assert np.abs(found.law - given.p).sum() / 2 < 1e-7
    assert found.calls <= calls_needed_by_quadrature(V, [2, V])


def test_float32_arithmetic_is_lawful():
    given = instance(256)
    assert_law_by_quadrature(verifier(given.p, given.q, dtype=np.float32), given.q, given.p, uniforms=2, tolerance=1e-5)


def test_other_orders_and_comparisons_are_lawful():
    """Residual drawn in falling order, from above; u <= ratio instead of u < ratio."""
    given = instance(64)
    p, q = given.p, given.q
    left = np.maximum(p - q, 0)
    order = np.argsort(-left)
    total = np.cumsum(left[order])

    def emits(window, u):
        drawn = order[np.minimum(np.searchsorted(total, (1 - u[:, 1]) * total[-1]), 63)]
        return np.where(u[:, 0] * q[window] <= p[window], window, drawn)

    assert_law_by_quadrature(emits, q, p, uniforms=2, tolerance=1e-6)


def test_faults_show_at_their_exact_distance():
    given = instance(256)
    p, q = given.p, given.q
    kept = np.minimum(p, q)
    upside_down = np.minimum(1, q / p)
    left = np.maximum(p - q, 0)
    laws = {
        "resample from p": (verifier(p, q, replacement=p), kept + (1 - kept.sum()) * p),
        "same coin": (verifier(p, q, same_number=True), same_coin(p[None], q[None])[0]),
        "upside down": (
            verifier(p, q, accept=upside_down),
            q * upside_down + (1 - (q * upside_down).sum()) * left / left.sum(),
        ),
    }
    for name, (emits, law) in laws.items():
        found = law_over_uniforms(emits, q, 256, uniforms=2)
        assert np.abs(found.law - law).sum() / 2 < 1e-6, name
        with pytest.raises(AssertionError, match="total variation"):
            assert_law_by_quadrature(emits, q, p, uniforms=2)


def test_a_fault_of_the_smallest_detectable_size_is_seen():
    given = instance(16)
    size = smallest_detectable_by_quadrature([2, 16])
    target = given.p.copy()
    target[:2] += np.array([1.5, -1.5]) * size * np.sign(target[1] - target[0])
    with pytest.raises(AssertionError, match="total variation"):
        assert_law_by_quadrature(verifier(given.p, given.q), given.q, target, uniforms=2)


@pytest.mark.parametrize("rule", [ratio, one_hot_ratio])
def test_the_plain_reference_is_found_right(rule):
    """The reference's own rules, asked one question at a time, at V = 4 with a zero in both laws."""
    p, q = np.array([0.1, 0.6, 0.3, 0.0]), np.array([0.5, 0.2, 0.0, 0.3])

    def emits(windows, u):
        tokens = []
        for x, (accept, emit) in zip(windows, u):
            draft = Draft.claimed([int(x)], [q])
            verdict = rule([p, p], draft, ReplayedChance({("accept", 0): accept, ("emit",): emit}))
            tokens.append(int(x) if verdict.accepted else verdict.next_token)
        return np.array(tokens)

    assert_law_by_quadrature(emits, q, p, uniforms=2, tolerance=1e-7)


def test_wrong_use_is_refused():
    with pytest.raises(WrongUse, match="must be a law"):
        law_over_uniforms(lambda window, u: window, [0.5, 0.4], 2, 1)
    with pytest.raises(WrongUse, match="one token"):
        law_over_uniforms(lambda window, u: window + 9, [1.0], 2, 1)
