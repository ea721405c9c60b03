"""EDGE: unusual but possible inputs have a defined outcome, or a clear error; never a wrong token.

EDGE-1 chance at its ends: u = 0, the largest u, an empty residual. EDGE-2 laws that are none: NaN, infinite, negative, all
zero. EDGE-3 token ids that are none: placeholders of -1, V and beyond. Each case stands between healthy rows, which must not
notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from conformance.checks.places import Place, judged
from conformance.components import NEEDS_LAWS, ChainVerifier, Floats, VerifiedBatch
from conformance.findings import Finding
from conformance.problems import EngineFailed
from conformance.remote import RemoteError

LARGEST = 1 - 2.0**-24
"""The largest uniform that is still below 1 in float32."""
REPEATS = 32
"""How often each case is shown to a verifier that draws its own random numbers."""

ACCIDENTS = (IndexError, KeyError, TypeError, AttributeError, ZeroDivisionError, NameError)
"""Errors that nobody meant to raise: they name no value and no remedy."""

CLAIMS = {
    "EDGE-1": "nothing of probability zero is emitted at the ends of chance, nor from an empty residual",
    "EDGE-2": "a law that is none is refused, and never accepts",
    "EDGE-3": "a token id outside the vocabulary is rejected or refused",
}


@dataclass(frozen=True)
class EdgeCase:
    """One draft: p `[2, V]`, q `[1, V]`, the drafted id, both uniforms, and what may happen.

    refuse: only an error (or a refused row) will do, if a row of p that is no law was needed. reject: the draft must not be
    accepted. Otherwise any token of positive target probability is right.
    """

    requirement: str
    name: str
    p: Floats
    q: Floats
    draft: int
    uniforms: tuple[float, float]
    refuse: bool = False
    reject: bool = False


def edge_cases(rule: str) -> list[EdgeCase]:
    """The cases of a rule; those about the draft's laws only for rules that read them."""
    p, q, after = [0.0, 0.5, 0.5, 0.0], [0.5, 0.5, 0.0, 0.0], [0.0, 0.25, 0.75, 0.0]
    reads_laws = rule in NEEDS_LAWS

    def case(
        requirement: str,
        name: str,
        *,
        p: Sequence[float] = p,
        after: Sequence[float] = after,
        q: Sequence[float] = q,
        draft: int = 1,
        u: tuple[float, float] = (0.4, 0.4),
        refuse: bool = False,
        reject: bool = False,
    ) -> EdgeCase:
        return EdgeCase(requirement, name, np.array([p, after]), np.array([q]), draft, u, refuse, reject)

    cases = [
        case("EDGE-1", "u = 0 and a draft with p = 0", draft=0, u=(0.0, 0.5), reject=True),
        case("EDGE-1", "u = 0 and a first token with p = 0", u=(0.0, 0.0)),
        case("EDGE-1", "u just below 1 and a last token with p = 0", u=(LARGEST, LARGEST)),
        case("EDGE-1", "u = 0 in the residual", draft=0, u=(0.9, 0.0), reject=True),
    ]
    # p lies an ulp of float32 below q at every token that q can draft, so a rejection leaves no residual.
    less, more = [0.0, 0.5 - 2.0**-24, 0.5 - 2.0**-24, 0.0], [0.0, 0.5, 0.5, 0.0]
    for emit in (0.0, 0.2, 0.4, 0.6, 0.8, LARGEST):
        cases.append(case("EDGE-1", f"an empty residual, emit number {emit:.3g}", p=less, q=more, u=(LARGEST, emit)))
        cases.append(case("EDGE-1", f"p = q, emit number {emit:.3g}", q=p, u=(LARGEST, emit)))
    nan, inf = float("nan"), float("inf")
    # Broken at the drafted token, or everywhere: a rule may lawfully never look at the rest of a row.
    broken = {"NaN": [0.25, nan, 0.5, 0.25], "all NaN": [nan] * 4, "an infinity": [0.0, inf, 0.5, 0.0]}
    broken |= {"a negative number": [0.75, -0.5, 0.75, 0.0], "nothing but zeros": [0.0] * 4}
    cases += [case("EDGE-2", f"the target's law holds {what}", p=row, refuse=True) for what, row in broken.items()]
    cases.append(case("EDGE-2", "the bonus row is NaN", after=[nan] * 4, u=(0.0, 0.4), refuse=True))
    if reads_laws:
        cases += [case("EDGE-2", f"the draft's law holds {what}", q=row, reject=True) for what, row in broken.items()]
    cases += [
        case("EDGE-3", f"drafted id {token}", p=[0.1, 0.2, 0.3, 0.4], q=[0.25] * 4, draft=token, u=(u, 0.4), reject=True)
        for token in (-1, 4, -4, 2**31 - 1)
        for u in (0.0, 0.4)
    ]
    return cases


@dataclass(frozen=True)
class EdgeAnswer:
    """What came of a case between healthy rows: a batch of rows (healthy, the case, healthy), or the error raised.

    alone: the healthy rows verified without the case, from the same numbers; None where numbers cannot be handed over.
    """

    case: EdgeCase
    answer: VerifiedBatch | Exception
    alone: VerifiedBatch | None = None


HEALTHY = EdgeCase("", "healthy", np.tile([0.1, 0.2, 0.3, 0.4], (2, 1)), np.array([[0.25] * 4]), 0, (0.3, 0.7))


def ask_edges(verifier: ChainVerifier, repeats: int = REPEATS) -> list[EdgeAnswer]:
    """Hand every case to a verifier; without uniforms, `repeats` times with other seeds, or until it raises."""
    answers = []
    for case in edge_cases(verifier.rule):
        for seed in range(1 if verifier.takes_uniforms else repeats):
            answer = _call(verifier, (HEALTHY, case, HEALTHY), seed)
            alone = _call(verifier, (HEALTHY, HEALTHY), seed) if verifier.takes_uniforms else None
            answers.append(EdgeAnswer(case, answer, alone if isinstance(alone, VerifiedBatch) else None))
            if isinstance(answer, Exception):  # chance has no part in it, and what it ended may be slow to start again
                break
    return answers


def _call(verifier: ChainVerifier, cases: Sequence[EdgeCase], seed: int) -> VerifiedBatch | Exception:
    p, q = (np.stack([getattr(case, name) for case in cases]) for name in ("p", "q"))
    drafts = np.array([[case.draft] for case in cases], dtype=np.int64)
    uniforms = np.array([case.uniforms for case in cases]) if verifier.takes_uniforms else None
    try:
        return verifier.verify(p, q if verifier.rule in NEEDS_LAWS else None, drafts, uniforms=uniforms, seed=seed)
    except EngineFailed:  # a crash or a hang is no answer
        raise
    except Exception as error:  # whatever it raises is what is judged
        return error


def edge_findings(name: str, answers: Sequence[EdgeAnswer]) -> list[Finding]:
    """EDGE-1 to EDGE-3, from what came of every case."""
    places: dict[str, list[Place]] = {requirement: [] for requirement in CLAIMS}
    counts = dict.fromkeys(CLAIMS, 0)
    for one in answers:
        counts[one.case.requirement] += 1
        place = _judge(one)
        if place is not None:
            places[one.case.requirement].append(place)
    return [
        judged(requirement, name, places[requirement], n=counts[requirement], planned=1, unit="cases", claim=claim)
        for requirement, claim in CLAIMS.items()
    ]


def _judge(one: EdgeAnswer) -> Place | None:
    case, wanted = one.case, _wanted(one.case)
    where = f"{case.name}, p {case.p[0].tolist()}, q {case.q[0].tolist()}, draft {case.draft}, u {case.uniforms}"
    if isinstance(one.answer, Exception):
        if case.requirement == "EDGE-1" or _is_accident(one.answer):
            return Place(where, wanted, _shown(one.answer))
        return None
    if one.alone is not None:
        for row, other in ((0, 0), (2, 1)):
            got = int(one.answer.accepted[row]), int(one.answer.next_token[row])
            expected = int(one.alone.accepted[other]), int(one.alone.next_token[other])
            if got != expected:
                return Place(f"{where}; a healthy row beside it", f"(accepted, token) {expected} as alone", got)
    if one.answer.refused is not None and one.answer.refused[1]:
        return Place(where, wanted, "a refused row") if case.requirement == "EDGE-1" else None
    accepted, token = int(one.answer.accepted[1]), int(one.answer.next_token[1])
    found = f"{accepted} accepted, token {token} emitted"
    read = case.p[: max(accepted, 0) + 1]  # a rule that rejects a draft never looks at the rows after it
    none = not np.isfinite(read).all() or bool((read < 0).any()) or not read.sum(axis=1).all()
    if (case.refuse and none) or (case.reject and accepted) or not 0 <= token < case.p.shape[1]:
        return Place(where, wanted, found)
    if not case.p[accepted][token] > 0 or (accepted and not case.p[0][case.draft] > 0):
        return Place(where, wanted, found)
    return None


def _is_accident(error: Exception) -> bool:
    """Whether nobody meant to raise this; an error of another process carries its type in its message."""
    if isinstance(error, RemoteError):
        return str(error).partition(":")[0] in {kind.__name__ for kind in ACCIDENTS} or ":" not in str(error)
    return isinstance(error, ACCIDENTS) or not str(error).strip()


def _shown(error: Exception) -> str:
    return str(error)[:100] if isinstance(error, RemoteError) else f"{type(error).__name__}: {str(error)[:80]}"


def _wanted(case: EdgeCase) -> str:
    if case.refuse:
        return "a clear error or a refused row"
    token = f"a token of positive probability ({np.flatnonzero(case.p[0] > 0).tolist()})"
    return f"the draft rejected and {token}" if case.reject else token
