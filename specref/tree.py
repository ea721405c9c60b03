"""Token trees: several continuations drafted at once, sharing what they have in common."""

from __future__ import annotations

from collections.abc import Sequence


class BadTree(ValueError):
    """Something given as a token tree is not one."""


class TokenTree:
    """N drafted tokens in a tree. Node 0 is the root: the last committed token, which the target has not read yet.

    tokens `[N]`: the token of each node. parents `[N]`: the node before it; parents[0] is -1 and every other parent precedes
    its child. A chain is the tree of width 1. Raises BadTree.

    >>> tree = TokenTree(tokens=[7, 1, 2, 3], parents=[-1, 0, 0, 1])
    >>> tree.children(0), tree.path(3), tree.spells(3)
    ((1, 2), (1, 3), (1, 3))
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

    def __len__(self) -> int:
        return len(self.tokens)

    def children(self, node: int) -> tuple[int, ...]:
        """The nodes whose parent is `node`, in order."""
        return self._children[node]

    def path(self, node: int) -> tuple[int, ...]:
        """The nodes from the root's child down to `node`; empty for the root."""
        nodes: list[int] = []
        while node:
            nodes.append(node)
            node = self.parents[node]
        return tuple(reversed(nodes))

    def spells(self, node: int) -> tuple[int, ...]:
        """The drafted tokens along `path(node)`: what the target has read after the root when it answers at `node`."""
        return tuple(self.tokens[step] for step in self.path(node))
