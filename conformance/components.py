"""Parts of an engine that can be audited alone: verifiers, tree inputs, caches, drafters.

A part is handed instances of the judge's own making, a hundred thousand and more, adversarial ones among them; so little hides.
An adapter is a class that satisfies one of these protocols. Caches have theirs in `specref.kv_cache`, fed with token ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from conformance.protocols import Tokens
from specref.kv_cache.base import KVCache

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NEEDS_LAWS = ("ratio", "block", "without_replacement", "traversal", "undeclared")
"""Rules that read the draft's laws; the others are handed none."""

MakeCache = Callable[[], KVCache]
"""Makes an empty cache in front of the model: `append` takes token ids, `visible` gives what the next token can see."""


@dataclass(frozen=True)
class VerifiedBatch:
    """What a verifier decided about B rows.

    accepted `[B]`: drafted tokens kept. next_token `[B]`: the token emitted after them. path `[B, N-1]`: for trees, the
    accepted nodes from the root's child down, then -1. refused `[B]`: rows that it says cannot be verified; None if it never
    says so.
    """

    accepted: Ints
    next_token: Ints
    path: Ints | None = None
    refused: Mask | None = None

    def nonsense(self, nodes: int, vocabulary: int) -> str:
        """What makes this no answer to B rows with `nodes` drafted tokens each, or "". Refused rows may hold anything.

        >>> VerifiedBatch(np.array([3]), np.array([0])).nonsense(nodes=2, vocabulary=4)
        'row 0 accepted 3 of 2 drafted tokens'
        """
        if self.next_token.shape != self.accepted.shape or self.accepted.ndim != 1:
            return f"accepted and next_token must both be [B], got {self.accepted.shape} and {self.next_token.shape}"
        good = np.ones(len(self.accepted), bool) if self.refused is None else ~self.refused
        for row in np.flatnonzero(good & ((self.accepted < 0) | (self.accepted > nodes)))[:1]:
            return f"row {row} accepted {self.accepted[row]} of {nodes} drafted tokens"
        for row in np.flatnonzero(good & ((self.next_token < 0) | (self.next_token >= vocabulary)))[:1]:
            return f"row {row} emitted token {self.next_token[row]}, outside the vocabulary of {vocabulary}"
        return ""


class ChainVerifier(Protocol):
    """A verification function for chains of k drafts.

    rule: the one that it declares ("ratio", "block", "token_matching", "one_hot"), or "undeclared". takes_uniforms: whether it
    can be handed its random numbers.
    """

    trees: Literal[False]
    name: str
    rule: str
    takes_uniforms: bool

    def verify(self, p: Floats, q: Floats | None, drafts: Ints, *, uniforms: Floats | None, seed: int) -> VerifiedBatch:
        """p `[B, k+1, V]`, q `[B, k, V]` (None for rules that read none), drafts `[B, k]`, uniforms `[B, k+1]` in [0, 1)."""


class TreeVerifier(Protocol):
    """A verification function for token trees.

    rule: "without_replacement", "one_hot", "target_only" or "traversal", or "undeclared".
    """

    trees: Literal[True]
    name: str
    rule: str
    takes_uniforms: bool

    def verify(
        self, p: Floats, q: Floats | None, tokens: Ints, parents: Ints, *, uniforms: Floats | None, seed: int
    ) -> VerifiedBatch:
        """p, q `[B, N, V]`: the target's law after each node, and the law that each node was drawn from.

        tokens, parents `[B, N]`: node 0 is the root, the last committed token, with parent -1. uniforms `[B, N]`: as in
        `specref.batched.tree`.
        """


@dataclass(frozen=True)
class TreeInputs:
    """What one pass over a flattened tree of N nodes is given after a prefix of n tokens.

    mask `[N, n + N]`: what each node sees. positions `[N]`. tokens `[N]`.
    """

    mask: Mask
    positions: Ints
    tokens: Ints


class MaskBuilder(Protocol):
    """Builds the inputs of a pass over a tree. One object is asked again and again, as an engine does."""

    name: str

    def build(self, prefix: int, tokens: Sequence[int], parents: Sequence[int]) -> TreeInputs:
        """The inputs for a tree after `prefix` cached tokens; parents[0] is -1."""


@dataclass(frozen=True)
class Proposal:
    """Drafted tokens `[k]` and the laws `[k, V]` that they are claimed to be drawn from; None if chosen without drawing."""

    tokens: Tokens
    laws: Floats | None = None


class DraftSource(Protocol):
    """A drafter as audits see it."""

    name: str

    def propose(self, context: Tokens, k: int, seed: int) -> Proposal:
        """Up to k tokens after `context`."""


class CacheSource(Protocol):
    """Makes caches in front of a model: `append` takes token ids, `visible` gives what the next token can see.

    trees: whether they take trees. tolerance: how far apart two lawful ways of filling one may leave an entry; 0 for stores
    that copy.
    """

    name: str
    trees: bool
    tolerance: float

    def make(self) -> KVCache:
        """An empty cache."""


class TreeReader(Protocol):
    """A model that reads a whole tree in one pass, and a context alone."""

    name: str
    vocabulary: int

    def tree(self, prefix: Tokens, tokens: Tokens, parents: Tokens) -> npt.NDArray[Any]:
        """Logits `[N, V]` after each node of a tree that follows `prefix`; parents[0] is -1."""

    def alone(self, context: Tokens) -> npt.NDArray[Any]:
        """Logits `[V]` after `context`, read by itself."""


Component = ChainVerifier | TreeVerifier | MaskBuilder | DraftSource | CacheSource | TreeReader
"""What `Engine.components` may give."""

KINDS: dict[str, tuple[str, ...]] = {
    "verifier": ("name", "trees", "rule", "takes_uniforms", "verify"),
    "masks": ("name", "build"),
    "drafts": ("name", "propose"),
    "caches": ("name", "trees", "tolerance", "make"),
    "reader": ("name", "vocabulary", "tree", "alone"),
}
"""What makes an object a component of each kind."""


def kind_of(component: object) -> str:
    """Which kind of component an object is. Raises ValueError, saying what each kind needs, if it is none.

    >>> from conformance.engines.own_components import ReferenceChain
    >>> kind_of(ReferenceChain("ratio"))
    'verifier'
    """
    for kind, needs in KINDS.items():
        if all(hasattr(component, name) for name in needs):
            return kind
    wanted = "; ".join(f"{kind}: {', '.join(needs)}" for kind, needs in KINDS.items())
    raise ValueError(f"{type(component).__name__} is no component; one of these sets of names is needed: {wanted}")


@dataclass(frozen=True)
class Logits:
    """Two ways of computing the same rows of logits `[n, V]`: in the tree (or window, or batch), and alone."""

    together: npt.NDArray[Any]
    alone: npt.NDArray[Any]
