"""LAW of a chain verifier that takes its random numbers as arguments: its law is found, not sampled (LAW-6).

Handed chosen numbers, the function is a step function of them. Where it steps is found by bisection, and the volumes between
the steps are the law of the first emitted token, to a total variation far below what any sample could show.
"""

from __future__ import annotations

import numpy as np

from conformance.checks.instances import KINDS, make_laws
from conformance.checks.places import Place, judged, nonsense, not_exposed
from conformance.components import NEEDS_LAWS, ChainVerifier, Floats, Ints
from conformance.findings import Finding
from conformance.statistics import WrongUse
from conformance.statistics.quadrature import FoundLaw, law_over_uniforms

TOLERANCE = 1e-5
"""In total variation: what float32 sums over a vocabulary may cost."""


def found_law(verifier: ChainVerifier, p: Floats, q: Floats) -> FoundLaw:
    """The law of the first emitted token, over one draft drawn from q `[V]`; p `[2, V]`."""
    V = p.shape[1]

    def emits(drafts: Ints, uniforms: Floats) -> Ints:
        laws = np.tile(p, (len(drafts), 1, 1))
        claimed = np.tile(q, (len(drafts), 1, 1)) if verifier.rule in NEEDS_LAWS else None
        answer = verifier.verify(laws, claimed, drafts[:, None].astype(np.int64), uniforms=uniforms, seed=0)
        return np.where(answer.accepted > 0, drafts, answer.next_token)

    return law_over_uniforms(emits, q, V, 2)


def exact_finding(verifier: ChainVerifier, *, vocabulary: int = 8, seed: int = 0, tolerance: float = TOLERANCE) -> Finding:
    """LAW-6: for one instance of each kind the law of the first token equals p, within `tolerance` in total variation."""
    if not verifier.takes_uniforms:
        return not_exposed("LAW-6", verifier.name, "its random numbers as arguments")
    laws = make_laws(1, 2, vocabulary, np.random.default_rng([seed, 6]))
    places = []
    for instance, kind in enumerate(laws.kinds):
        p, q = laws.p[instance, :, 0], laws.q[instance, 0, 0]
        try:
            found = found_law(verifier, p, q)
        except WrongUse as problem:
            return nonsense("LAW-6", verifier.name, str(problem))
        distance = float(np.abs(found.law - p[0]).sum() / 2)
        if distance > tolerance + found.unresolved:
            worst = int(np.abs(found.law - p[0]).argmax())
            where = f"first token of an instance of kind '{KINDS[kind]}', total variation {distance:.3g}, token {worst}"
            places.append(Place(where, f"probability {p[0][worst]:.6g}", f"{found.law[worst]:.6g}"))
    n = len(laws.kinds)
    claim = f"the exact law of the first token is the target's, to {tolerance:g} in total variation"
    return judged("LAW-6", verifier.name, places, n=n, planned=n, unit="instances", claim=claim)
