from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from conformance.checks.draft import (
    DraftInput,
    draft_inputs_finding,
    draft_law_finding,
    hostile_finding,
    proposals,
    vocabulary_map_finding,
)
from conformance.checks.instances import draw
from conformance.components import Proposal
from conformance.findings import Finding, Verdict
from conformance.protocols import Tokens
from conformance.statistics.greedy import Margin

V, K, CONTEXTS = 16, 4, 1000
LAWS = np.random.default_rng(7).dirichlet(np.full(V, 0.7), size=V)


class Drafter:
    """Draws from a law that depends on the token before, and claims that very law."""

    name = "drafter"

    def draws_from(self, q: np.ndarray) -> np.ndarray:
        return q

    def claims(self, q: np.ndarray) -> np.ndarray:
        return q

    def propose(self, context: Tokens, k: int, seed: int) -> Proposal:
        rng = np.random.default_rng(seed)
        tokens: list[int] = []
        laws = []
        before = context[-1]
        for _ in range(k):
            q = LAWS[before]
            before = int(draw(self.draws_from(q)[None], rng.random(1))[0])
            tokens.append(before)
            laws.append(self.claims(q))
        return Proposal(tuple(tokens), np.array(laws))


def normal(weights: np.ndarray) -> np.ndarray:
    return np.asarray(weights / weights.sum())


class FromTheTopOnly(Drafter):
    def draws_from(self, q: np.ndarray) -> np.ndarray:
        return normal(np.where(q >= np.sort(q)[-4], q, 0))


class Argmax(Drafter):
    def draws_from(self, q: np.ndarray) -> np.ndarray:
        return np.eye(V)[q.argmax()]


class OtherTemperature(Drafter):
    def draws_from(self, q: np.ndarray) -> np.ndarray:
        return normal(q**0.6)


class TruncatedClaim(Drafter):
    """Draws from all of q, hands over its top."""

    def claims(self, q: np.ndarray) -> np.ndarray:
        return normal(np.where(q >= np.sort(q)[-12], q, 0))


class RowBefore(Drafter):
    """Hands over the law of another position."""

    def claims(self, q: np.ndarray) -> np.ndarray:
        return np.roll(LAWS, 1, axis=0)[(q == LAWS).all(axis=1).argmax()]


class Quantised(Drafter):
    """Lawful: another law than the model's own, but the one that is handed over."""

    def draws_from(self, q: np.ndarray) -> np.ndarray:
        return normal(np.round(q * 64) + 0.01)

    claims = draws_from


def audit(drafter: Drafter, contexts: int = CONTEXTS, seed: int = 5) -> Finding:
    made = proposals(drafter, [(i % V,) for i in range(contexts)], K, seed)
    return draft_law_finding("m", made, K * CONTEXTS, seed=seed)


@pytest.mark.parametrize("drafter", [Drafter(), Quantised()], ids=["plain", "quantised"])
def test_a_drafter_that_tells_the_truth_conforms(drafter: Drafter) -> None:
    found = audit(drafter, seed=int(np.random.default_rng().integers(10**6)))
    assert found.verdict is Verdict.CONFORMS, found.summary
    kind, _, share = found.detects.rpartition(" ")
    assert kind == "drafts that are the argmax of q in a share of"
    assert float(share) < 0.105  # of a run's contexts: .093, with a deviation of .0015


LAW_FAULTS: dict[str, type[Drafter]] = {
    "drawn from the top of q, all of q handed over": FromTheTopOnly,
    "argmax draft with a soft q": Argmax,
    "drafts at another temperature than q": OtherTemperature,
    "q handed over truncated": TruncatedClaim,
    "q of another row handed over": RowBefore,
}


@pytest.mark.parametrize("name", LAW_FAULTS)
def test_a_drafter_that_does_not_is_killed(name: str) -> None:
    found = audit(LAW_FAULTS[name]())
    assert found.verdict is Verdict.VIOLATES
    assert found.n == K * CONTEXTS
    assert "expected" in found.violations[0]


def test_verdicts_that_are_none() -> None:
    assert draft_law_finding("m", [Proposal((1,))], 1).verdict is Verdict.NOT_EXPOSED
    assert audit(Drafter(), 10).verdict is Verdict.INCONCLUSIVE
    assert draft_law_finding("m", [Proposal((1,), np.full((1, 4), 0.3))], 1).verdict is Verdict.ERROR
    assert draft_law_finding("m", [Proposal((9,), np.full((1, 4), 0.25))], 1).verdict is Verdict.ERROR


USUAL: Sequence[Tokens] = [(1, 2, 3, 4), (5, 6, 7, 0)]
LOGITS = [np.eye(8)[list(tokens)] * 3.0 for tokens in USUAL]
MARGIN = Margin(1e-5, "float32", 10_000)

HOSTILE_FAULTS: dict[str, dict[str, Sequence[Tokens]]] = {
    "first draft token unverified": {"always wrong": [(0, 2, 3, 4), (5, 6, 7, 0)]},
    "a draft out of support accepted": {"out of support": USUAL, "constant": [(1, 2, 3, 4), (5, 6, 1, 0)]},
}


def test_a_hostile_draft_changes_nothing() -> None:
    assert hostile_finding("m", USUAL, {"always wrong": USUAL, "constant": USUAL}, 4).verdict is Verdict.CONFORMS
    assert hostile_finding("m", USUAL, {}, 4).verdict is Verdict.NOT_EXPOSED
    assert hostile_finding("m", USUAL, {"constant": USUAL[:1]}, 4).verdict is Verdict.ERROR


@pytest.mark.parametrize("name", HOSTILE_FAULTS)
def test_a_hostile_draft_that_changes_the_output_is_named(name: str) -> None:
    found = hostile_finding("m", USUAL, HOSTILE_FAULTS[name], 2, logits=LOGITS, margin=MARGIN)
    assert found.verdict is Verdict.VIOLATES
    assert found.violations[0].startswith("drafter '")


def test_a_near_tie_of_the_target_explains_a_difference() -> None:
    tied = [rows.copy() for rows in LOGITS]
    tied[1][2, 1] = 3.0 - 1e-6
    outputs = {"constant": [USUAL[0], (5, 6, 1, 1)]}
    assert hostile_finding("m", USUAL, outputs, 2, logits=tied, margin=MARGIN).verdict is Verdict.CONFORMS


MAP_FAULTS: dict[str, Callable[[], Finding]] = {
    "vocabulary map absolute instead of offset": lambda: vocabulary_map_finding("m", [0, 2, 5, 7], "offset", 9),
    "offsets read as absolute ids": lambda: vocabulary_map_finding("m", [0, 1, 1, 3], "absolute", 9),
    "vocabulary map skipped": lambda: vocabulary_map_finding(
        "m", [0, 0, 0], "offset", 4, texts=(["a", "c", "d"], list("abcd"))
    ),
}


@pytest.mark.parametrize("name", MAP_FAULTS)
def test_a_wrong_vocabulary_map_is_killed(name: str) -> None:
    found = MAP_FAULTS[name]()
    assert found.verdict is Verdict.VIOLATES
    assert found.violations[0].startswith("draft id ")


def test_a_right_vocabulary_map_conforms() -> None:
    texts = (["a", "c", "d"], list("abcd"))
    assert vocabulary_map_finding("m", [0, 1, 1], "offset", 4, texts=texts).verdict is Verdict.CONFORMS
    assert vocabulary_map_finding("m", [0, 2, 3], "absolute", 4, texts=texts).verdict is Verdict.CONFORMS
    assert vocabulary_map_finding("m", [0.5], "offset", 4).verdict is Verdict.ERROR


COMMITTED = (10, 11, 12, 13, 14)
FED = [DraftInput(i, COMMITTED[i + 1], i) for i in range(4)]
INPUT_FAULTS: dict[str, list[DraftInput]] = {
    "no shift of the draft's inputs": [DraftInput(i, COMMITTED[i], i) for i in range(4)],
    "chunk tail taken from the prediction": [*FED[:1], DraftInput(1, 99, 1), *FED[2:]],
    "first window without the sampled token": FED[:-1],
    "one position for a whole window": [DraftInput(i, COMMITTED[i + 1], 3) for i in range(4)],
}


@pytest.mark.parametrize("name", INPUT_FAULTS)
def test_wrong_draft_inputs_are_killed(name: str) -> None:
    found = draft_inputs_finding("m", [(COMMITTED, FED), (COMMITTED, INPUT_FAULTS[name])], 4)
    assert found.verdict is Verdict.VIOLATES
    assert found.violations[0].startswith("pass 1, ")


def test_right_draft_inputs_conform() -> None:
    assert draft_inputs_finding("m", [(COMMITTED, FED), (COMMITTED, FED[2:])], 4).verdict is Verdict.CONFORMS
    shifted = [DraftInput(one.feature, one.token, one.position + 1) for one in FED]
    assert draft_inputs_finding("m", [(COMMITTED, shifted)], 4, base=1).verdict is Verdict.CONFORMS
    assert draft_inputs_finding("m", None, 4).verdict is Verdict.NOT_EXPOSED
