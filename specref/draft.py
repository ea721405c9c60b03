"""Drafts: proposed tokens, and what is known about how they were found.

The ratio rule is lossless only if `laws[i]` really **is** the law that `tokens[i]` was drawn from, after every processor. Three
waves of public bugs come from leaving that unsaid, so a draft can only be made in a way that says it:

* `Draft.drawn`, `Draft.drawn_tree`: drawn here, from these laws. True by construction.
* `Draft.chosen`: found without drawing (n-gram match, argmax). There are no laws, and rules that need them refuse.
* `Draft.claimed`: laws as somebody else states them (an engine under audit, a log, a planted fault). May be untrue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specref.chance import Chance
from specref.laws import NO_LAW, BadLaw, Law, checked, norm, total, without
from specref.tree import TokenTree

NextLaw = Callable[[tuple[int, ...]], Law]


class Draft:
    """k drafted tokens; for a tree, one per node, the root (node 0) included. Use the named constructors."""

    def __init__(self, tokens: Sequence[int], laws: Sequence[Law] | None, tree: TokenTree | None) -> None:
        self.tokens = tuple(int(token) for token in tokens)
        self.tree = tree
        self._laws = None if laws is None else tuple(laws)

    @property
    def laws(self) -> tuple[Law, ...]:
        """`[k, V]`: laws[i] is the law that tokens[i] came from; in a tree laws[0] is NO_LAW. Raises BadLaw if chosen.

        A draft without tokens needs none: it is a normal draft under every rule.

        >>> Draft.chosen(()).laws
        ()
        """
        if not self.tokens:
            return ()
        if self._laws is None:
            raise BadLaw(
                "these drafted tokens were chosen, not drawn, so they have no laws; "
                "verify them with one_hot_ratio, token_matching or greedy"
            )
        return self._laws

    @property
    def has_laws(self) -> bool:
        """Whether the laws that the tokens came from are known."""
        return self._laws is not None

    @classmethod
    def chosen(cls, tokens: Sequence[int], tree: TokenTree | None = None) -> Draft:
        """Tokens found without drawing; an empty sequence is a normal draft (nothing matched, or no room).

        >>> Draft.chosen([3, 1]).tokens
        (3, 1)
        """
        return cls(tokens, None, tree)

    @classmethod
    def claimed(cls, tokens: Sequence[int], laws: Sequence[Law], tree: TokenTree | None = None) -> Draft:
        """Tokens and the laws `[k, V]` that somebody says they came from; each law is checked to be one.

        >>> from specref.laws import rational
        >>> Draft.claimed([0], [rational([1, 1])]).laws[0]
        array([Fraction(1, 2), Fraction(1, 2)], dtype=object)

        Raises ValueError for a wrong number of laws or a token outside its law, BadLaw for something that is not a law.
        """
        if len(tokens) != len(laws):
            raise ValueError(f"one law per drafted token: got {len(tokens)} tokens and {len(laws)} laws")
        first = 1 if tree else 0
        stated = [NO_LAW] * first
        for i in range(first, len(tokens)):
            law = checked(laws[i], f"the law of drafted token {i}")
            if not 0 <= tokens[i] < len(law):
                raise ValueError(f"drafted token {i} is {tokens[i]}, outside the vocabulary of {len(law)}")
            stated.append(law)
        return cls(tokens, stated, tree)

    @classmethod
    def drawn(cls, next_law: NextLaw, k: int, chance: Chance, stop: Callable[[int, Law], bool] | None = None) -> Draft:
        """A chain of up to k tokens, each drawn from `next_law(tokens drafted so far)`.

        `stop(token, law)` may end the draft, and is asked *after* the token was kept: ending a draft by its last token's
        probability is lossless, dropping that token would not be (TV up to .1).

        >>> from specref.chance import SampledChance
        >>> from specref.laws import rational
        >>> draft = Draft.drawn(lambda so_far: rational([0, 1, 0]), k=3, chance=SampledChance(0), stop=lambda x, q: q[x] == 1)
        >>> draft.tokens
        (1,)

        Raises ValueError for a negative k.
        """
        if k < 0:
            raise ValueError(f"k is {k}; a draft has 0 tokens or more")
        tokens: list[int] = []
        laws: list[Law] = []
        for i in range(k):
            law = next_law(tuple(tokens))
            tokens.append(chance.picks(law, slot=("draft", i)))
            laws.append(law)
            if stop is not None and stop(tokens[-1], law):
                break
        return cls(tokens, laws, None)

    @classmethod
    def drawn_tree(cls, next_law: NextLaw, root: int, parents: Sequence[int], chance: Chance, *, replacement: bool) -> Draft:
        """A tree shaped like `parents [N]` below the committed token `root`, each node drawn from its parent's next law.

        With `replacement` siblings are drawn independently from one law. Without, each sibling is drawn from the law that its
        elder siblings left, renormalised, and laws[n] is that smaller law; a sibling for which nothing is left is not drawn,
        nor is anything below it, so the tree may come out smaller than its shape.

        >>> from specref.chance import SampledChance
        >>> from specref.laws import rational
        >>> shape = [-1, 0, 0, 0]
        >>> two = Draft.drawn_tree(lambda path: rational([1, 0, 3]), 7, shape, SampledChance(0), replacement=False)
        >>> sorted(two.tokens[1:]), two.laws[2]              # three siblings asked for, but only two tokens have weight
        ([0, 2], array([Fraction(1, 1), Fraction(0, 1), Fraction(0, 1)], dtype=object))
        """
        shape = TokenTree([root] * len(parents), parents)
        tokens, laws, kept_parents = [root], [NO_LAW], [-1]
        kept_as = {0: 0}  # node of the wanted shape -> node of the drawn tree
        spelled: dict[int, tuple[int, ...]] = {0: ()}
        law_left: dict[int, Law] = {}  # for each parent, what its next child is drawn from
        for node in range(1, len(shape)):
            parent = shape.parents[node]
            if parent not in kept_as:
                continue
            law = law_left[parent] if parent in law_left else next_law(spelled[parent])
            if not total(law) > 0:
                continue
            law = norm(law)
            token = chance.picks(law, slot=("draft", node))
            kept_as[node], spelled[node] = len(tokens), (*spelled[parent], token)
            tokens.append(token)
            laws.append(law)
            kept_parents.append(kept_as[parent])
            law_left[parent] = law if replacement else without(law, token)
        return cls(tokens, laws, TokenTree(tokens, kept_parents))
