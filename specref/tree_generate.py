"""Generation with trees: the rounds of `specref.generate`, where a draft is a tree and one pass answers at all its nodes.

chance.begin_round(start)
draft  = drafter.draft(context, room, chance)          # a tree below the last token of the context, `room` deep at most
p      = laws_at_nodes(target, context, draft.tree)    # [N, V], one pass if the target can
result = rule(p, draft, chance)                        # the accepted path and the token after it
"""

from __future__ import annotations

from collections.abc import Sequence

from specref.chance import Chance
from specref.draft import Draft
from specref.generate import Drafter, Generation, in_rounds
from specref.laws import Law, checked
from specref.models import LanguageModel, Tokens
from specref.rules import Rule
from specref.rules.tree import tree_of
from specref.stopping import Stops
from specref.tree import TokenTree


def laws_at_nodes(target: LanguageModel, context: Tokens, tree: TokenTree) -> list[Law]:
    """The target's laws `[N, V]` after each node of `tree`, each checked to be one: in one pass by the target's own `tree_laws`
    if it has that method (`TreeTarget`), else path by path. Raises BadLaw.

    >>> from specref.models import TableModel
    >>> target, tree = TableModel(3, seed=1), TokenTree([2, 1, 0], parents=[-1, 0, 0])
    >>> bool((laws_at_nodes(target, (2,), tree)[1] == target.next_law((2, 1))).all())
    True
    """
    if hasattr(target, "tree_laws"):
        rows: Sequence[Law] = target.tree_laws(context, tree)
    else:
        rows = [target.next_law(context + tree.spells(node)) for node in range(len(tree))]
    return [checked(row, f"the target's law after node {node}") for node, row in enumerate(rows)]


def tree_round(
    context: Tokens, target: LanguageModel, drafter: Drafter, rule: Rule, depth: int, chance: Chance
) -> tuple[Draft, int, Tokens]:
    """One round after `context` without stops: the draft, how many tokens were accepted, and the tokens to emit.

    Raises ValueError for a tree deeper than `depth`.

    >>> from specref.chance import SampledChance
    >>> from specref.models import TableModel
    >>> from specref.rules.tree import greedy
    >>> target = TableModel(3, seed=1)
    >>> class Likeliest:
    ...     def draft(self, context, k, chance):
    ...         tree = TokenTree([context[-1], int(target.next_law(context).argmax())], parents=[-1, 0])
    ...         return Draft.chosen(tree.tokens, tree)
    >>> tree_round((2,), target, Likeliest(), greedy, 1, SampledChance(0))[1]
    1
    """
    draft = drafter.draft(context, depth, chance)
    tree = tree_of(draft)
    if max(tree.depths) > depth:
        raise ValueError(f"the drafter proposed a tree {max(tree.depths)} deep where at most {depth} was asked for")
    verified = rule(laws_at_nodes(target, context, tree), draft, chance)
    return draft, verified.accepted, (*(tree.tokens[node] for node in verified.path), verified.next_token)


def generate_with_trees(
    target: LanguageModel, drafter: Drafter, rule: Rule, prompt: Sequence[int], *, depth: int, stops: Stops, chance: Chance
) -> Generation:
    """The tokens after `prompt` until `stops` end them, from trees at most `depth` deep. As `specref.generate.generate`.

    >>> from specref.chance import SampledChance
    >>> from specref.models import TableModel
    >>> from specref.rules.tree import sequential_one_hot
    >>> target, small = TableModel(5, seed=1), TableModel(5, seed=2)
    >>> class TwoGuesses:
    ...     def draft(self, context, k, chance):
    ...         tokens = (context[-1], *small.next_law(context).argsort()[-2:]) if k else context[-1:]
    ...         tree = TokenTree(tokens, [-1, 0, 0][: len(tokens)])
    ...         return Draft.chosen(tree.tokens, tree)
    >>> settings = dict(depth=1, stops=Stops(6), chance=SampledChance(0))
    >>> out = generate_with_trees(target, TwoGuesses(), sequential_one_hot, (0,), **settings)
    >>> len(out.tokens), sum(len(round.emitted) for round in out.rounds)
    (6, 6)

    Raises ValueError for a depth below 1, an empty prompt (a tree needs a root) or a prompt token outside the vocabulary;
    BadLaw if the target gives no law.
    """
    if depth < 1:
        raise ValueError(f"depth is {depth}; a tree is 1 token deep or more")
    if not len(prompt):
        raise ValueError("the prompt is empty; the root of the first tree is its last token, so start it with a BOS token")

    def one_round(context: Tokens, room: int) -> tuple[Tokens, int, Tokens]:
        draft, accepted, emitted = tree_round(context, target, drafter, rule, min(depth, room), chance)
        return draft.tokens[1:], accepted, emitted

    return in_rounds(one_round, rule, prompt, target.vocabulary, stops, chance)
