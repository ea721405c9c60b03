"""Token trees: several continuations drafted at once, sharing what they have in common.

One pass of the target over a flattened tree answers for every node, if each node sees only its ancestors (`ancestor_mask`) and
stands at the position of its depth (`position_ids`), not at that of its place in the flattened order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from specref.laws import NO_LAW, BadLaw, Law, norm, total, without


class BadTree(ValueError):
    """Something given as a token tree is not one."""


class TokenTree:
    """N drafted tokens in a tree. Node 0 is the root: the last committed token, which the target has not read yet.

    tokens `[N]`: the token of each node. parents `[N]`: the node before it; parents[0] is -1 and every other parent precedes
    its child. A chain is the tree of width 1. Raises BadTree.

    >>> words = "the cat dog bird sat ran barked".split()
    >>> tree = TokenTree(tokens=range(7), parents=[-1, 0, 0, 0, 1, 1, 2])
    >>> print(tree.drawing(words.__getitem__))
    the
    ├─ cat
    │  ├─ sat
    │  └─ ran
    ├─ dog
    │  └─ barked
    └─ bird
    >>> tree.children(0), tree.path(5), tree.depths
    ((1, 2, 3), (1, 5), (0, 1, 1, 1, 2, 2, 2))
    """

    def __init__(self, tokens: Sequence[int], parents: Sequence[int]) -> None:
        self.tokens = tuple(int(token) for token in tokens)
        self.parents = tuple(int(parent) for parent in parents)
        if len(self.tokens) != len(self.parents):
            raise BadTree(f"one parent per token: got {len(self.tokens)} tokens and {len(self.parents)} parents")
        if not self.parents or self.parents[0] != -1:
            raise BadTree(f"node 0 is the root, so parents[0] must be -1, got {self.parents[:1]}")
        children: list[list[int]] = [[] for _ in self.tokens]
        for node, parent in enumerate(self.parents[1:], start=1):
            if not 0 <= parent < node:
                raise BadTree(f"the parent of node {node} is {parent}, which does not precede it")
            children[parent].append(node)
        self._children = tuple(map(tuple, children))

    @classmethod
    def chain(cls, root: int, tokens: Sequence[int]) -> TokenTree:
        """The tree of width 1: `tokens [k]` one after the other below `root`.

        >>> TokenTree.chain(7, [1, 2]).parents
        (-1, 0, 1)
        """
        return cls([root, *tokens], range(-1, len(tokens)))

    @classmethod
    def from_paths(cls, root: int, paths: Iterable[Sequence[int]]) -> TokenTree:
        """The tree below `root` that spells every one of `paths`, what they have in common once. Flattened level by level.

        Within a level nodes keep the order of the paths that they first occur in.

        >>> t0, t1a, t1b, t1c, t2a, t2b, t2c, t2d = range(8)
        >>> tree = TokenTree.from_paths(t0, [(t1a, t2a), (t1a, t2b), (t1b, t2c), (t1c, t2d)])
        >>> tree.tokens, tree.parents
        ((0, 1, 2, 3, 4, 5, 6, 7), (-1, 0, 0, 0, 1, 1, 2, 3))
        """
        kept = [tuple(int(token) for token in path) for path in paths]
        node_of: dict[tuple[int, ...], int] = {(): 0}
        parents = [-1]
        for length in range(1, 1 + max(map(len, kept), default=0)):
            for path in kept:
                if len(path) >= length and path[:length] not in node_of:
                    node_of[path[:length]] = len(parents)
                    parents.append(node_of[path[: length - 1]])
        return cls([root, *(path[-1] for path in node_of if path)], parents)

    @classmethod
    def from_ranks(cls, root: int, choices: Iterable[Sequence[int]], candidates: Sequence[Sequence[int]]) -> TokenTree:
        """A tree of ranks, as Medusa's choices: (0, 2) is the third best token of head 1 below the best token of head 0.

        choices: one path of ranks per node, in any order; they are flattened by length, then rank by rank.
        candidates `[heads, top_k]`: each head's tokens, the most probable first. Source: Cai et al. 2401.10774 (Medusa),
        section 2.1.2. Raises BadTree for a choice whose parent is missing or whose rank has no candidate.

        >>> tree = TokenTree.from_ranks(7, choices=[(0,), (0, 0), (1,), (0, 1)], candidates=[[10, 11], [20, 21]])
        >>> tree.tokens, tree.parents
        ((7, 10, 11, 20, 21), (-1, 0, 0, 1, 1))
        """
        node_of: dict[tuple[int, ...], int] = {(): 0}
        tokens, parents = [root], [-1]
        for choice in sorted({tuple(choice) for choice in choices} - {()}, key=lambda ranks: (len(ranks), ranks)):
            head, rank = len(choice) - 1, choice[-1]
            if choice[:-1] not in node_of:
                raise BadTree(f"choice {choice} has no parent: {choice[:-1]} is not among the choices")
            if head >= len(candidates) or not 0 <= rank < len(candidates[head]):
                raise BadTree(f"choice {choice} asks for rank {rank} of head {head}, which has no such candidate")
            node_of[choice] = len(tokens)
            tokens.append(candidates[head][rank])
            parents.append(node_of[choice[:-1]])
        return cls(tokens, parents)

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        return f"TokenTree(tokens={self.tokens}, parents={self.parents})"

    def __str__(self) -> str:
        return self.drawing()

    def drawing(self, name: Callable[[int], object] = str) -> str:
        """The tree as text, one node a line; `name(token)` is what stands for a token.

        >>> print(TokenTree([7, 1, 2], parents=[-1, 0, 1]).drawing())
        7
        └─ 1
           └─ 2
        """
        lines = [str(name(self.tokens[0]))]

        def draw(node: int, indent: str) -> None:
            for child in self.children(node):
                last = child == self.children(node)[-1]
                lines.append(f"{indent}{'└─' if last else '├─'} {name(self.tokens[child])}")
                draw(child, indent + ("   " if last else "│  "))

        draw(0, "")
        return "\n".join(lines)

    def children(self, node: int) -> tuple[int, ...]:
        """The nodes whose parent is `node`, in order."""
        return self._children[node]

    @property
    def leaves(self) -> tuple[int, ...]:
        """The nodes without children, in order.

        >>> TokenTree([7, 1, 2, 3], parents=[-1, 0, 0, 1]).leaves
        (2, 3)
        """
        return tuple(node for node in range(len(self)) if not self._children[node])

    @property
    def depths(self) -> tuple[int, ...]:
        """`[N]`: how many tokens each node is below the root, whose depth is 0."""
        depths = [0]
        for parent in self.parents[1:]:
            depths.append(depths[parent] + 1)
        return tuple(depths)

    def path(self, node: int) -> tuple[int, ...]:
        """The nodes from the root's child down to `node`; empty for the root."""
        nodes: list[int] = []
        while node:
            nodes.append(node)
            node = self.parents[node]
        return tuple(reversed(nodes))

    def spells(self, node: int) -> tuple[int, ...]:
        """The drafted tokens along `path(node)`: what the target has read after the root when it answers at `node`.

        >>> TokenTree([7, 1, 2, 3], parents=[-1, 0, 0, 1]).spells(3)
        (1, 3)
        """
        return tuple(self.tokens[step] for step in self.path(node))

    def position_ids(self, root: int = 0) -> tuple[int, ...]:
        """`[N]`: the position of each node, its depth after the `root`'s position (the number of tokens before the root).

        >>> TokenTree([7, 1, 2, 3], parents=[-1, 0, 0, 1]).position_ids(root=10)
        (10, 11, 11, 12)
        """
        return tuple(root + depth for depth in self.depths)

    def ancestor_mask(self) -> npt.NDArray[np.bool_]:
        """`[N, N]`: whether node i (row) sees node j (column): j is i itself or one of its ancestors.

        >>> print(mask_grid(TokenTree(range(7), parents=[-1, 0, 0, 0, 1, 1, 2]).ancestor_mask()))
        x . . . . . .
        x x . . . . .
        x . x . . . .
        x . . x . . .
        x x . . x . .
        x x . . . x .
        x . x . . . x
        """
        mask = np.eye(len(self), dtype=np.bool_)
        for node, parent in enumerate(self.parents[1:], start=1):
            mask[node] |= mask[parent]
        return mask

    def longest_accepted(self, accepted: Sequence[bool]) -> tuple[int, ...]:
        """The longest path all of whose nodes are `accepted [N]` (the root always is); the first such in the flattened order.

        >>> TokenTree([7, 1, 2, 3], parents=[-1, 0, 0, 1]).longest_accepted([True, False, True, True])
        (2,)
        """
        if len(accepted) != len(self):
            raise BadTree(f"one verdict per node: got {len(accepted)} for {len(self)} nodes")
        length = [0] * len(self)  # of the accepted path that ends at a node; -1 where it is broken
        for node, parent in enumerate(self.parents[1:], start=1):
            length[node] = length[parent] + 1 if accepted[node] and length[parent] >= 0 else -1
        return self.path(length.index(max(length)))

    def reordered(self, order: Sequence[int]) -> TokenTree:
        """The same tree flattened in another order: node i of the new one is node order[i] of this one. Raises BadTree.

        >>> TokenTree([7, 1, 2, 3], parents=[-1, 0, 0, 1]).reordered([0, 1, 3, 2])
        TokenTree(tokens=(7, 1, 3, 2), parents=(-1, 0, 1, 0))
        """
        if sorted(order) != list(range(len(self))) or order[0] != 0:
            raise BadTree(f"an order names each of the {len(self)} nodes once, the root first; got {tuple(order)}")
        place = {node: new for new, node in enumerate(order)}
        return TokenTree([self.tokens[node] for node in order], [-1, *(place[self.parents[node]] for node in order[1:])])


def mask_grid(mask: npt.ArrayLike) -> str:
    """A mask `[rows, columns]` as text: x where a row sees a column.

    >>> print(mask_grid([[True, False], [True, True]]))
    x .
    x x
    """
    return "\n".join(" ".join("x" if seen else "." for seen in row) for row in np.asarray(mask))


def laws_without_replacement(tree: TokenTree, q: Sequence[Law] | Mapping[int, Law]) -> list[Law]:
    """`[N, V]`: the law of each node where siblings were drawn without replacement, in order, from one row per parent.

    q[n]: the draft model's law after node n, wanted for every node with children. A node's law is that row without the tokens
    of its elder siblings, renormalised: what `recursive_rejection` and `traversal` need, and `Draft.drawn_tree` keeps.

    >>> from specref.laws import rational
    >>> tree = TokenTree([7, 0, 2], parents=[-1, 0, 0])
    >>> laws_without_replacement(tree, {0: rational([2, 1, 1])})[2]
    array([Fraction(0, 1), Fraction(1, 2), Fraction(1, 2)], dtype=object)

    Raises BadLaw where elder siblings leave nothing to draw from, or not the node's own token.
    """
    laws = [NO_LAW] * len(tree)
    for parent in range(len(tree)):
        for child in tree.children(parent):
            elder = tree.children(parent)[: tree.children(parent).index(child)]
            left = q[parent]
            for sibling in elder:
                left = without(left, tree.tokens[sibling])
            if not (total(left) > 0 and left[tree.tokens[child]] > 0):
                raise BadLaw(
                    f"node {child} cannot hold token {tree.tokens[child]}: drawn without replacement after its elder "
                    f"siblings {elder}, that token has probability 0"
                )
            laws[child] = norm(left)
    return laws
