"""Random small models to prove rules on, each an `Instance`: a target, a draft model and the shape of the draft.

The families go through vocabularies of 2 to 4 tokens, drafts of 1 to 3 tokens or trees of up to 7 nodes, and every kind of row:
full support, zeros, ties, certain tokens, p = q, q near p, q far from p, disjoint supports, and a mixture by context.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from specref.laws import Law, rational
from specref.models import Kind, LanguageModel, TableModel, Tokens
from specref.tree import TokenTree

TARGET_KINDS: tuple[Kind, ...] = ("mixed", "plain", "zeros", "ties", "one_hot")
DRAFT_KINDS: tuple[Kind, ...] = ("mixed", "same", "near", "far", "disjoint", "plain", "zeros", "ties", "one_hot")

TREES: dict[str, tuple[int, ...]] = {
    "two siblings": (-1, 0, 0),
    "three siblings": (-1, 0, 0, 0),
    "two by two": (-1, 0, 0, 1, 1),
    "uneven": (-1, 0, 0, 1, 1, 2),
    "chain": (-1, 0, 1, 2),
    "wide, then deep": (-1, 0, 0, 0, 1, 4),
    "binary, 7 nodes": (-1, 0, 0, 1, 1, 2, 2),
    "cat, dog, bird": (-1, 0, 0, 0, 1, 1, 2),
}
"""Shapes to draft trees in, as parents `[N]`."""


Rows = dict[Tokens, tuple[int, ...]]


class RowsModel:
    """A model written out: for each context the integer weights `[V]` of its law; uniform where nothing is written.

    >>> RowsModel(2, {(): (1, 3)}).next_law(())
    array([Fraction(1, 4), Fraction(3, 4)], dtype=object)
    """

    def __init__(self, vocabulary: int, rows: Mapping[Tokens, tuple[int, ...]]) -> None:
        self._vocabulary = vocabulary
        self.rows: Rows = dict(rows)
        self.asked: set[Tokens] = set()

    @property
    def vocabulary(self) -> int:
        """V, the number of token ids."""
        return self._vocabulary

    def next_law(self, context: Tokens) -> Law:
        """The law `[V]` of the token that follows `context`."""
        self.asked.add(context)
        return rational(self.rows.get(context, (1,) * self.vocabulary))

    def next_laws(self, context: Tokens, drafted: Tokens) -> list[Law]:
        """The laws `[k+1, V]` after the context and 0..k of the `drafted` tokens."""
        return [self.next_law(context + drafted[:i]) for i in range(len(drafted) + 1)]


@dataclass(frozen=True)
class Instance:
    """A target to be followed, a model to draft from, and the draft's shape (parents; a chain of k is (-1, 0, .., k-1))."""

    target: LanguageModel
    drafter: LanguageModel
    shape: tuple[int, ...]
    seed: str

    @property
    def k(self) -> int:
        """Number of drafted tokens."""
        return len(self.shape) - 1

    @property
    def depth(self) -> int:
        """The most drafted tokens that a round can keep."""
        return max(TokenTree([0] * len(self.shape), self.shape).depths)


def chain_shape(k: int) -> tuple[int, ...]:
    """The parents of a chain of k drafted tokens.

    >>> chain_shape(3)
    (-1, 0, 1, 2)
    """
    return tuple(range(-1, k))


def random_models(
    seed: int | str, vocabulary: int, family: int, memory: int | None = 1, exact: bool = True
) -> tuple[TableModel, TableModel]:
    """A target and a draft model of a random kind each; `family` counts through the kinds of both.

    >>> target, drafter = random_models(seed=0, vocabulary=3, family=2)
    >>> target.kind, drafter.kind
    ('zeros', 'near')
    """
    target_kind = TARGET_KINDS[family % len(TARGET_KINDS)]
    draft_kind = DRAFT_KINDS[family % len(DRAFT_KINDS)]
    target = TableModel(vocabulary, f"target {seed}", target_kind, memory=memory, exact=exact)
    return target, TableModel(vocabulary, f"draft {seed}", draft_kind, target=target, memory=memory, exact=exact)


def chain_instances(count: int, seed: int | str = 0, memory: int | None = 1) -> Iterator[Instance]:
    """`count` instances with V of 2, 3, 4 and chains of k = 1, 2, 3 in turn; every 9 the next kinds of rows.

    >>> [(instance.target.vocabulary, instance.k) for instance in chain_instances(4)]
    [(2, 1), (3, 1), (4, 1), (2, 2)]
    """
    for i in range(count):
        name = f"{seed}/{i}"
        target, drafter = random_models(name, 2 + i % 3, i // 9, memory)
        yield Instance(target, drafter, chain_shape(1 + i // 3 % 3), name)


def tree_instances(count: int, seed: int | str = 0, memory: int | None = 1) -> Iterator[Instance]:
    """`count` instances over the 8 shapes of TREES in turn, with vocabularies of 3, 2 and 4 (of 3 for the largest trees).

    Every 72 instances go through all kinds of draft rows on each shape, and 3 models of each vocabulary.

    >>> [(instance.target.vocabulary, len(instance.shape)) for instance in tree_instances(4)]
    [(3, 3), (2, 4), (4, 5), (3, 6)]
    """
    shapes = list(TREES.values())
    for i in range(count):
        name, (turn, which) = f"{seed}/{i}", divmod(i, len(shapes))
        shape = shapes[which]
        vocabulary = min((3, 2, 4)[(turn // 3 + which) % 3], 4 if len(shape) < 7 else 3)
        target, drafter = random_models(name, vocabulary, turn + 10 * which, memory)
        yield Instance(target, drafter, shape, name)


EXAMPLE = Instance(
    target=RowsModel(3, dict.fromkeys([(), (0,), (1,), (2,)], (5, 3, 2))),
    drafter=RowsModel(3, {(): (2, 5, 3)}),
    shape=chain_shape(1),
    seed="example",
)
"""One drafted token, p = (.5, .3, .2) and q = (.2, .5, .3) everywhere: what the size of a lossy rule's error is stated on."""
