"""Faults at the edges of arithmetic: zeros, the ends of chance, NaN, ids that are none, low precision."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np

from conformance.checks.accept import acceptance_finding
from conformance.checks.component_exact import exact_finding
from conformance.checks.instances import draw
from conformance.components import Floats, Ints, VerifiedBatch
from conformance.controls.control import SHARE, Audit, Control, Look, look_sizes
from conformance.controls.faults.sampler import with_odds
from conformance.controls.stages.verifiers import ROWS_OF_AN_AUDIT, ChainUnderTest, audit_verifier, chain
from specref.chance import Number, Slot, UniformChance
from specref.laws import Law, positive_part
from specref.rules import rewired
from specref.rules.chain import ratio

KIND = "numerics"


class LessOrEqual(UniformChance):
    """u q <= p, which at u = 0 lets a token through that the target never emits."""

    def _accepts(self, numerator: float, denominator: float, number: Number) -> bool:
        return bool(self.uniform(number) * denominator <= numerator)


class FirstAtZero(UniformChance):
    """The first token whose cumulative weight reaches u: at u = 0 the first of all, even one of weight zero."""

    def _picks(self, cumulative: Law, number: Number) -> int:
        return min(bisect_left(cumulative, self.uniform(number) * cumulative[-1]), len(cumulative) - 1)


class RejectsIfAtLeast(UniformChance):
    """A draft is rejected if u q >= p; with NaN it never is."""

    def accepts(self, numerator: float, denominator: float = 1, *, slot: Slot) -> bool:
        """See `Chance.accepts`."""
        return not self.uniform(self.number(slot)) * denominator >= numerator


class FourBits(UniformChance):
    """Uniforms of four bits."""

    def _accepts(self, numerator: float, denominator: float, number: Number) -> bool:
        return bool(np.floor(16 * self.uniform(number)) / 16 * denominator < numerator)


class LetsOneInAThousandThrough(UniformChance):
    """A rejected draft passes one time in a thousand: no sample of a usual size shows it."""

    def _accepts(self, numerator: float, denominator: float, number: Number) -> bool:
        return super()._accepts(numerator, denominator, number) or self.uniform(number) > 0.999


def divided_by_its_sum(p: Law, q: Law) -> Law:
    """The residual divided by its sum, which is zero where p = q."""
    left = positive_part(p - q)
    with np.errstate(invalid="ignore"):
        return np.asarray(left / left.sum())


def uniform_fallback(p: Law, q: Law) -> Law:
    """Where the residual is empty, any token will do."""
    left = positive_part(p - q)
    return left if left.any() else np.ones_like(p)


def repaired(p: Floats, q: Floats | None, drafts: Ints) -> tuple[Floats, Floats | None, Ints]:
    """Rows that are no laws are made some: NaN and negative numbers become 0, a row of zeros becomes uniform."""
    kept = np.maximum(np.nan_to_num(p, nan=0.0, posinf=1.0), 0)
    kept = np.where(kept.sum(axis=-1, keepdims=True) > 0, kept, 1.0)
    return kept / kept.sum(axis=-1, keepdims=True), q, drafts


def wrapped_ids(p: Floats, q: Floats | None, drafts: Ints) -> tuple[Floats, Floats | None, Ints]:
    """An id outside the vocabulary is read as another one: -1 gathers the last token's probability."""
    return p, q, drafts % p.shape[-1]


def gathered_first(p: Floats, q: Floats | None, drafts: Ints) -> tuple[Floats, Floats | None, Ints]:
    """Probabilities are gathered before anybody looks at the ids."""
    np.take_along_axis(p[:, :-1], drafts[:, :, None], axis=2)
    return p, q, drafts


class Phantom(ChainUnderTest):
    """One bad row spoils its batch: nothing is accepted and token 0 emitted, without a word."""

    def verify(self, p: Floats, q: Floats | None, drafts: Ints, *, uniforms: Floats | None, seed: int) -> VerifiedBatch:
        """See `ChainVerifier.verify`."""
        try:
            return super().verify(p, q, drafts, uniforms=uniforms, seed=seed)
        except ValueError:
            nothing = np.zeros(len(p), dtype=np.int64)
            return VerifiedBatch(nothing, nothing)


def phantom(seed: int, n: int) -> Iterator[Look]:
    """The audit of `Phantom`."""
    return audit_verifier(Phantom("ratio"), seed, n)


def exactly(deciding: type[Any]) -> Audit:
    """The audit of a fault that only the law found over all uniforms shows (LAW-6)."""

    def looks(seed: int, n: int) -> Iterator[Look]:
        found = exact_finding(ChainUnderTest("ratio", deciding=deciding), vocabulary=4, seed=seed)
        yield found.n, [found]

    return Audit("chain verifier, over all uniforms", "instances", 8, looks)


Step = Callable[[Floats, Floats, Floats], np.ndarray]


def steps(accepts: Step, V: int = 4096) -> Audit:
    """The audit of a vectorised acceptance step `accepts(p, q, u)` over a long tail: half of V tokens, each below 1e-4."""

    def looks(seed: int, n: int, without: Collection[str] = ()) -> Iterator[Look]:
        rng = np.random.default_rng([seed, 8])
        tail = np.arange(V) >= V // 2
        q = np.where(tail, 4e-5 * rng.uniform(0.5, 1.5, V), rng.gamma(0.5, size=V))
        q[~tail] *= (1 - q[tail].sum()) / q[~tail].sum()
        p = np.where(tail, 0.3 * q, 1.0)
        p[~tail] = q[~tail] * (1 - p[tail].sum()) / q[~tail].sum()
        x = np.concatenate([draw(np.tile(q, (1, 1)), rng.random(1)) for _ in range(n)])
        flags = np.asarray(accepts(p[x], q[x], rng.random(n)), dtype=bool)
        for size in look_sizes(n, 512):
            part = slice(0, size)
            rows = (np.stack([p[x[part]], 1 - p[x[part]]], axis=1), np.stack([q[x[part]], 1 - q[x[part]]], axis=1))
            given = (*rows, np.zeros(size, np.int64), flags[part])
            yield size, [acceptance_finding("m", "ratio", *given, n, alpha=SHARE, without=without)]

    return Audit("acceptance step", "drafts", 4_096, looks, looks)


def in_half_precision(p: Floats, q: Floats, u: Floats) -> np.ndarray:
    """p / q in float16 where subnormal numbers are flushed to zero: a small q accepts everything."""
    smallest = 6.1e-5
    p16, q16 = (np.where(law < smallest, 0.0, law.astype(np.float16).astype(float)) for law in (p, q))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(~(u >= p16 / q16))


def fault(id: str, audit: Audit, requirement: str, *reports: str, sees: bool = False) -> Control:
    """A fault of arithmetic in the acceptance or the residual of the ratio rule."""
    return Control(id, KIND, "ratio", (requirement,), audit, reports, acceptance_sees=sees)


FAULTS = (
    fault("<= lets a token of p = 0 through at u = 0", chain(deciding=LessOrEqual), "EDGE-1", "sgl-project/sglang 35771"),
    fault(
        "inverse CDF emits a first token of p = 0 at u = 0", chain(deciding=FirstAtZero), "EDGE-1", "sgl-project/sglang 35771"
    ),
    fault(
        "the residual divided by a zero sum",
        chain(function=rewired(ratio, residual=divided_by_its_sum)),
        "EDGE-1",
        "jaymody/speculative-sampling 5",
    ),
    fault(
        "uniform fallback from an empty residual",
        chain(function=rewired(ratio, residual=uniform_fallback)),
        "EDGE-1",
        "duoan/TorchCode 16",
    ),
    fault(
        "epsilon in the ratio",
        chain(function=with_odds(ratio, lambda p, q: (p + 1e-10, q + 1e-10))),
        "EDGE-1",
    ),
    fault("NaN row accepted", chain(deciding=RejectsIfAtLeast, checks=False), "EDGE-2", "NVIDIA/TensorRT-LLM 5146"),
    fault("rows that are no laws repaired in silence", chain(given=repaired), "EDGE-2", "junhyukso/GSD 1"),
    fault(
        "a bad row changes the healthy ones beside it",
        Audit("chain verifier", "rows", ROWS_OF_AN_AUDIT, phantom),
        "EDGE-2",
        "local-inference-lab/vllm 621",
    ),
    fault("placeholder id -1 gathered and accepted", chain(given=wrapped_ids), "EDGE-3", "vllm-project/vllm 46533"),
    fault("an id outside the vocabulary crashes", chain(given=gathered_first), "EDGE-3", "vllm-project/vllm 46899"),
    fault("random numbers of four bits", chain(deciding=FourBits), "LAW-4", sees=True),
    fault("one rejected draft in a thousand let through", exactly(LetsOneInAThousandThrough), "LAW-6", sees=True),
    fault("half-precision ratio", steps(in_half_precision), "ACCEPT-1", "lablup/mlxcel 992", sees=True),
)
