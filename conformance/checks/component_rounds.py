"""Reading a verifier's answers: the emitted tokens with the law of each, and the single steps that led to them.

A round emits between one token and k + 1, and how many depends on the tokens; a law of "the tokens at place 2" would be one of
a biased selection. So the judge **completes** every round with draws from the target itself, to D + 1 tokens: under a lossless
rule these are jointly what the target alone would have drawn, whatever the rule (block verification too, whose count looks
ahead).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from conformance.checks.instances import Trial, draw
from conformance.components import Floats, Ints, VerifiedBatch
from conformance.statistics import Segment, TokenBlock
from conformance.statistics.step_log import NOTHING, Steps

STEP_RULES = ("ratio", "without_replacement", "one_hot", "target_only", "token_matching")
"""Declared rules that say something about every single step."""


def paths_of(trial: Trial, answer: VerifiedBatch) -> tuple[Ints, str]:
    """The accepted nodes `[B, N-1]` from the root's child down, then -1; and what is wrong with them, or "".

    A path must lead from parent to child, and be as long as the count that came with it.

    >>> from conformance.checks.instances import draw_trial, make_laws
    >>> rng = np.random.default_rng(0)
    >>> trial = draw_trial(make_laws(1, 3, 4, rng), (-1, 0, 0, 1), 1, rng)
    >>> paths_of(trial, VerifiedBatch(np.array([2]), np.array([0]), path=np.array([[2, 3, -1]])))[1]
    'row 0 gave path [2, 3, -1] with 2 accepted, no branch of parents [-1, 0, 0, 1]'
    """
    N = len(trial.parents)
    place = np.arange(N - 1)
    if trial.chain and answer.path is None:
        return np.where(place < answer.accepted[:, None], place + 1, -1), ""
    if answer.path is None or answer.path.shape != (len(trial), N - 1):
        return np.full((len(trial), N - 1), -1), f"a tree verifier must give paths [{len(trial)}, {N - 1}]"
    path = answer.path
    wrong = ((path >= 0) != (place < answer.accepted[:, None])) | (path >= N)
    before = np.concatenate([np.zeros((len(trial), 1), np.int64), path[:, :-1]], axis=1)
    parents = np.array(trial.parents)[np.clip(path, 0, N - 1)]
    wrong |= (path >= 0) & (parents != before)
    for row in np.flatnonzero(wrong.any(axis=1))[:1]:
        problem = f"row {row} gave path {path[row].tolist()} with {answer.accepted[row]} accepted"
        return path, f"{problem}, no branch of parents {list(trial.parents)}"
    return path, ""


@dataclass(frozen=True)
class Completed:
    """Rounds brought to D + 1 tokens, of which the verifier emitted the first accepted + 1.

    tokens `[B, D+1]`; p, q `[B, D+1, V]`: the laws of each given the tokens before it.
    """

    tokens: Ints
    accepted: Ints
    p: Floats
    q: Floats
    kinds: Ints

    def block(self, first_request: int, *, segments: bool) -> TokenBlock:
        """As the judge of tokens takes them, one request per row. segments: for chains, how each token came to be."""
        B, width, V = self.p.shape
        place = np.tile(np.arange(width), (B, 1))
        count = self.accepted[:, None]
        replaced = np.where(count == width - 1, Segment.BONUS, Segment.RESIDUAL)
        came = np.where(place < count, Segment.ACCEPTED, np.where(place == count, replaced, Segment.FIRST))
        return TokenBlock(
            self.tokens.ravel(),
            self.p.reshape(-1, V),
            self.q.reshape(-1, V),
            request=first_request + np.repeat(np.arange(B), width),
            segment=came.ravel().astype(np.int64) if segments else None,
            slot=place.ravel(),
            context=np.repeat(self.kinds, width),
        )


def complete(trial: Trial, answer: VerifiedBatch, path: Ints, rng: np.random.Generator) -> Completed:
    """The emitted tokens of every row, and the target's own draws after them. rng: the judge's.

    >>> from conformance.checks.instances import draw_trial, make_laws
    >>> rng = np.random.default_rng(0)
    >>> trial = draw_trial(make_laws(1, 3, 4, rng), (-1, 0, 1), 1, rng)             # two drafts
    >>> answer = VerifiedBatch(accepted=np.array([1]), next_token=np.array([3]))
    >>> whole = complete(trial, answer, np.array([[1, -1]]), rng)
    >>> whole.tokens.shape, bool(whole.tokens[0, 0] == trial.tokens[0, 1]), int(whole.tokens[0, 1])
    ((1, 3), True, 3)
    """
    B, width = len(trial), int(trial.depths.max()) + 1
    tokens = np.zeros((B, width), np.int64)
    rows = np.arange(B)
    before = trial.tokens[:, 0]
    p, q = (np.zeros((B, width, trial.laws.vocabulary)) for _ in range(2))
    for place in range(width):
        p[:, place] = trial.laws.p[trial.instance, place, before]
        q[:, place] = trial.laws.q[trial.instance, place, before]
        kept = place < answer.accepted
        node = path[:, place] if place < path.shape[1] else np.full(B, -1)
        drawn = draw(p[:, place], rng.random(B))
        tokens[:, place] = np.where(
            kept, trial.tokens[rows, node], np.where(place == answer.accepted, answer.next_token, drawn)
        )
        before = tokens[:, place]
    return Completed(tokens, answer.accepted, p, q, trial.kinds)


@dataclass(frozen=True)
class StepLog:
    """Every child that a round looked at, with the laws it was judged by: steps number their own rows of p, q `[n, V]`.

    rows, nodes `[n]`: where in the trial each step was.
    """

    steps: Steps
    p: Floats
    q: Floats
    rows: Ints
    nodes: Ints


def step_log(trial: Trial, answer: VerifiedBatch, path: Ints, rule: str) -> StepLog:
    """The steps of a rule that takes children one after the other: from the root down, each until one is accepted.

    >>> from conformance.checks.instances import draw_trial, make_laws
    >>> rng = np.random.default_rng(0)
    >>> trial = draw_trial(make_laws(1, 3, 4, rng), (-1, 0, 0, 2), 1, rng)        # the second child is accepted, its own is not
    >>> answer = VerifiedBatch(np.array([1]), np.array([3]), path=np.array([[2, -1, -1]]))
    >>> log = step_log(trial, answer, answer.path, "one_hot")
    >>> log.nodes.tolist(), log.steps.accepted.tolist(), log.steps.emitted.tolist()[::2]
    ([1, 2, 3], [False, True, False], [-1, 3])
    """
    at = np.zeros(len(trial), np.int64)
    left = trial.p[:, 0].copy()
    found: list[tuple[Ints, int, Floats, np.ndarray, Ints]] = []
    last_child = {parent: node for node, parent in enumerate(trial.parents)}
    for node in range(1, len(trial.parents)):
        parent = trial.parents[node]
        rows = np.flatnonzero(at == parent)
        taken = (path[rows] == node).any(axis=1)
        drafted = trial.tokens[rows, node]
        emitted = np.where(taken, drafted, answer.next_token[rows] if last_child[parent] == node else NOTHING)
        found.append((rows, node, left[rows], taken, emitted))
        at[rows[taken]] = node
        left[rows[taken]] = trial.p[rows[taken], node]
        refused = rows[~taken]
        left[refused] = _left(left[refused], trial.q[refused, node], trial.tokens[refused, node], rule)
    rows = np.concatenate([rows for rows, *_ in found])
    nodes = np.concatenate([np.full(len(rows), node) for rows, node, *_ in found])
    steps = Steps(
        np.arange(len(rows)),
        trial.tokens[rows, nodes],
        np.concatenate([taken for *_, taken, _ in found]),
        np.concatenate([emitted for *_, emitted in found]),
    )
    return StepLog(steps, np.concatenate([law for _, _, law, _, _ in found]), trial.q[rows, nodes], rows, nodes)


def _left(p: Floats, q: Floats, drafts: Ints, rule: str) -> Floats:
    """What a rejected draft leaves of the target's law, `[n, V]`."""
    if rule in ("ratio", "without_replacement"):
        rest = np.maximum(p - q, 0)
        rest = np.where(rest.any(axis=1, keepdims=True), rest, p)
    else:
        rest = p.copy()
        rest[np.arange(len(p)), drafts] = 0
    whole = rest.sum(axis=1, keepdims=True)
    return np.asarray(np.divide(rest, whole, out=np.zeros_like(rest), where=whole > 0))
