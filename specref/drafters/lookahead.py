"""Lookahead decoding: the target drafts for itself, by Jacobi iteration in a window beside the text.

A round is one pass of the target over one token tree (`Step`), whose root is the last committed token:

    root ── a1 ─── a2      level 0: guesses of the next tokens, a chain of W with the root
     │       │      │
     b0     b1     b2      level 1: newer guesses; each column holds what may follow the tokens above it
     │       │      │
     c0     c1     c2      up to level N-2: the window is full with N-1 levels
     │
     └─ g1 ─ g2 ─ g3       guesses: up to G n-grams of the pool that began with the root's token, each a chain of N-1

The pass says which token is the most probable after the last level of each column. That completes an n-gram per column, for the
pool, and becomes the next level, while the oldest one is dropped: a Jacobi iteration that keeps its trajectory. The same pass
verifies the guesses. They were made before this round's random numbers were read and have no law, so they are verified by
`greedy` or `sequential_one_hot` over the tree that they form, and what window and pool hold changes the speed only.

Source: Fu et al. 2402.02057, algorithms 2 to 4. As in the authors' code the window moves on by one place a round, however many
tokens were accepted; unlike there, a fully accepted guess is followed by the bonus token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from specref.chance import Chance
from specref.draft import Draft
from specref.generate import Generation, Round
from specref.models import LanguageModel, Tokens
from specref.rules import Rule
from specref.stopping import Stops
from specref.tree import TokenTree
from specref.tree_generate import laws_at_nodes

Window: TypeAlias = tuple[Tokens, ...]
"""Levels of C tokens each, the oldest first: entry [l][i] stands l + i places after the last committed token, itself [0][0]."""


@dataclass(frozen=True)
class Shape:
    """W: columns of the full window. N: tokens of an n-gram, its key included. G: n-grams kept for a key, so guesses a round.

    >>> Shape(W=5, N=4, G=5).levels
    3

    Raises ValueError for W or G below 1, or N below 2.
    """

    W: int
    N: int
    G: int

    def __post_init__(self) -> None:
        for name, value, least in (("W", self.W, 1), ("N", self.N, 2), ("G", self.G, 1)):
            if value < least:
                raise ValueError(f"{name} is {value}; it must be {least} or more")

    @property
    def levels(self) -> int:
        """Levels of the full window, N-1."""
        return self.N - 1


@dataclass(frozen=True)
class Pool:
    """n-grams seen so far, the least recently seen first; at most `per_key` of them begin with the same token, their key.

    >>> pool = Pool(per_key=2).adding([(7, 1, 2), (7, 3, 4), (5, 1, 1)])
    >>> pool.after(7)
    ((3, 4), (1, 2))
    >>> pool.adding([(7, 1, 2), (7, 5, 6)]).after(7)              # 1 2 was seen again, so 3 4 is the oldest
    ((5, 6), (1, 2))
    """

    per_key: int
    grams: tuple[Tokens, ...] = ()

    def after(self, key: int) -> tuple[Tokens, ...]:
        """What followed the token `key` in the n-grams kept, the most recently seen first."""
        return tuple(gram[1:] for gram in reversed(self.grams) if gram[0] == key)

    def adding(self, grams: Iterable[Tokens]) -> Pool:
        """The pool after seeing `grams`, one after the other."""
        kept = list(self.grams)
        for gram in grams:
            if gram in kept:
                kept.remove(gram)
            kept.append(gram)
            of_key = [other for other in kept if other[0] == gram[0]]
            if len(of_key) > self.per_key:
                kept.remove(of_key[0])
        return Pool(self.per_key, tuple(kept))


def first_window(prompt: Tokens, shape: Shape, chance: Chance) -> Window:
    """One level: the last token of the prompt and W + N - 3 random tokens of it. It narrows to W columns while levels fill.

    >>> from specref.chance import SampledChance
    >>> first_window((4, 4, 7), Shape(W=2, N=4, G=1), SampledChance(0))
    ((7, 4, 4, 7),)
    """
    drawn = (chance.picks([1] * len(prompt), slot=("draft", i)) for i in range(shape.W + shape.N - 3))
    return ((prompt[-1], *(prompt[place] for place in drawn)),)


def next_window(window: Window, newest: Tokens, root: int, shape: Shape) -> Window:
    """The window one place on: `newest [C]`, what follows each column, is its last level, and `root` its first token.

    A full window drops its oldest level, which moves every column one place on; one that is still filling drops its first
    column instead.

    >>> full = next_window(((7, 1, 2),), newest=(3, 4, 5), root=8, shape=Shape(W=2, N=3, G=1))
    >>> full, next_window(full, newest=(6, 7), root=9, shape=Shape(W=2, N=3, G=1))
    (((8, 2), (4, 5)), ((9, 5), (6, 7)))
    """
    grown = (*window, newest)
    levels = grown[1:] if len(window) == shape.levels else tuple(level[1:] for level in grown)
    return ((root, *levels[0][1:]), *levels[1:])


def completed(window: Window, newest: Tokens, shape: Shape) -> list[Tokens]:
    """The n-grams that a pass completed, one per column: the token on level 0, those below it, and the `newest [C]` one.

    >>> completed(((8, 2), (4, 5)), newest=(6, 7), shape=Shape(W=2, N=3, G=1))
    [(8, 4, 6), (2, 5, 7)]
    """
    return list(zip(*window, newest)) if len(window) == shape.levels else []


class Step:
    """One pass: the window, level by level, and after it the guesses, one by one, flattened into one token tree.

    tree: T nodes; its `ancestor_mask()` `[T, T]` is the combined attention mask, its `position_ids` are the positions.
    newest: the nodes `[C]` of the window's last level. guessed: the tree `[M]` of the guesses alone, what they have in common
    once, with siblings that are all different. nodes: where the M nodes of `guessed` stand in `tree`.

    >>> from specref.tree import mask_grid
    >>> step = Step(window=((7, 1, 2), (3, 4, 5)), guesses=[(3, 8), (3, 9)])
    >>> print(mask_grid(step.tree.ancestor_mask()))
    x . . . . . . . . .
    x x . . . . . . . .
    x x x . . . . . . .
    x . . x . . . . . .
    x x . . x . . . . .
    x x x . . x . . . .
    x . . . . . x . . .
    x . . . . . x x . .
    x . . . . . . . x .
    x . . . . . . . x x
    >>> step.tree.position_ids(root=10)
    (10, 11, 12, 11, 12, 13, 11, 12, 11, 12)
    >>> list(step.newest), step.guessed, step.nodes
    ([3, 4, 5], TokenTree(tokens=(7, 3, 8, 9), parents=(-1, 0, 1, 1)), (0, 6, 7, 9))
    """

    def __init__(self, window: Window, guesses: Sequence[Tokens]) -> None:
        columns = len(window[0])
        tokens = [token for level in window for token in level]
        parents = [*range(-1, columns - 1), *range(len(tokens) - columns)]
        self.newest = range(len(tokens) - columns, len(tokens))
        node_of: dict[Tokens, int] = {(): 0}
        for guess in guesses:
            parent = 0
            for length, token in enumerate(guess, start=1):
                parents.append(parent)
                parent = len(tokens)
                tokens.append(token)
                node_of.setdefault(guess[:length], parent)
        self.tree = TokenTree(tokens, parents)
        self.guessed = TokenTree.from_paths(tokens[0], guesses)
        self.nodes = tuple(node_of[self.guessed.spells(node)] for node in range(len(self.guessed)))


@dataclass(frozen=True)
class State:
    """What the next round depends on: the output so far, the window and the pool. Its `len` is that of the output."""

    tokens: Tokens
    window: Window
    pool: Pool

    def __len__(self) -> int:
        return len(self.tokens)


def begin(prompt: Tokens, shape: Shape, chance: Chance) -> State:
    """The state before the first round: an empty pool, and a window drawn from the prompt.

    >>> from specref.chance import SampledChance
    >>> begin((7,), Shape(W=2, N=3, G=1), SampledChance(0))
    State(tokens=(), window=((7, 7, 7),), pool=Pool(per_key=1, grams=()))
    """
    return State((), first_window(prompt, shape, chance), Pool(shape.G))


def one_round(
    state: State, prompt: Tokens, target: LanguageModel, rule: Rule, shape: Shape, stops: Stops, chance: Chance
) -> tuple[State, Round]:
    """The state after a round, and what the round did; `drafted` are the M - 1 nodes of the guesses' tree.

    rule: `rules.tree.greedy` or `rules.tree.sequential_one_hot`. Guesses are cut to the room that is left.

    >>> from specref.chance import SampledChance
    >>> from specref.models import TableModel
    >>> from specref.rules.tree import greedy
    >>> shape = Shape(W=2, N=3, G=2)
    >>> state = State((), window=((7, 1), (3, 4)), pool=Pool(2, grams=((7, 0, 0), (7, 2, 1))))
    >>> after, done = one_round(state, (7,), TableModel(8, seed=4), greedy, shape, Stops(9), SampledChance(0))
    >>> done
    Round(start=0, drafted=(2, 0, 1, 0), accepted=2, emitted=(2, 1, 2), rule='greedy')
    >>> after.window, after.pool.grams
    (((2, 4), (2, 1)), ((7, 2, 1), (7, 3, 2), (1, 4, 1)))
    """
    chance.begin_round(len(state))
    context = prompt + state.tokens
    room_for_drafts = stops.room(state.tokens) - 1
    step = Step(state.window, [guess[:room_for_drafts] for guess in state.pool.after(context[-1])])
    laws = laws_at_nodes(target, context, step.tree)
    verified = rule([laws[node] for node in step.nodes], Draft.chosen(step.guessed.tokens, step.guessed), chance)
    emitted = stops.cut(state.tokens, (*(step.guessed.tokens[node] for node in verified.path), verified.next_token))
    newest = tuple(int(laws[node].argmax()) for node in step.newest)
    after = State(
        state.tokens + emitted,
        next_window(state.window, newest, emitted[-1], shape),
        state.pool.adding(completed(state.window, newest, shape)),
    )
    name = getattr(rule, "__name__", str(rule))
    return after, Round(len(state), step.guessed.tokens[1:], verified.accepted, emitted, name)


class LookaheadDrafter:
    """Lookahead decoding as the drafter of one request: its window is read in a pass of its own, the guesses are the draft.

    The drafts are those of `generate`, for the same rules. Asked again after the same context, it answers the same.

    >>> from specref.chance import SampledChance
    >>> from specref.models import TableModel
    >>> drafter = LookaheadDrafter(TableModel(2, seed=4), Shape(W=2, N=2, G=2))
    >>> [drafter.draft(context, 1, SampledChance(0)).tokens for context in ((1,), (1, 1), (1, 1, 1))]
    [(1,), (1, 1), (1, 0, 1)]
    """

    def __init__(self, target: LanguageModel, shape: Shape) -> None:
        self.target, self.shape, self.pool = target, shape, Pool(shape.G)
        self.window: Window = ()
        self.newest: Tokens = ()
        self.context: Tokens = ()

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        """See `Drafter.draft`; the tree is at most `k` deep."""
        if context != self.context:
            self._look(context, chance)
        tree = TokenTree.from_paths(context[-1], [guess[:k] for guess in self.pool.after(context[-1])])
        return Draft.chosen(tree.tokens, tree)

    def _look(self, context: Tokens, chance: Chance) -> None:
        """Keep what the last pass completed, move the window to the end of `context`, and read it there."""
        if self.window:
            self.pool = self.pool.adding(completed(self.window, self.newest, self.shape))
            self.window = next_window(self.window, self.newest, context[-1], self.shape)
        else:
            self.window = first_window(context, self.shape, chance)
        step = Step(self.window, [])
        laws = laws_at_nodes(self.target, context, step.tree)
        self.newest, self.context = tuple(int(laws[node].argmax()) for node in step.newest), context


def generate(
    target: LanguageModel, rule: Rule, prompt: Sequence[int], *, shape: Shape, stops: Stops, chance: Chance
) -> Generation:
    """The tokens after `prompt` until `stops` end them, by lookahead decoding. Nothing is kept from one call to the next.

    A `TreeTarget`, made of any transformers model with full attention, answers in one pass a round; any other model path by
    path.

    >>> from specref.chance import SampledChance
    >>> from specref.models import TableModel
    >>> from specref.rules.tree import sequential_one_hot
    >>> shape, stops = Shape(W=3, N=3, G=3), Stops(20)
    >>> out = generate(TableModel(3, 1, memory=2), sequential_one_hot, (1,), shape=shape, stops=stops, chance=SampledChance(0))
    >>> len(out.tokens), len(out.rounds) < 20
    (20, True)

    Raises ValueError for an empty prompt or a prompt token outside the vocabulary, BadLaw if the target gives no law.
    """
    prompt = tuple(int(token) for token in prompt)
    if not prompt:
        raise ValueError("the prompt is empty; the window is drawn from it, so start with a BOS token")
    for token in prompt:
        if not 0 <= token < target.vocabulary:
            raise ValueError(f"prompt token {token} is outside the target's vocabulary of {target.vocabulary}")
    chance.begin_round(0)
    state = begin(prompt, shape, chance)
    rounds: list[Round] = []
    while not stops.finished(state.tokens):
        state, done = one_round(state, prompt, target, rule, shape, stops, chance)
        rounds.append(done)
    return Generation(state.tokens, tuple(rounds))
