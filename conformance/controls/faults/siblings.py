"""Faults of rules over siblings."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from conformance.components import Floats, Ints
from conformance.controls.control import Audit, Control, Exact
from conformance.controls.exact import one_token
from conformance.controls.stages.trees import siblings, width_one
from conformance.controls.stages.verifiers import tree as audited
from specref.chance import Chance
from specref.draft import Draft
from specref.laws import NO_LAW, Law, rational, residual, without
from specref.proof import chosen_siblings
from specref.rules import Verified, rewired
from specref.rules.tree import (
    first_accepted,
    first_certain,
    keep_below,
    recursive_rejection,
    sequential_one_hot,
    target_only,
    traversal,
    tree_of,
    walk,
)
from specref.tree import TokenTree

KIND = "tree"


def fresh_draw_per_sibling(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    """Every sibling is compared with a draw of its own; after none matched, there is another."""

    def first(children: Sequence[int], r: Law, draft: Draft, chance: Chance) -> tuple[int | None, Law]:
        for child in children:
            if chance.picks(r, slot=("accept", child)) == draft.tokens[child]:
                return child, r
        return None, r

    return walk(p, draft, chance, first)


def coin_of_the_first_sibling(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    """All siblings are tried with the number of the first, as under target-only sampling, but by the sequential rule."""

    def first(children: Sequence[int], r: Law, draft: Draft, chance: Chance) -> tuple[int | None, Law]:
        if not children:
            return None, r
        shares: list[Any] = []
        rest, u_below = r, 0
        for child in children:  # u < r(x) / total: with one u only what rises above the earlier bounds is new
            bound = rest[draft.tokens[child]] / rest.sum() if rest.any() else 0
            shares.append(max(bound - u_below, 0))
            u_below = max(bound, u_below)
            rest = without(rest, draft.tokens[child])
        taken = chance.picks([*shares, 1 - u_below if rest.any() else 0], slot=("accept", children[0]))
        return (children[taken], r) if taken < len(children) else (None, rest)

    return walk(p, draft, chance, first)


def independent_tests(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    """Every sibling is tried by p/q against the target's whole law; after none passed, the residual of the last."""

    def first(children: Sequence[int], r: Law, draft: Draft, chance: Chance) -> tuple[int | None, Law]:
        left = r
        for child in children:
            x, q = draft.tokens[child], draft.laws[child]
            if chance.accepts(r[x], q[x], slot=("accept", child)):
                return child, r
            left = residual(r, q) if (r > q).any() else r
        return None, left

    return walk(p, draft, chance, first)


def one_raw_law(p: Floats, q: Floats | None, tokens: Ints, parents: Ints) -> tuple[Floats, Floats | None, Ints, Ints]:
    """The eldest sibling's law is handed over for all, though the others were drawn without replacement."""
    assert q is not None
    raw, shape = q.copy(), parents[0].tolist()
    for node, parent in enumerate(shape[1:], start=1):
        raw[:, node] = q[:, shape.index(parent)]
    return p, raw, tokens, parents


def zeroed_only(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    """Elder siblings are taken out of a sibling's law, which is not renormalised."""
    tree, told = tree_of(draft), list(draft.laws)
    for parent in range(len(tree)):
        children = tree.children(parent)
        for place, child in enumerate(children):
            told[child] = draft.laws[children[0]]
            for elder in children[:place]:
                told[child] = without(told[child], tree.tokens[elder])
    return recursive_rejection(p, Draft(draft.tokens, told, tree), chance)


CHILD_ONE = chosen_siblings([1])
FIFTHS = rational([5, 3, 2])
ON_FIFTHS = "p = (.5, .3, .2), child 1"


def drawn_siblings(q: Law, count: int, *, raw: bool) -> object:
    """A way to draw: `count` siblings from q without replacement; `raw`: q itself handed over for each."""

    def draw(chance: Chance) -> Draft:
        draft = Draft.drawn_tree(lambda _: q, 0, [-1] + [0] * count, chance, replacement=False)
        return Draft.claimed(draft.tokens, [NO_LAW] + [q] * (len(draft.tokens) - 1), draft.tree) if raw else draft

    return draw


def top_as_if_drawn(chance: Chance) -> Draft:
    """The likeliest two tokens of q = (4, 3, 3)/10, as if drawn from it."""
    tree, q = TokenTree([0, 0, 1], [-1, 0, 0]), rational([4, 3, 3])
    return Draft.claimed(tree.tokens, [NO_LAW, q, q], tree)


NOT_ZEROED = rewired(sequential_one_hot, first_certain=rewired(first_certain, without=lambda law, token: law))
NO_RESIDUAL = rewired(recursive_rejection, first_accepted=rewired(first_accepted, residual=lambda r, q: r))
UP_WITHOUT_RESIDUAL = rewired(traversal, keep_below=rewired(keep_below, positive_part=lambda rest: abs(rest)))
UNREFUSED = rewired(target_only, require_distinct_siblings=lambda tree: None)
RAW = one_token(
    recursive_rejection,
    drawn_siblings(rational([6, 1, 32, 41]), 3, raw=True),  # type: ignore[arg-type]
    shown=rational([9, 34, 0, 0]),
    wanted=rational([9, 34, 0, 0]),
    on="p = (9, 34, 0, 0)/43, q = (6, 1, 32, 41)/80, three siblings",
    kept=False,
)


def fault(
    id: str, declared: str, audit: Audit, requirements: Sequence[str], *reports: str, exact: Exact | None = None
) -> Control:
    """A fault of a rule over siblings."""
    return Control(id, KIND, declared, tuple(requirements), audit, reports, exact, acceptance_sees=False)


def repeated_siblings(rng: np.random.Generator) -> TokenTree:
    """Two siblings drawn with replacement."""
    one, other = rng.integers(4, size=2)
    return TokenTree([7, int(one), int(other)], [-1, 0, 0])


RULES = (
    fault(
        "rejected sibling not zeroed",
        "one_hot",
        audited("one_hot", NOT_ZEROED),
        ["LAW-3", "LAW-4"],
        "SafeAILab/EAGLE 93",
        exact=one_token(NOT_ZEROED, chosen_siblings([1, 0]), on="p as above, siblings (1, 0) chosen", kept=False),
    ),
    fault(
        "a fresh draw per sibling",
        "one_hot",
        audited("one_hot", fresh_draw_per_sibling),
        ["LAW-3", "LAW-4"],
        "foundation-model-stack/fms-extras 12",
        exact=one_token(fresh_draw_per_sibling, chosen_siblings([1, 0]), on="p as above, siblings (1, 0) chosen", kept=False),
    ),
    fault(
        "an independent draw from the nucleus for every branch",
        "one_hot",
        audited("one_hot", fresh_draw_per_sibling),
        ["LAW-3"],
        "foundation-model-stack/fms-extras 12",
        exact=one_token(
            fresh_draw_per_sibling,
            chosen_siblings([0]),
            shown=rational([7, 3]),
            wanted=rational([7, 3]),
            on="p = (.63, .27, .10) cut to its nucleus (.7, .3), one branch",
            kept=False,
        ),
    ),
    fault(
        "one coin for all siblings of the sequential rule",
        "one_hot",
        audited("one_hot", coin_of_the_first_sibling, n=262_144),
        ["LAW-3"],
        exact=one_token(
            coin_of_the_first_sibling, chosen_siblings([1, 0]), on="p as above, siblings (1, 0) chosen", kept=False
        ),
    ),
    fault(
        "deterministic siblings tested independently with p/q",
        "without_replacement",
        audited("without_replacement", independent_tests),
        ["LAW-3", "LAW-4"],
        exact=one_token(
            recursive_rejection,
            top_as_if_drawn,
            shown=rational([443, 300, 257]),
            wanted=rational([443, 300, 257]),
            on="p = (.443, .300, .257), the top 2 of q = (.4, .3, .3)",
            kept=False,
        ),
    ),
    fault(
        "without-replacement siblings, one raw q handed over for all",
        "without_replacement",
        audited("without_replacement", given=one_raw_law),
        ["LAW-3", "LAW-4"],
        "SafeAILab/EAGLE 74",
        exact=RAW,
    ),
    fault(
        "without-replacement siblings, elder ones zeroed but the law not renormalised",
        "without_replacement",
        audited("without_replacement", zeroed_only),
        ["LAW-3", "LAW-4"],
        "SafeAILab/EAGLE 74",
        exact=one_token(
            zeroed_only,
            drawn_siblings(rational([1, 1, 4, 4]), 3, raw=False),  # type: ignore[arg-type]
            shown=rational([1, 3, 0, 0]),
            wanted=rational([1, 3, 0, 0]),
            on="p = (1, 3, 0, 0)/4, q = (1, 1, 4, 4)/10, three siblings",
            kept=False,
        ),
    ),
    fault(
        "no residual between siblings",
        "without_replacement",
        audited("without_replacement", NO_RESIDUAL),
        ["LAW-3", "LAW-4"],
    ),
    fault("traversal without its residual", "traversal", audited("traversal", UP_WITHOUT_RESIDUAL), ["LAW-3"]),
    fault(
        "target-only sampling with tau_acc = .5",
        "target_only",
        audited("target_only", partial(target_only, tau_acc=0.5)),
        ["LAW-3"],
        "sgl-project/sglang 7702",
        exact=one_token(
            partial(target_only, tau_acc=Fraction(1, 2)), CHILD_ONE, shown=FIFTHS, wanted=FIFTHS, on=ON_FIFTHS, kept=False
        ),
    ),
    fault(
        "target-only sampling with tau_single = .3",
        "target_only",
        audited("target_only", partial(target_only, tau_single=0.3)),
        ["LAW-3"],
        "sgl-project/sglang 8068",
        exact=one_token(
            partial(target_only, tau_single=Fraction(3, 10)), CHILD_ONE, shown=FIFTHS, wanted=FIFTHS, on=ON_FIFTHS, kept=False
        ),
    ),
    fault(
        "duplicate siblings in target-only sampling",
        "target_only",
        siblings(repeated_siblings, "target_only"),
        ["TREE-3"],
        exact=one_token(
            UNREFUSED, chosen_siblings([1, 1]), shown=FIFTHS, wanted=FIFTHS, on="p = (.5, .3, .2), children (1, 1)", kept=False
        ),
    ),
    fault(
        "a tree's verification drops the last draft",
        "without_replacement",
        width_one(lambda p, draft, chance: shorter(recursive_rejection(p, draft, chance), draft)),
        ["TREE-6"],
        "NVIDIA/TensorRT-LLM 15842",
    ),
)


def shorter(verified: Verified, draft: Draft) -> Verified:
    """The last drafted token is emitted, but not counted as accepted."""
    if verified.accepted < max(tree_of(draft).depths):
        return verified
    return Verified(verified.accepted - 1, draft.tokens[verified.path[-1]], verified.path[:-1])


FAULTS = RULES
