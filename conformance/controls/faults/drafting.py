"""Faults of drafts: the laws handed over are not those that the drafts were drawn from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from conformance.controls.control import Audit, Control, Exact
from conformance.controls.exact import low_probability_dropped, one_token
from conformance.controls.stages.engines import engine
from conformance.protocols import Request
from specref.chance import Chance
from specref.draft import Draft
from specref.generate import Drafter, ModelDrafter
from specref.laws import Law, norm, one_hot, without
from specref.models import LanguageModel, Tokens, softmax
from specref.proof import chosen_chain
from specref.proof.first_token import Q
from specref.rules.chain import ratio


class Claiming:
    """Draws from `drawn(q)` and hands over `claimed(q)`."""

    def __init__(self, model: LanguageModel, drawn: Callable[[Law], Law], claimed: Callable[[Law], Law]) -> None:
        self.model, self.drawn, self.claimed = model, drawn, claimed

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        """See `Drafter.draft`."""
        made = Draft.drawn(lambda so_far: self.drawn(self.model.next_law(context + so_far)), k, chance)
        laws = [self.claimed(self.model.next_law(context + made.tokens[:i])) for i in range(len(made.tokens))]
        return Draft.claimed(made.tokens, laws)


def same(law: Law) -> Law:
    """The law itself."""
    return law


def top(law: Law, count: int = 4) -> Law:
    """The law of its most probable tokens."""
    return norm(np.where(law >= np.sort(law)[-count], law, 0))


def best(law: Law) -> Law:
    """All on the most probable token."""
    return one_hot(int(law.argmax()), like=law)


def powered(exponent: float) -> Callable[[Law], Law]:
    """The law at temperature 1 / exponent."""
    return lambda law: norm(law**exponent)


def rounded(law: Law) -> Law:
    """The law in powers of four."""
    return norm(np.exp2(2 * np.round(np.log2(np.maximum(law, 1e-9)) / 2)))


def padded(law: Law) -> Law:
    """Softmax of logits where those of missing tokens (here the last quarter) are 0 instead of -inf."""
    logits = np.log(np.maximum(law, 1e-9))
    logits[-len(law) // 4 :] = 0.0
    return softmax(logits)


def reduced(law: Law) -> Law:
    """The law without the last quarter of the vocabulary."""
    kept = law.copy()
    kept[-len(law) // 4 :] = 0
    return norm(kept)


class LawOfTheRowBefore(ModelDrafter):
    """Hands over the law of the position before."""

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        """See `Drafter.draft`."""
        made = super().draft(context, k, chance)
        return Draft.claimed(made.tokens, [made.laws[0], *made.laws[:-1]]) if made.tokens else made


class SeesItsFuture(ModelDrafter):
    """Drafts one token at a time; then one pass over all drafts, without a causal mask, gives the laws handed over."""

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        """See `Drafter.draft`."""
        made = super().draft(context, k, chance)
        laws = [(law + 4 * one_hot(x, like=law)) / 5 for law, x in zip(made.laws, made.tokens)]
        return Draft.claimed(made.tokens, laws)


class LowOnesDropped(ModelDrafter):
    """A drafted token that the draft itself finds unlikely ends the draft and is dropped."""

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        """See `Drafter.draft`."""
        made = super().draft(context, k, chance)
        kept = next((i for i, (x, q) in enumerate(zip(made.tokens, made.laws)) if q[x] < 0.12), len(made.tokens))
        return Draft.claimed(made.tokens[:kept], made.laws[:kept])


def claiming(drawn: Callable[[Law], Law], claimed: Callable[[Law], Law]) -> Callable[..., Drafter]:
    """A maker of drafters that draw from one law and hand over another."""
    return lambda model, raw, request: Claiming(model, drawn, claimed)


def untempered(model: LanguageModel, raw: LanguageModel, request: Request) -> Drafter:
    """Drawn at the request's temperature, the law at temperature 1 handed over."""
    return Claiming(raw, lambda law: norm(law ** (1 / request.settings.temperature)), same)


def law_fault(
    id: str,
    audit: Audit,
    requirements: Sequence[str],
    *reports: str,
    kind: str = "sampler",
    exact: Exact | None = None,
    sees: bool = True,
) -> Control:
    """A fault of the laws of drafts, under the ratio rule."""
    return Control(id, kind, "Drafter", tuple(requirements), audit, reports, exact, sees)


FAULTS = (
    law_fault(
        "drawn from the top of q, all of q handed over",
        engine(drafter=claiming(top, same)),
        ["LAW-1", "DRAFT-1"],
        "huggingface/transformers 47932",
        exact=one_token(ratio, norm(without(Q, 2)), claim=Q),
    ),
    law_fault(
        "argmax draft, soft q in the ratio",
        engine(drafter=claiming(best, same)),
        ["LAW-1", "DRAFT-1"],
        "jaymody/speculative-sampling 3",
        exact=one_token(ratio, chosen_chain([1]), claim=Q),
    ),
    law_fault(
        "drafts drawn at another temperature than q",
        engine(drafter=claiming(powered(2.0), same)),
        ["LAW-1", "DRAFT-1"],
        "jaymody/speculative-sampling 9",
        "z-lab/dflash 74",
    ),
    law_fault(
        "temperature in the draw of drafts, not in their laws",
        engine(drafter=untempered, temperature=0.5),
        ["DRAFT-1"],
        "jaymody/speculative-sampling 9",
    ),
    law_fault(
        "all of q drawn from, its top handed over", engine(drafter=claiming(same, lambda law: top(law, 12))), ["DRAFT-1"]
    ),
    law_fault(
        "drawn in powers of four, handed over in full",
        engine(drafter=claiming(rounded, same)),
        ["LAW-1"],
        "deepseek-ai/DeepSpec 31",
        sees=False,
    ),
    law_fault(
        "q of the position before handed over",
        engine(drafter=lambda model, raw, request: LawOfTheRowBefore(model)),
        ["DRAFT-1"],
    ),
    law_fault(
        "missing logits 0 instead of -inf",
        engine(drafter=claiming(reduced, padded)),
        ["LAW-1", "DRAFT-1"],
        "vllm-project/vllm 5203",
        kind="draft inputs",
    ),
    law_fault(
        "a draft net without a causal mask",
        engine(drafter=lambda model, raw, request: SeesItsFuture(model)),
        ["LAW-1", "DRAFT-1"],
        "vllm-project/vllm 47745",
        kind="published snippets",
    ),
    law_fault(
        "a drafted token dropped because its own probability is low",
        engine(drafter=lambda model, raw, request: LowOnesDropped(model)),
        ["LAW-1"],
        exact=low_probability_dropped(),
        sees=False,
    ),
)
