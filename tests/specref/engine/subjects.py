"""What the engine is driven with: a target and a small model, ways to speculate, requests, and what they must come to."""

from __future__ import annotations

from functools import cache, partial

import numpy as np

from specref.chance import Chance, SampledChance
from specref.draft import Draft
from specref.drafters.prompt_lookup import PromptLookup
from specref.engine import PLAIN, CachedTableModel, Grammar, Speculation, by_drafter
from specref.engine.grammar import Constrained
from specref.engine.speculation import DraftModel
from specref.generate import GreedyDrafter, NoDrafter, generate
from specref.models import TableModel, Tokens
from specref.processors import Processed, SamplingSettings
from specref.rules import block, chain, tree
from specref.tree import TokenTree

VOCABULARY = 4
EOS = 3
TABLE = TableModel(VOCABULARY, "target", exact=False)
SMALL_TABLE = TableModel(VOCABULARY, "small", "near", target=TABLE, exact=False)
TARGET, SMALL = CachedTableModel(TABLE), CachedTableModel(SMALL_TABLE)
WORDS = Grammar.over_bytes('start: ("a" ("b" | "c") | "b" "a")+', [b"a", b"b", b"c", b""], EOS)
"""After a the text goes on with b or c, after b with a; after an even number of tokens it may end."""
SHAPE = (-1, 0, 0, 1, 1, 2)  # two siblings, the first with two children and the second with one


class BestTokens:
    """A chosen tree: the small model's two best tokens, and its best after each."""

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        paths: list[Tokens] = []
        if k >= 1:
            best = np.argsort(-SMALL_TABLE.next_law(context), kind="stable")[:2]
            paths = [(int(token),) for token in best]
        if k >= 2:
            paths = [(*path, int(SMALL_TABLE.next_law(context + path).argmax())) for path in paths]
        drafted = TokenTree.from_paths(context[-1], paths)
        return Draft.chosen(drafted.tokens, drafted)


def speculations(draft_model: type[DraftModel] = DraftModel) -> dict[str, Speculation]:
    """Every kind: drawn and chosen drafts, chains and trees, matched rules."""
    drawn = partial(draft_model, SMALL)
    tree_drawn = partial(draft_model, SMALL, shape=SHAPE)
    tree_drawn_twice = partial(draft_model, SMALL, shape=SHAPE, replacement=True)
    lookup = by_drafter(PromptLookup(longest=2))
    chosen_tree = by_drafter(BestTokens())
    return {
        "plain": PLAIN,
        "token matching, drawn": Speculation(chain.token_matching, drawn, k=3),
        "token matching, lookup": Speculation(chain.token_matching, lookup, k=3),
        "ratio": Speculation(chain.ratio, drawn, k=3),
        "block": Speculation(block.block, drawn, k=3),
        "one-hot ratio, lookup": Speculation(chain.one_hot_ratio, lookup, k=3),
        "one-hot ratio, greedy draft": Speculation(chain.one_hot_ratio, by_drafter(GreedyDrafter(SMALL_TABLE)), k=2),
        "recursive rejection": Speculation(tree.recursive_rejection, tree_drawn, k=2, nodes=5),
        "recursive rejection, replacement": Speculation(tree.recursive_rejection, tree_drawn_twice, k=2, nodes=5),
        "traversal": Speculation(tree.traversal, tree_drawn, k=2, nodes=5),
        "sequential one-hot": Speculation(tree.sequential_one_hot, chosen_tree, k=2, nodes=4),
        "greedy, drawn": Speculation(chain.greedy, drawn, k=3),
        "greedy tree": Speculation(tree.greedy, chosen_tree, k=2, nodes=4),
    }


SPECULATIONS = speculations()
GREEDY = ("greedy, drawn", "greedy tree")
"""Rules for temperature 0 alone."""


def processed(table: TableModel, prompt: Tokens, settings: SamplingSettings, grammar: Grammar | None) -> Processed:
    mask = () if grammar is None else (Constrained(grammar),)
    return Processed(table, (*mask, *settings.processors()), len(prompt))


@cache
def plain_output(prompt: Tokens, settings: SamplingSettings, greedy: bool, grammar: Grammar | None = None) -> Tokens:
    """What the target alone writes, without an engine and without speculation."""
    assert settings.seed is not None
    model, rule = processed(TABLE, prompt, settings, grammar), chain.greedy if greedy else chain.token_matching
    chance = SampledChance(settings.seed)
    return generate(model, NoDrafter(), rule, prompt, k=1, stops=settings.stops(), chance=chance).tokens
