"""Faults of the rule that verifies a chain: the ratio rule, or the one named, with one thing replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial

import numpy as np

from conformance.controls.bounded import rows_needed
from conformance.controls.control import Control, Exact
from conformance.controls.exact import one_token
from conformance.controls.stages.verifiers import chain as audited
from specref.chance import Chance, SampledChance
from specref.draft import Draft
from specref.laws import Law, norm, one_hot, positive_part, residual
from specref.models import softmax
from specref.proof.first_token import P
from specref.rules import Rule, Verified, rewired
from specref.rules.chain import greedy, ratio, token_matching
from specref.rules.typical import lenient

KIND = "sampler"


def fault(
    id: str,
    rule: Rule,
    requirements: Sequence[str],
    *reports: str,
    declared: str = "ratio",
    exact: Exact | None = None,
    sees: bool = False,
) -> Control:
    """A wrong `rule` that is declared as another. Its exact law is that of a draft drawn from q, unless told."""
    size = exact or one_token(rule)
    # Token matching reads no emit number; a fault that does brings its own.
    chance = SampledChance if declared == "token_matching" else None
    audit = audited(declared, rule, chance=chance)
    bound = partial(rows_needed, rule, requirements, audit.n) if declared == "ratio" else None
    return Control(id, KIND, declared, tuple(requirements), audit, reports, size, sees, bound=bound)


# The residual.


def best(law: Law) -> Law:
    """All of a law on its most probable token."""
    return one_hot(int(law.argmax()), like=law)


def softened(weights: Law) -> Law:
    """Softmax of what is not logits."""
    return softmax(weights.astype(np.float64))


def not_normalised(p: Law, q: Law) -> Law:
    """The residual sampled by inverse CDF as if it summed to 1: what is missing falls on the last token."""
    left = positive_part(p - q)
    left[-1] += max(1 - left.sum(), 0)
    return left


def in_the_drafts_support(p: Law, q: Law) -> Law:
    """The residual computed in a reduced draft vocabulary: tokens that the draft does not know are forgotten."""
    left = residual(p, q) * (q > 0)
    return left if left.any() else p


def with_laws(rule: Rule, laws: Callable[[int, Law], Law]) -> Rule:
    """`rule` told that a drafted token x came from `laws(x, q)`."""

    def changed(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
        told = [laws(x, q) for x, q in zip(draft.tokens, draft.laws)]
        return rule(p, Draft(draft.tokens, told, None), chance)

    return changed


RESIDUAL = (
    fault(
        "resample from p after a rejection", rewired(ratio, residual=lambda p, q: p), ["LAW-3", "LAW-4"], "ShopeeLLM/Spec-RL 14"
    ),
    fault(
        "softmax of the residual",
        rewired(ratio, residual=lambda p, q: softened(positive_part(p - q))),
        ["LAW-3", "LAW-4"],
        "huggingface/transformers 28508",
    ),
    fault("argmax of the residual", rewired(ratio, residual=lambda p, q: best(positive_part(p - q))), ["LAW-3"]),
    fault("absolute value of the residual", rewired(ratio, residual=lambda p, q: abs(p - q)), ["LAW-3", "LAW-4"]),
    fault("residual not normalised", rewired(ratio, residual=not_normalised), ["LAW-3", "LAW-4"]),
    fault(
        "residual subtracts q only at the drafted token",
        with_laws(ratio, lambda x, q: q * one_hot(x, like=q)),
        ["LAW-3", "LAW-4"],
        "xLLM-AI/xllm 2175",
    ),
    fault("the other residual, q minus p", rewired(ratio, residual=lambda p, q: residual(q, p)), ["LAW-3", "LAW-4"]),
    fault(
        "residual in the draft's vocabulary",
        rewired(ratio, residual=in_the_drafts_support),
        ["LAW-3"],
        "xLLM-AI/xllm 2175",
        exact=one_token(
            rewired(ratio, residual=in_the_drafts_support),
            np.array([P[0] * 0, *norm(P[1:][::-1])], dtype=object),
            on="p as above, q = (0, .05, .25, .60) / .9",
        ),
    ),
)

# Acceptance.


class Odds(Chance):
    """A chance that is asked for other odds than the rule's."""

    def __init__(self, chance: Chance, odds: Callable[[object, object], tuple[object, object]]) -> None:
        super().__init__()
        self._chance, self._odds = chance, odds

    def accepts(self, numerator: object, denominator: object = 1, *, slot: tuple[str | int, ...]) -> bool:
        """See `Chance.accepts`."""
        return self._chance.accepts(*self._odds(numerator, denominator), slot=slot)

    def picks(self, weights: Law | Sequence[object], *, slot: tuple[str | int, ...]) -> int:
        """See `Chance.picks`."""
        return self._chance.picks(weights, slot=slot)

    def _accepts(self, numerator: object, denominator: object, number: object) -> bool:
        raise NotImplementedError

    def _picks(self, cumulative: Law, number: object) -> int:
        raise NotImplementedError


def with_odds(rule: Rule, odds: Callable[..., tuple[object, object]]) -> Rule:
    """`rule` whose chance is asked for `odds(numerator, denominator)`."""
    return lambda p, draft, chance: rule(p, draft, Odds(chance, odds))


def over_the_largest(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    """Accepts with the draft's probability over the target's largest."""
    for i, (x, q) in enumerate(zip(draft.tokens, draft.laws)):
        if not chance.accepts(q[x], max(p[i]), slot=("accept", i)):
            return Verified(i, chance.picks(residual(p[i], q) if (p[i] > q).any() else p[i], slot=("emit",)))
    return Verified(len(draft.tokens), chance.picks(p[-1], slot=("emit",)))


def first_unverified(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    """The loop begins with the second draft."""
    if not draft.tokens:
        return ratio(p, draft, chance)
    rest = ratio(p[1:], Draft.claimed(draft.tokens[1:], draft.laws[1:]), chance)
    return Verified(1 + rest.accepted, rest.next_token)


def bonus_dropped(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    """After full acceptance nothing is added: the round ends with the last draft."""
    verified, k = ratio(p, draft, chance), len(draft.tokens)
    return Verified(k - 1, draft.tokens[-1]) if k and verified.accepted == k else verified


ACCEPTANCE = (
    fault(
        "always accept", with_odds(ratio, lambda p, q: (1, 1)), ["LAW-3", "LAW-4"], "huggingface/transformers 28508", sees=True
    ),
    fault(
        "ratio upside down",
        with_odds(ratio, lambda p, q: (q, p)),
        ["LAW-3", "LAW-4"],
        "1bit-MONSTER/1bit-MONSTER 637",
        sees=True,
    ),
    fault(
        "draft probability over the target's largest",
        over_the_largest,
        ["LAW-3", "LAW-4"],
        "1bit-MONSTER/1bit-MONSTER 637",
        sees=True,
    ),
    fault("accepted by p alone, the residual with q", with_odds(ratio, lambda p, q: (p, 1)), ["LAW-3", "LAW-4"], sees=True),
    fault(
        "a rejected draft let through one time in ten",
        with_odds(ratio, lambda p, q: (9 * min(p, q) + q, 10 * q)),
        ["LAW-3", "LAW-4"],
        sees=True,
    ),
    fault(
        "acceptance biased by a constant of .2",
        with_odds(ratio, lambda p, q: (5 * p + q, 5 * q)),
        ["LAW-3", "LAW-4"],
        "vllm-project/vllm 35355",
        sees=True,
    ),
    fault(
        "no coin: accept where p/q is above one half",
        with_odds(ratio, lambda p, q: (int(2 * p > q), 1)),
        ["LAW-3", "LAW-4"],
        sees=True,
    ),
    fault(
        "the ratio squared: every draft tested twice",
        with_odds(ratio, lambda p, q: (min(p, q) ** 2, q * q)),
        ["LAW-3", "LAW-4"],
        sees=True,
    ),
    fault(
        "undeclared lenience of one half",
        lambda p, draft, chance: lenient(p, draft, chance, Fraction(1, 2)),
        ["LAW-3", "LAW-4"],
        "NVIDIA/TensorRT-LLM 3865",
        sees=True,
    ),
    fault("first draft unverified", first_unverified, ["LAW-3", "LAW-4"], "ohdearquant/lattice 243", sees=True),
    fault("bonus dropped after full acceptance", bonus_dropped, ["LAW-4"], "ohdearquant/lattice 509", sees=True),
)

# The target's law as the rule sees it.


def with_target(rule: Rule, shown: Callable[[Law], Law]) -> Rule:
    """`rule` shown `shown(p)` in place of the target's law, at every position."""
    return lambda p, draft, chance: rule([shown(law) for law in p], draft, chance)


def new_draw_on_mismatch(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    """Token matching that emits another draw than the one that it compared."""
    verified = token_matching(p, draft, chance)
    if verified.accepted == len(draft.tokens):
        return verified
    return Verified(verified.accepted, chance.picks(p[verified.accepted], slot=("emit",)))


def argmax_but_the_bonus(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    """The argmax at the drafted positions; only the bonus is sampled."""
    verified = greedy(p, draft, chance)
    if verified.accepted < len(draft.tokens):
        return verified
    return Verified(verified.accepted, chance.picks(p[-1], slot=("emit",)))


TARGET = (
    fault(
        "softmax applied twice to the target",
        with_target(ratio, softened),
        ["LAW-3", "LAW-4"],
        "vllm-project/vllm-ascend 6685",
        sees=True,
    ),
    fault("argmax verification at T > 0", greedy, ["LAW-3"], "sgl-project/sglang 31214", declared="token_matching", sees=True),
    fault(
        "argmax at the drafts, only the bonus sampled",
        argmax_but_the_bonus,
        ["LAW-3"],
        "ROCm/ATOM 2318",
        declared="token_matching",
        sees=True,
    ),
    fault(
        "token matching with a new draw on mismatch",
        new_draw_on_mismatch,
        ["LAW-3"],
        "foundation-model-stack/fms-extras 12",
        declared="token_matching",
    ),
)

FAULTS = (*RESIDUAL, *ACCEPTANCE, *TARGET)
