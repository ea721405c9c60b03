"""DRAFT: what drafts claim about themselves, and that they change nothing but speed.

DRAFT-1 the claimed q is the law that drafts are drawn from: the check that nobody ships, and without which no verification can
be right. DRAFT-2 a hostile draft leaves the output as it is. DRAFT-3 vocabulary maps. DRAFT-4 what an EAGLE-like draft net is
fed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from conformance.checks.outputs import differences
from conformance.checks.places import Place, judged, nonsense, not_exposed
from conformance.components import DraftSource, Floats, Ints, Proposal
from conformance.findings import Finding, Statistic, Verdict
from conformance.protocols import Tokens
from conformance.sampling import request_seed
from conformance.statistics import Ledger, ModePlan, Plan, TokenBlock, WrongUse
from conformance.statistics.acceptance import FLOAT32_ETA
from conformance.statistics.bets import seals
from conformance.statistics.greedy import Margin
from conformance.statistics.step_bets import LawBets, StepBets, draft_alternatives, smallest_detectable_draft_share
from conformance.statistics.wealth import BetMixture

CHUNK = 2048
"""Drafted tokens bet on at once."""


def proposals(drafter: DraftSource, contexts: Sequence[Tokens], k: int, seed: int) -> list[Proposal]:
    """Ask a drafter once per context, each time with another seed."""
    return [drafter.propose(context, k, request_seed(seed, drafter.name, i)) for i, context in enumerate(contexts)]


def draft_law_finding(
    name: str,
    drafted: Sequence[Proposal],
    planned: int,
    *,
    target: Floats | None = None,
    alpha: float = 1e-6,
    seed: int = 0,
    without: Collection[str] = (),
) -> Finding:
    """DRAFT-1, from proposals with the laws that they claim. planned: drafted tokens. seed: the judge's own. without: laws that
    are not bet on.

    target `[n, V]`: the target's law at every drafted token, where known: some faults draw from it.
    """
    some = [one for one in drafted if one.tokens]
    if not some or all(one.laws is None for one in some):
        return not_exposed("DRAFT-1", name, "a law of its drafts: they are chosen, not drawn")
    for number, one in enumerate(some):
        if one.laws is None or one.laws.shape[0] != len(one.tokens):
            return nonsense("DRAFT-1", name, f"proposal {number} has {len(one.tokens)} tokens without a law each")
        outside = [token for token in one.tokens if not 0 <= token < one.laws.shape[1]]
        if outside:
            problem = f"proposal {number} drafted id {outside[0]}, outside its law of {one.laws.shape[1]}"
            return nonsense("DRAFT-1", name, problem)
    tokens = np.array([token for one in some for token in one.tokens])
    q = np.concatenate([np.asarray(one.laws, float) for one in some])
    request = np.repeat(np.arange(len(some)), [len(one.tokens) for one in some])
    checks = {"bank": 0.2, "omnibus": 0.2, "draft law": 0.6}
    plan = ModePlan(name, 1.0, checks, planned, has_q=False, exact_p=True, bets=seals(without))
    ledger = Ledger(Plan((plan,), alpha), f"{name} seed {seed}", seed)
    try:
        ledger.observe(name, TokenBlock(tokens, q, request=request))
    except WrongUse as problem:
        return nonsense("DRAFT-1", name, f"the claimed laws are none: {problem}")
    ledger.put(name, _bets(tokens, q, q if target is None else target, without).evidence("draft law"))
    look, evidence = ledger.look(), ledger.evidence(name)
    verdict = Verdict.VIOLATES if look.failed else Verdict.CONFORMS if len(tokens) >= planned else Verdict.INCONCLUSIVE
    guilty = max(evidence, key=lambda one: one.log_e)
    impossible = np.flatnonzero(q[np.arange(len(tokens)), tokens] == 0)
    can = "a token that the claimed q can draw"
    places = [Place(f"drafted token {i}", can, f"token {tokens[i]}, q = 0") for i in impossible[:5]]
    if look.failed and not places:
        expected = "drafts drawn from the claimed q"
        places = [Place("all drafted tokens", expected, f"{guilty.holder} (log10 evidence {guilty.log10_e:.1f})")]
    words = {
        Verdict.VIOLATES: f"{len(tokens)} drafts were not drawn from the laws handed over: {places[0] if places else ''}",
        Verdict.CONFORMS: f"{len(tokens)} drafted tokens follow the laws handed over",
        Verdict.INCONCLUSIVE: f"only {len(tokens)} of {planned} drafted tokens were judged; no alarm so far",
    }
    return Finding(
        "DRAFT-1",
        name,
        verdict,
        words[verdict],
        n=len(tokens),
        planned=planned,
        unit="drafted tokens",
        alpha=alpha,
        log10_evidence=look.log10_e if math.isfinite(look.log10_e) else None,
        statistics=tuple(Statistic(e.check, e.n, log10_evidence=e.log10_e, holder=e.holder) for e in evidence if e.n),
        detects="" if verdict is Verdict.VIOLATES else _detects(q, len(tokens), alpha),
        violations=tuple(map(str, places)),
    )


def _bets(tokens: Ints, q: Floats, p: Floats, without: Collection[str]) -> BetMixture:
    """The drafts' account of a step log, chunk by chunk: every token has a context of its own."""
    account: BetMixture | None = None
    up = np.exp(FLOAT32_ETA)
    for start in range(0, len(tokens), CHUNK):
        part = slice(start, start + CHUNK)
        laws = {name: law for name, law in draft_alternatives(p[part], q[part]).items() if name not in without}
        bets = LawBets(q[part], laws, q[part] / up, q[part] * up)
        account = account or BetMixture.equal(bets.names)
        account.add(bets.log_factors(np.arange(len(tokens[part])), tokens[part]))
    assert account is not None
    return account


def _detects(q: Floats, n: int, alpha: float) -> str:
    rows = q[:: max(1, len(q) // 128)][:128]
    bets = StepBets(rows, rows, "undeclared")
    share = smallest_detectable_draft_share(n, draft_alternatives(rows, rows)["argmax"], bets, 0.6 * alpha, 1e-3)
    return f"drafts that are the argmax of q in a share of {share:.2g}" if math.isfinite(share) else "no share of argmax drafts"


def hostile_finding(
    mode: str,
    usual: Sequence[Tokens],
    hostile: dict[str, Sequence[Tokens]],
    planned: int,
    *,
    logits: Sequence[npt.NDArray[np.float64]] | None = None,
    margin: Margin | None = None,
) -> Finding:
    """DRAFT-2 at temperature 0 (or with equal seeds under token matching): any drafter leads to the usual outputs.

    hostile: outputs by drafter, as "always wrong", "constant", "out of support". logits, margin: see `differences`. (Sampled
    outputs under a hostile draft are judged as any others, by LAW.)

    >>> hostile_finding("m", [(1, 2)], {"constant": [(0, 2)]}, planned=1).violations
    ("drafter 'constant', request 0, position 0: expected token 1, found token 0",)
    """
    if not hostile:
        return not_exposed("DRAFT-2", mode, "a way to speculate with drafts of our making")
    places = []
    for name, outputs in hostile.items():
        if len(outputs) != len(usual):
            return nonsense("DRAFT-2", mode, f"{len(outputs)} outputs for {len(usual)} requests, with the drafter '{name}'")
        places += differences(usual, outputs, f"drafter '{name}', request", logits=logits, margin=margin)
    n = len(usual) * len(hostile)
    claim = f"the output is the same with the drafters {', '.join(hostile)}"
    return judged("DRAFT-2", mode, places, n=n, planned=planned, unit="outputs", claim=claim)


def vocabulary_map_finding(
    name: str,
    table: npt.ArrayLike,
    convention: Literal["offset", "absolute"],
    target_vocabulary: int,
    *,
    texts: tuple[Sequence[str], Sequence[str]] | None = None,
) -> Finding:
    """DRAFT-3: a map from draft ids `[D]` to target ids is injective and in range, and where texts are known, true.

    convention "offset": draft id i means target id i + table[i]; "absolute": table[i]. texts: of the draft's and target's
    tokens.

    >>> vocabulary_map_finding("reduced", [0, 1, 1], "offset", target_vocabulary=4).verdict
    <Verdict.CONFORMS: 'conforms'>
    >>> vocabulary_map_finding("reduced", [0, 2, 3], "offset", target_vocabulary=4).violations[0]
    'draft id 2: expected a target id in 0..3, found 5'
    """
    given = np.asarray(table)
    if given.ndim != 1 or not np.issubdtype(given.dtype, np.integer):
        return nonsense("DRAFT-3", name, f"a vocabulary map is a list of ids, got {given.dtype} {list(given.shape)}")
    ids = given + np.arange(len(given)) if convention == "offset" else given
    places: list[Place] = []
    first: dict[int, int] = {}
    for draft, target in enumerate(ids.tolist()):
        if not 0 <= target < target_vocabulary:
            places.append(Place(f"draft id {draft}", f"a target id in 0..{target_vocabulary - 1}", target))
        elif target in first:
            places.append(Place(f"draft id {draft}", f"another target id than draft id {first[target]}", f"{target} again"))
        elif texts is not None and texts[0][draft] != texts[1][target]:
            places.append(
                Place(f"draft id {draft}", f"the target id of {texts[0][draft]!r}", f"{target}, {texts[1][target]!r}")
            )
        first.setdefault(target, draft)
    n = len(ids)
    return judged(
        "DRAFT-3", name, places, n=n, planned=n, unit="draft ids", claim="the vocabulary map is injective and in range"
    )


@dataclass(frozen=True)
class DraftInput:
    """One position of a draft net's input: the feature of position `feature`, the embedding of `token`, rotary `position`."""

    feature: int
    token: int
    position: int


def draft_inputs_finding(
    name: str, passes: Sequence[tuple[Tokens, Sequence[DraftInput]]] | None, planned: int, *, base: int = 0
) -> Finding:
    """DRAFT-4: beside the feature of position i stands the token at i + 1, at positions that rise with i (by `base` apart).

    passes: the committed tokens, and what the net was then fed. A prefill in chunks must feed what one prefill would.

    >>> unshifted = [DraftInput(feature=0, token=5, position=0)]
    >>> draft_inputs_finding("m", [((5, 6), unshifted)], planned=1).violations
    ('pass 0, feature 0: expected token 6, the next one, found token 5',)
    """
    if passes is None:
        return not_exposed("DRAFT-4", name, "what its draft net is fed")
    places, n = [], 0
    for number, (committed, fed) in enumerate(passes):
        for one in fed:
            n += 1
            where = f"pass {number}, feature {one.feature}"
            if not 0 <= one.feature < len(committed) - 1:
                places.append(Place(where, f"a feature in 0..{len(committed) - 2}", one.feature))
            elif one.token != committed[one.feature + 1]:
                places.append(Place(where, f"token {committed[one.feature + 1]}, the next one", f"token {one.token}"))
            elif one.position != one.feature + base:
                places.append(Place(where, f"position {one.feature + base}", f"position {one.position}"))
        features = [one.feature for one in fed]
        if features != sorted(set(features)) or (features and features[-1] != len(committed) - 2):
            places.append(Place(f"pass {number}, its end", f"features rising to {len(committed) - 2}", features[-3:]))
    claim = "beside the feature of every position stands the next token"
    return judged("DRAFT-4", name, places, n=n, planned=planned, unit="positions", claim=claim)
