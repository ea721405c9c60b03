"""An e-process that bets on nothing in particular: a Dirichlet mixture over cells (Lindon and Malek 2020, eq. 9).

For counts O over cells with law c, a Dirichlet(kappa c) prior on the engine's law gives the Bayes factor

    prod_i [Gamma(kappa c_i + O_i) / Gamma(kappa c_i)] Gamma(kappa) / Gamma(kappa + n) / prod_i c_i^O_i,

a martingale in n under the law c. Large kappa bets on small deviations; the mixture over kappa needs no choice.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from conformance.statistics.evidence import Floats, Ints

CONCENTRATIONS = np.geomspace(1e1, 1e7, 13)


def log_dirichlet(counts: Ints, cells: Floats, concentrations: Floats = CONCENTRATIONS) -> Floats:
    """Log Bayes factor for each concentration, ``[..., K]``, of counts ``[..., m]`` against the law ``cells [m]``.

    A cell of law 0 must have count 0 (it is left out).

    >>> log_dirichlet(np.array([0, 0]), np.array([0.5, 0.5]), np.array([10.0]))
    array([0.])
    >>> ratio = np.exp(log_dirichlet(np.array([1, 0]), np.array([0.25, 0.75]), np.array([10.0])))
    >>> ratio.round(12)                 # one token carries no evidence against the prior mean
    array([1.])
    """
    counts = np.asarray(counts, dtype=np.float64)
    positive = np.asarray(cells) > 0
    counts, cells = counts[..., positive], np.asarray(cells, dtype=np.float64)[positive]
    n = counts.sum(axis=-1)
    prior = concentrations[:, None] * cells
    rising = gammaln(prior + counts[..., None, :]) - gammaln(prior)
    likelihood = counts @ np.log(cells)
    constant = gammaln(concentrations) - gammaln(concentrations + n[..., None])
    result: Floats = rising.sum(axis=-1) + constant - likelihood[..., None]
    return result
