"""Published instances: pairs of laws and the exact output laws of faults on them.

An instance is made from its vocabulary size, profile and seed alone, so that a table can be made again anywhere.
The draft is *mild* (the target's logits plus noise, acceptance near .7) or *hostile* (the logits reversed).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from conformance.statistics.evidence import Floats
from conformance.statistics.fault_laws import same_coin


@dataclass(frozen=True)
class Instance:
    """One pair of laws ``[V]`` with the target's logits."""

    name: str
    p: Floats
    q: Floats
    logits: Floats

    @property
    def acceptance(self) -> float:
        """``sum min(p, q)``."""
        return float(np.minimum(self.p, self.q).sum())


@dataclass(frozen=True)
class Fault:
    """A fault's output law r ``[V]``, to be told apart from p where the draft is q."""

    name: str
    p: Floats
    q: Floats
    r: Floats

    @property
    def divergence(self) -> float:
        """KL(r || p) in nats; infinite where r puts mass outside p's support."""
        drawn = self.r > 0
        if np.any(self.p[drawn] == 0):
            return float("inf")
        return float(np.sum(self.r[drawn] * np.log(self.r[drawn] / self.p[drawn])))

    def limit(self, alpha: float) -> float:
        """Stein's limit: no test needs fewer tokens than ln(1/alpha) / KL, up to lower orders."""
        kl = self.divergence
        return -np.log(alpha) / kl if kl > 0 else float("inf")


def softmax(logits: Floats) -> Floats:
    """The law of one row of logits."""
    weights = np.exp(logits - logits.max())
    law: Floats = weights / weights.sum()
    return law


SPREAD: dict[str, Callable[[int], float]] = {
    "flat": lambda V: 1.0,
    "llm": lambda V: 0.88 * np.sqrt(2 * np.log(V)),
    "peak": lambda V: 0.88 * np.sqrt(2 * np.log(V)) / 0.6,
}
"""Standard deviation of the logits for each profile."""


def instance(
    V: int, profile: str = "llm", seed: int = 7, hostile: bool = False, noise: float = 1.0, acceptance: float = 0.7
) -> Instance:
    """The draw, out of 40 (6 for V above 4096), whose acceptance is nearest to the one wanted."""
    best: Instance | None = None
    for draw in range(40 if V <= 4096 else 6):
        rng = np.random.default_rng(1000 * seed + draw)
        logits = rng.normal(0, SPREAD[profile](V), V)
        drafted = logits + rng.normal(0, noise, V)
        found = Instance(f"V={V} {profile} mild", softmax(logits), softmax(drafted), logits)
        if best is None or abs(found.acceptance - acceptance) < abs(best.acceptance - acceptance):
            best = found
    assert best is not None
    if hostile:
        return Instance(f"V={V} {profile} hostile", best.p, softmax(-best.logits), best.logits)
    return best


def faults(given: Instance) -> list[Fault]:
    """The output laws of known faults on one instance; see `conformance.statistics.fault_laws` for what they do."""
    p, q, logits = given.p, given.q, given.logits
    kept = np.minimum(p, q)
    accepted = float(kept.sum())
    left = np.maximum(p - q, 0)
    residual = left / left.sum()
    laws: dict[str, Floats] = {f"leak {share:g}": (1 - share) * p + share * q for share in (0.3, 0.1, 0.03, 0.01)}
    laws["resample from p"] = kept + (1 - accepted) * p
    upside_down = q * np.minimum(1, q / p)
    laws["accept min(1, q/p)"] = upside_down + (1 - upside_down.sum()) * residual
    laws["|p - q| residual"] = (p + q) / 2
    unnormalised = kept + (1 - accepted) * left
    unnormalised[-1] += (1 - accepted) * accepted
    laws["unnormalised residual"] = unnormalised
    head = _head_of(q, 0.88)
    from_head = head * np.minimum(1, p / q)
    laws["whole q, drafted from its head"] = from_head + (1 - from_head.sum()) * residual
    laws["same coin"] = same_coin(p[None], q[None])[0]
    for t in (1.1, 1.02, 1.005):
        laws[f"temperature {t:g}"] = softmax(logits / t)
    found = [Fault(name, p, q, law / law.sum()) for name, law in laws.items()]
    nucleus, drafted = top_p(p, 0.95), top_p(q, 0.95)
    drafted = np.where(nucleus > 0, 0.98 * drafted + 0.02 * nucleus, drafted)
    drafted /= drafted.sum()
    found.append(Fault("top-p, one token too few", nucleus, drafted, top_p(p, 0.95, -1)))
    smeared = (p + 1e-10) / (p + 1e-10).sum()
    found.append(Fault("epsilon 1e-10 on all tokens", p, q, smeared))
    return found


def top_p(p: Floats, mass: float, extra: int = 0) -> Floats:
    """The nucleus of ``p``, with ``extra`` tokens more (or fewer), normalised."""
    order = np.argsort(-p)
    size = int(np.searchsorted(np.cumsum(p[order]), mass) + 1) + extra
    law = np.zeros_like(p)
    law[order[:size]] = p[order[:size]]
    normalised: Floats = law / law.sum()
    return normalised


def _head_of(q: Floats, mass: float) -> Floats:
    order = np.argsort(-q)
    size = max(2, int(np.searchsorted(np.cumsum(q[order]), mass) + 1))
    law = np.zeros_like(q)
    law[order[:size]] = q[order[:size]]
    normalised: Floats = law / law.sum()
    return normalised
