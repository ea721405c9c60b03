"""Parts of an engine that can be audited alone: verifiers, tree inputs, caches, drafters, vocabulary maps, and its rounds.

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
    can be handed its random numbers. One that applies sampling settings itself also names them in `applies`.
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


Entries = npt.NDArray[Any]


class VocabularyMap(Protocol):
    """A map from a draft's vocabulary to the target's.

    convention: "offset" where draft id i means target id i + table[i], "absolute" where it means table[i]. vocabulary: the
    target's.
    """

    name: str
    convention: Literal["offset", "absolute"]
    vocabulary: int

    def table(self) -> Ints:
        """The map `[D]`, one entry per draft id."""

    def texts(self) -> tuple[Sequence[str], Sequence[str]] | None:
        """What the draft's tokens and the target's look like; None if the draft's have no texts of their own."""


@dataclass(frozen=True)
class SeenRound:
    """One round of one request, seen from within. What the engine does not have or does not show is None.

    request: which of those asked. start: committed tokens before the round, prompt included; committed: all after it. drafted
    `[n]`; parents `[n + 1]`: of a tree, whose root is the last committed token; None for a chain. scores `[n + 1, V]`: the
    target's raw logits at the root and each draft, as read in the window. allowed `[n + 1, V]`: the tokens that the grammar
    left there, all where there was no mask; matcher `[V]`: what it allows after the round. cache, draft_cache: the entries
    after the round, and those that reading the committed tokens afresh leaves. fed: what the draft net read as true, as
    (position of the feature, token beside it, position at which both stood).
    """

    request: int
    start: int
    committed: Tokens
    drafted: Tokens
    parents: Tokens | None = None
    scores: Floats | None = None
    allowed: Mask | None = None
    matcher: Mask | None = None
    cache: tuple[Entries, Entries] | None = None
    draft_cache: tuple[Entries, Entries] | None = None
    fed: tuple[tuple[int, int, int], ...] | None = None


@dataclass(frozen=True)
class Trace:
    """What a run showed. rounds: in the order of their ends, each request's own in turn.

    pages: of the prefix cache at the end: all tokens up to the page's end, its entries, and fresh ones; None if there is none.
    """

    rounds: tuple[SeenRound, ...]
    pages: tuple[tuple[Tokens, Entries, Entries], ...] | None = None


class RoundWatcher(Protocol):
    """Runs requests as the engine would, and tells what each of their rounds was.

    rule: the one that verifies. tolerance: how far apart two lawful ways of filling a cache may leave an entry. lag: entries by
    which the draft's cache may lawfully lag behind. grammars: whether requests may have one.
    """

    name: str
    rule: str
    tolerance: float
    lag: int
    grammars: bool

    def watch(self, prompts: Sequence[Tokens], max_tokens: int, temperature: float, seed: int, grammar: str) -> Trace:
        """Requests after these prompts, together; grammar: what their outputs follow (see `Request`), or ""."""


Component = ChainVerifier | TreeVerifier | MaskBuilder | DraftSource | CacheSource | TreeReader | VocabularyMap | RoundWatcher
"""What `Engine.components` may give."""

KINDS: dict[str, tuple[str, ...]] = {
    "verifier": ("name", "trees", "rule", "takes_uniforms", "verify"),
    "masks": ("name", "build"),
    "drafts": ("name", "propose"),
    "caches": ("name", "trees", "tolerance", "make"),
    "reader": ("name", "vocabulary", "tree", "alone"),
    "map": ("name", "convention", "vocabulary", "table", "texts"),
    "rounds": ("name", "rule", "tolerance", "lag", "grammars", "watch"),
}
"""What makes an object a component of each kind."""


MAY_SAY = ("applies",)
"""What a component may leave unsaid."""


def facts_of(component: object, kind: str) -> dict[str, Any]:
    """What a component, or its class, says of itself without being asked anything.

    >>> from conformance.engines.own_components import ReferenceChain
    >>> sorted(facts_of(ReferenceChain("ratio"), "verifier"))
    ['name', 'rule', 'takes_uniforms', 'trees']
    """
    said = {name: getattr(component, name) for name in (*KINDS[kind], *MAY_SAY) if hasattr(component, name)}
    return {name: value for name, value in said.items() if not callable(value)}


def applied_by(component: object) -> tuple[str, ...]:
    """The sampling settings that a verifier applies itself; none where it is handed laws to which they were applied."""
    return tuple(getattr(component, "applies", ()))


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
