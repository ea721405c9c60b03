"""Faults that greedy decoding shows: in low precision by pairs of prompts, in windows beside single rows, by other drafters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from conformance.checks.greedy import Arm, drafter_swap_finding, paired_greedy_finding, row_variance_finding
from conformance.components import Floats, Logits
from conformance.controls.control import SHARE, Audit, Control, Look, look_sizes
from conformance.controls.stages.drafts import LENGTH, V, greedily
from conformance.protocols import Tokens
from conformance.scoring import TableScorer
from conformance.statistics.greedy import Margin
from specref.chance import Chance
from specref.draft import Draft
from specref.generate import Drafter, GreedyDrafter, NoDrafter
from specref.laws import Law
from specref.models import TableModel
from specref.rules import Rule, Verified
from specref.rules.chain import greedy

EXACT = Margin(0.0, "float64", 10_000)


def prompts(seed: int, n: int) -> list[Tokens]:
    """n prompts of four tokens."""
    rng = np.random.default_rng([seed, 20])
    return [tuple(row) for row in rng.integers(V, size=(n, 4)).tolist()]


def in_pairs(wrong: float) -> Audit:
    """The audit of bfloat16-like decoding: noise of .05 on every logit in both arms, and with speculation on wrong tokens."""

    def looks(seed: int, n: int) -> Iterator[Look]:
        target, rng = TableModel(V, f"pairs {seed}", memory=2, exact=False), np.random.default_rng([seed, 21])

        def arm(asked: Sequence[Tokens], rate: float) -> Arm:
            outputs = []
            for prompt in asked:
                output: Tokens = ()
                for _ in range(LENGTH):
                    noisy = np.log(target.next_law(prompt + output)) + 0.05 * rng.standard_normal(V)
                    output += (int(rng.integers(V)) if rng.random() < rate else int(noisy.argmax()),)
                outputs.append(output)
            return Arm(outputs, TableScorer(target).logits(list(zip(asked, outputs))))

        for size in look_sizes(n, 64):
            asked = prompts(seed, size)
            yield size, [paired_greedy_finding("a control", arm(asked, wrong), arm(asked, 0.0), n, alpha=SHARE / 4)]

    return Audit("paired prompts", "prompts", 1_024, looks)


Read = Callable[[TableModel, Tokens, Tokens], list[Law]]
"""Reads a window: the rows after a context and 0..k drafted tokens."""


def in_a_window(read: Read) -> Audit:
    """The audit of rows of logits read in a window, beside the same rows alone."""

    def looks(seed: int, n: int) -> Iterator[Look]:
        target, together, alone = TableModel(V, f"window {seed}", exact=False), list[Floats](), list[Floats]()
        for context in prompts(seed, n):
            drafted = tuple(np.random.default_rng(context).integers(V, size=3).tolist())
            together += [np.log(law) for law in read(target, context, drafted)]
            alone += [np.log(target.next_law(context + drafted[:i])) for i in range(4)]
        rows = Logits(np.array(together), np.array(alone))
        yield n, [row_variance_finding("a control", rows, EXACT, 1)]

    return Audit("window", "windows", 16, looks)


def off_by_one(target: TableModel, context: Tokens, drafted: Tokens) -> list[Law]:
    """Row i is that of the position before."""
    rows = target.next_laws(context, drafted)
    return [rows[0], *rows[:-1]]


def last_draft_unseen(target: TableModel, context: Tokens, drafted: Tokens) -> list[Law]:
    """The last row does not see the draft before it."""
    rows = target.next_laws(context, drafted)
    return [*rows[:-1], target.next_law(context + drafted[:-2] + drafted[-1:])]


def by_other_drafters(rule: Rule) -> Audit:
    """The audit of a rule at temperature 0: the same prompts with no drafts, a model's best tokens, and a token repeated."""

    def looks(seed: int, n: int) -> Iterator[Look]:
        target, draft = TableModel(V, f"swap {seed}", exact=False), TableModel(V, f"other {seed}", exact=False)
        asked = prompts(seed, n)
        drafters: dict[str, Drafter] = {"none": NoDrafter(), "a model": GreedyDrafter(draft), "itself": GreedyDrafter(target)}
        outputs = {
            name: [greedily(target, drafter, rule, prompt).tokens for prompt in asked] for name, drafter in drafters.items()
        }
        logits = TableScorer(target).logits(list(zip(asked, outputs["none"])))
        yield n, [drafter_swap_finding("a control", outputs, logits, EXACT, 1)]

    return Audit("drafters", "prompts", 16, looks)


def first_unverified(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    """The first draft passes."""
    if not draft.tokens:
        return greedy(p, draft, chance)
    rest = greedy(p[1:], Draft.chosen(draft.tokens[1:]), chance)
    return Verified(1 + rest.accepted, rest.next_token)


def bonus_of_the_row_before(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    """After full acceptance the bonus is the best token of the row before."""
    verified, k = greedy(p, draft, chance), len(draft.tokens)
    return Verified(k, int(p[k - 1].argmax())) if k and verified.accepted == k else verified


def fault(id: str, kind: str, replaces: str, requirement: str, audit: Audit, *reports: str, sees: bool = False) -> Control:
    """A fault that greedy decoding shows."""
    return Control(id, kind, replaces, (requirement,), audit, reports, None, sees)


FAULTS = (
    fault(
        "one token in ten wrong, in low precision",
        "numerics",
        "target",
        "GREEDY-2",
        in_pairs(0.1),
        "vllm-project/vllm 40831",
    ),
    fault("a window's rows off by one", "sampler", "target", "GREEDY-3", in_a_window(off_by_one), "vllm-project/vllm 14137"),
    fault("a window's last row does not see the draft before it", "tree", "target", "GREEDY-3", in_a_window(last_draft_unseen)),
    fault(
        "first draft unverified, at temperature 0",
        "sampler",
        "greedy",
        "GREEDY-4",
        by_other_drafters(first_unverified),
        "ohdearquant/lattice 243",
        sees=True,
    ),
    fault(
        "the bonus of the row before, at temperature 0",
        "sampler",
        "greedy",
        "GREEDY-4",
        by_other_drafters(bonus_of_the_row_before),
    ),
)
