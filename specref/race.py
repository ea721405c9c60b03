"""Picking by a race: one random number per token instead of one for all.

Token v finishes after E_v / weights[v], with E_v exponential; the first to finish wins with probability weights[v] / total.
That is the Gumbel-max trick on another scale (-log E is Gumbel distributed). It needs neither a normalised law nor a cumulative
sum, so kernels use it for residuals. Its noise must be its own: a residual drawn with the noise that the rejected draft won by
is biased.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from specref.chance import BadWeights, EmptyWeights, SampledChance, Slot
from specref.laws import Law


def race(weights: Law, exponentials: npt.ArrayLike) -> int:
    """The token that finishes first, when token v takes exponentials[v] / weights[v]. Ties go to the lowest id.

    weights `[V]` need not be normalised; one of 0 never wins. exponentials `[V]` must be positive: in float32 a uniform that
    rounds to 0 gives an exponential of 0, which would win against any weight.

    >>> race(np.array([0.0, 0.5, 0.5]), exponentials=[0.1, 0.7, 0.6])
    2

    Raises BadWeights for an exponential that is not positive, EmptyWeights if no weight is.
    """
    noise = np.asarray(exponentials, dtype=np.float64)
    if not (noise > 0).all():
        raise BadWeights(f"every exponential must be positive, got {noise.min()} for token {noise.argmin()}")
    speed = np.asarray(weights, dtype=np.float64) / noise
    if not speed.any():
        raise EmptyWeights(f"all {speed.size} weights are zero, so no token can win")
    return int(speed.argmax())


def gumbel_max(log_weights: npt.ArrayLike, gumbels: npt.ArrayLike) -> int:
    """argmax(log_weights + gumbels) `[V]`: `race` with gumbels = -log(exponentials).

    >>> exponentials = np.array([0.1, 0.7, 0.6])
    >>> gumbel_max(np.log([0.2, 0.4, 0.4]), -np.log(exponentials)), race(np.array([0.2, 0.4, 0.4]), exponentials)
    (0, 0)
    """
    return int((np.asarray(log_weights, dtype=np.float64) + np.asarray(gumbels, dtype=np.float64)).argmax())


class RacingChance(SampledChance):
    """`SampledChance` that picks by a race: a second sampler of the same law, for every rule.

    The number of a slot then names one uniform for each token, so a fault that shares a number shares the whole noise.

    >>> RacingChance(seed=7).picks([0, 1, 0], slot=("emit",))
    1
    """

    def picks(self, weights: Law | Sequence[Any], *, slot: Slot) -> int:
        """See `Chance.picks`: the same law, decided by one exponential per token."""
        number = self._number_of(slot)
        row = np.asarray(weights, dtype=np.float64)
        if not (np.isfinite(row).all() and (row >= 0).all()):
            raise BadWeights(f"slot {slot}: weights must be finite and not negative, got {row}")
        uniforms = np.array([self.uniform((number, token)) for token in range(row.size)])
        return race(row, -np.log1p(-uniforms) + np.finfo(np.float64).tiny)
