"""Rounds of lookahead decoding: one pass, verify the guesses, move the window on, fill the pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specref.chance import Chance
from specref.draft import Draft
from specref.drafters.lookahead.one_pass import Step, laws_on_tree
from specref.drafters.lookahead.window import Pool, Shape, Window, completed, first_window, next_window
from specref.generate import Generation, Round
from specref.laws import checked
from specref.models import LanguageModel, Tokens
from specref.rules import Rule
from specref.stopping import Stops


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
    laws = laws_on_tree(target, context, step.tree)
    p = [checked(laws[node], f"the target's law after the guess {step.tree.spells(node)}") for node in step.nodes]
    verified = rule(p, Draft.chosen(step.guessed.tokens, step.guessed), chance)
    emitted = stops.cut(state.tokens, (*(step.guessed.tokens[node] for node in verified.path), verified.next_token))
    newest = tuple(int(laws[node].argmax()) for node in step.newest)
    after = State(
        state.tokens + emitted,
        next_window(state.window, newest, emitted[-1], shape),
        state.pool.adding(completed(state.window, newest, shape)),
    )
    name = getattr(rule, "__name__", str(rule))
    return after, Round(len(state), step.guessed.tokens[1:], verified.accepted, emitted, name)


def generate(
    target: LanguageModel, rule: Rule, prompt: Sequence[int], *, shape: Shape, stops: Stops, chance: Chance
) -> Generation:
    """The tokens after `prompt` until `stops` end them, by lookahead decoding. Nothing is kept from one call to the next.

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
