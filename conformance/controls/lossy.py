"""Modes that are lossy by choice: their exact law is reported, and their neutral setting must equal the strict rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from specref.chance import Chance
from specref.draft import Draft
from specref.laws import Law, one_hot, rational
from specref.proof import FirstToken, chosen_siblings, first_token
from specref.rules import Rule
from specref.rules.chain import ratio
from specref.rules.tree import greedy, target_only
from specref.rules.typical import ensemble, lenient, typical

P3, Q3 = rational([5, 3, 2]), rational([2, 5, 3])
CHILD = chosen_siblings([1])
HALF = Fraction(1, 2)


@dataclass(frozen=True)
class Lossy:
    """A lossy mode. rule: with its setting; neutral: with the setting that changes nothing; strict: the rule it then is.

    draw: how drafts are made, or the law that they are drawn from. shown: the target's law; at_neutral: where the two rules are
    compared, if not there (typical acceptance is greedy where the target is certain).
    """

    id: str
    rule: Rule
    neutral: Rule
    strict: Rule
    draw: Callable[[Chance], Draft] | Law
    shown: Law
    at_neutral: Law | None = None
    reports: tuple[str, ...] = ()

    def law(self) -> FirstToken:
        """The exact law of the first token under the lossy rule."""
        return first_token(self.rule, self.draw, shown=self.shown)

    def neutral_laws(self) -> tuple[FirstToken, FirstToken]:
        """The exact laws of the neutral setting and of the strict rule, which must be equal."""
        shown = self.shown if self.at_neutral is None else self.at_neutral
        return first_token(self.neutral, self.draw, shown=shown), first_token(self.strict, self.draw, shown=shown)


LOSSY = (
    Lossy(
        "threshold acceptance, tau_acc = 1/2",
        partial(target_only, tau_acc=HALF),
        target_only,
        target_only,
        CHILD,
        P3,
        reports=("sgl-project/sglang 7702",),
    ),
    Lossy(
        "threshold acceptance, tau_single = 3/10",
        partial(target_only, tau_single=Fraction(3, 10)),
        partial(target_only, tau_single=1),
        target_only,
        CHILD,
        P3,
        reports=("sgl-project/sglang 8068",),
    ),
    Lossy(
        "typical acceptance",
        typical,
        typical,
        greedy,
        CHILD,
        P3,
        one_hot(1, like=P3),
        ("vllm-project/vllm 5131", "vllm-project/vllm-ascend 9772"),
    ),
    Lossy("ensemble, half p and half q", partial(ensemble, weight=HALF), partial(ensemble, weight=1), ratio, Q3, P3),
    Lossy(
        "lenience 1/2",
        partial(lenient, lenience=HALF),
        partial(lenient, lenience=1),
        ratio,
        Q3,
        P3,
        reports=("NVIDIA/TensorRT-LLM 12353",),
    ),
)
"""On p = (5, 3, 2)/10; drafts drawn from q = (2, 5, 3)/10, or the child 1 chosen."""
