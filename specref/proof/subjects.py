"""What is to be proven: every rule, with the kind of draft that it is made for.

A rule for chosen drafts is lossless for *any* draft that was made without looking at the round's numbers, so it is proven on
every chain of k tokens (a drawn draft is a mixture of these); a rule for drawn drafts is proven on the law of the draft.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Literal, TypeAlias

from specref.chance import Chance
from specref.draft import Draft
from specref.laws import Law, one_hot
from specref.models import LanguageModel, Tokens
from specref.proof.instances import Instance
from specref.rules import Rule, block, chain, tree, typical
from specref.tree import TokenTree

Draw: TypeAlias = Callable[[Chance], Draft]
Drafting: TypeAlias = Callable[[Instance, Tokens, int], Sequence[Draw]]
"""`drafting(instance, context, room)`: the ways to draft a round after `context`; the rule must be right for each."""


@dataclass(frozen=True)
class Subject:
    """A rule, and how drafts are made for it.

    follows: what the output must follow, made from the target (the target itself, except for greedy).
    """

    name: str
    kind: Literal["chain", "tree"]
    rule: Rule
    drafting: Drafting
    claim: Literal["lossless", "lossy"] = "lossless"
    follows: Callable[[LanguageModel], LanguageModel] = lambda target: target


class PlainGreedy:
    """A model made certain of another's most probable token (the lowest id among equals): what greedy decoding follows.

    >>> from specref.models import TableModel
    >>> TableModel(2, seed=1).next_law(()), PlainGreedy(TableModel(2, seed=1)).next_law(())[0]
    (array([Fraction(9, 16), Fraction(7, 16)], dtype=object), Fraction(1, 1))
    """

    def __init__(self, model: LanguageModel) -> None:
        self.model = model

    @property
    def vocabulary(self) -> int:
        """V, the number of token ids."""
        return self.model.vocabulary

    def next_law(self, context: Tokens) -> Law:
        """The one-hot law `[V]` of the most probable token."""
        law = self.model.next_law(context)
        return one_hot(int(law.argmax()), like=law)

    def next_laws(self, context: Tokens, drafted: Tokens) -> list[Law]:
        """The laws `[k+1, V]` after the context and 0..k of the `drafted` tokens."""
        return [self.next_law(context + drafted[:i]) for i in range(len(drafted) + 1)]


def drawn_chain(instance: Instance, context: Tokens, room: int) -> Sequence[Draw]:
    """k tokens (fewer where less room is left) drawn from the draft model in turn.

    >>> from specref.chance import exact_law
    >>> from specref.proof.instances import EXAMPLE
    >>> [draw] = drawn_chain(EXAMPLE, (), room=4)
    >>> sorted((draft.tokens, str(probability)) for draft, probability in exact_law(draw).items())
    [((0,), '1/5'), ((1,), '1/2'), ((2,), '3/10')]
    """
    next_law = partial(_after, instance.drafter, context)
    return [partial(Draft.drawn, next_law, min(instance.k, room - 1))]


def drawn_until_unlikely(instance: Instance, context: Tokens, room: int) -> Sequence[Draw]:
    """As `drawn_chain`, but the draft ends after a token that was less likely than 1/2: that token is kept (lawful).

    >>> from specref.chance import SampledChance
    >>> from specref.proof.instances import EXAMPLE, Instance
    >>> longer = Instance(EXAMPLE.target, EXAMPLE.drafter, (-1, 0, 1), seed="two")
    >>> [draw] = drawn_until_unlikely(longer, (), room=4)
    >>> {len(draw(SampledChance(seed)).tokens) for seed in range(9)}
    {1, 2}
    """
    next_law = partial(_after, instance.drafter, context)
    return [lambda chance: Draft.drawn(next_law, min(instance.k, room - 1), chance, stop=lambda x, q: 2 * q[x] < 1)]


def every_chain(instance: Instance, context: Tokens, room: int) -> Sequence[Draw]:
    """Every chain of k tokens (fewer where less room is left), chosen.

    >>> from specref.chance import SampledChance
    >>> from specref.proof.instances import EXAMPLE
    >>> [draw(SampledChance(0)).tokens for draw in every_chain(EXAMPLE, (), room=4)]
    [(0,), (1,), (2,)]
    """
    tokens = itertools.product(range(instance.target.vocabulary), repeat=min(instance.k, room - 1))
    return [partial(_the_same, Draft.chosen(chosen)) for chosen in tokens]


def tree_with_replacement(instance: Instance, context: Tokens, room: int) -> Sequence[Draw]:
    """A tree whose siblings are drawn independently from one law.

    >>> from specref.chance import SampledChance
    >>> from specref.proof.instances import EXAMPLE
    >>> [draw] = tree_with_replacement(EXAMPLE, (1,), room=4)
    >>> draw(SampledChance(0)).tree.parents
    (-1, 0)
    """
    next_law = partial(_after, instance.drafter, context)
    return [partial(Draft.drawn_tree, next_law, _root(context), instance.shape, replacement=True)]


def tree_without_replacement(instance: Instance, context: Tokens, room: int) -> Sequence[Draw]:
    """A tree each of whose nodes is drawn from what its elder siblings left.

    >>> from specref.chance import SampledChance
    >>> from specref.proof.instances import EXAMPLE
    >>> [draw] = tree_without_replacement(EXAMPLE, (1,), room=4)
    >>> draw(SampledChance(0)).tree.parents
    (-1, 0)
    """
    next_law = partial(_after, instance.drafter, context)
    return [partial(Draft.drawn_tree, next_law, _root(context), instance.shape, replacement=False)]


def some_trees(instance: Instance, context: Tokens, room: int) -> Sequence[Draw]:
    """Trees of tokens chosen at random, siblings with one token among them.

    >>> from specref.proof.instances import EXAMPLE
    >>> len(some_trees(EXAMPLE, (), room=4))
    24
    """
    return [partial(_the_same, draft) for draft in _chosen_trees(instance, context, distinct=False)]


def some_distinct_trees(instance: Instance, context: Tokens, room: int) -> Sequence[Draw]:
    """Trees of tokens chosen at random, siblings all different; where siblings outnumber the tokens, some are left out.

    >>> from specref.proof.instances import EXAMPLE
    >>> len(some_distinct_trees(EXAMPLE, (), room=4))
    24
    """
    return [partial(_the_same, draft) for draft in _chosen_trees(instance, context, distinct=True)]


def _chosen_trees(instance: Instance, context: Tokens, distinct: bool, count: int = 24) -> Iterator[Draft]:
    rng = random.Random(f"{instance.seed}|{context}|{instance.shape}")
    V = instance.target.vocabulary
    for _ in range(count):
        paths: dict[int, Tokens] = {0: ()}
        for node, parent in enumerate(instance.shape):
            if parent in paths:
                taken = [path[-1] for path in paths.values() if path[:-1] == paths[parent] and path]
                free = [token for token in range(V) if not distinct or token not in taken]
                if free:
                    paths[node] = (*paths[parent], rng.choice(free))
        place = {node: new for new, node in enumerate(paths)}
        parents = [-1, *(place[instance.shape[node]] for node in paths if node)]
        drafted = TokenTree([_root(context), *(path[-1] for path in paths.values() if path)], parents)
        yield Draft.chosen(drafted.tokens, drafted)


def _root(context: Tokens) -> int:
    """The last committed token (any token where there is none yet: no rule looks at it)."""
    return context[-1] if context else 0


def one_of(draws: Sequence[Draw], *key: object) -> Draw:
    """One of the ways to draft, found from `key` alone: what a deterministic drafter does.

    >>> draws = [lambda chance: Draft.chosen([0]), lambda chance: Draft.chosen([1])]
    >>> one_of(draws, "seed", (1, 2)) is one_of(draws, "seed", (1, 2))
    True
    """
    return draws[random.Random(repr(key)).randrange(len(draws))]


def _after(model: LanguageModel, context: Tokens, drafted: Tokens) -> Law:
    return model.next_law(context + drafted)


def _the_same(draft: Draft, chance: Chance) -> Draft:
    return draft


HALF = Fraction(1, 2)

SUBJECTS: tuple[Subject, ...] = (
    Subject("ratio", "chain", chain.ratio, drawn_chain),
    Subject("ratio, draft length decided by the kept token", "chain", chain.ratio, drawn_until_unlikely),
    Subject("token_matching", "chain", chain.token_matching, every_chain),
    Subject("one_hot_ratio", "chain", chain.one_hot_ratio, every_chain),
    Subject("greedy", "chain", chain.greedy, every_chain, follows=PlainGreedy),
    Subject("block", "chain", block.block, drawn_chain),
    Subject("greedy on a tree", "tree", tree.greedy, some_trees, follows=PlainGreedy),
    Subject("sequential_one_hot", "tree", tree.sequential_one_hot, some_trees),
    Subject("target_only", "tree", tree.target_only, some_distinct_trees),
    Subject("recursive_rejection, siblings with replacement", "tree", tree.recursive_rejection, tree_with_replacement),
    Subject("recursive_rejection, siblings without replacement", "tree", tree.recursive_rejection, tree_without_replacement),
    Subject("traversal, siblings with replacement", "tree", tree.traversal, tree_with_replacement),
    Subject("traversal, siblings without replacement", "tree", tree.traversal, tree_without_replacement),
    Subject("typical", "tree", typical.typical, some_trees, claim="lossy"),
    Subject("typical, next token sampled", "tree", partial(typical.typical, sampled=True), some_trees, claim="lossy"),
    Subject("target_only, tau_acc 1/2", "tree", partial(tree.target_only, tau_acc=HALF), some_distinct_trees, claim="lossy"),
    Subject("ensemble, weight 1/2", "chain", partial(typical.ensemble, weight=HALF), drawn_chain, claim="lossy"),
    Subject("lenient, lenience 1/2", "chain", partial(typical.lenient, lenience=HALF), drawn_chain, claim="lossy"),
)
"""Every rule of the reference, in the order in which it is proven."""


def subject(name: str) -> Subject:
    """The subject called `name`. Raises KeyError, naming those there are.

    >>> subject("ratio").kind
    'chain'
    """
    for candidate in SUBJECTS:
        if candidate.name == name:
            return candidate
    raise KeyError(f"nothing to prove is called {name!r}; there are: {', '.join(s.name for s in SUBJECTS)}")
