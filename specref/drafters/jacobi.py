"""Jacobi iteration: guess a whole block of tokens, let the target correct every position at once, repeat until nothing changes.

    y[i] <- argmax of the target's law after context + y[:i]          for every i of the block, in one pass

A position is final once all before it are. The first one is right after one pass, so n positions need at most n passes and
the fixed point is what greedy decoding writes; fewer passes wherever a token happens to be right before its turn. Source:
Song et al. 2002.03629 (Jacobi iteration for feed-forward computation), Santilli et al. 2305.10427 (for decoding).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specref.chance import Chance
from specref.draft import Draft
from specref.models import LanguageModel, Tokens
from specref.stopping import Stops


@dataclass(frozen=True)
class Jacobi:
    """The iterations of one block of n tokens, each of them one pass of the target.

    guesses: the block `[n]` before the first pass, and after each. final: how many of its first tokens are known to be greedy's
    at each of these times, from 0 up to n.

    >>> found = Jacobi(guesses=((5, 6), (1, 6), (1, 2)), final=(0, 1, 2))
    >>> found.tokens, found.passes
    ((1, 2), 2)
    """

    guesses: tuple[Tokens, ...]
    final: tuple[int, ...]

    @property
    def tokens(self) -> Tokens:
        """The block after the last pass: what greedy decoding writes."""
        return self.guesses[-1]

    @property
    def passes(self) -> int:
        """How often the target was asked."""
        return len(self.guesses) - 1

    def __str__(self) -> str:
        """One line an iteration; what is final stands left of the bar."""
        lines = []
        for guess, final in zip(self.guesses, self.final):
            lines.append(" ".join([*map(str, guess[:final]), "|", *map(str, guess[final:])]))
        return "\n".join(lines)


def jacobi(target: LanguageModel, context: Tokens, guess: Sequence[int]) -> Jacobi:
    """The n greedy tokens after `context`, found from any `guess [n]` of them in at most n passes.

    After a pass, the part of the old block that the pass confirmed is final, and one token more: that one was computed from
    final tokens alone. So the last pass need not be repeated to see that nothing changes any more. Ties go to the lowest id.

    >>> from specref.models import TableModel
    >>> print(jacobi(TableModel(5, seed=1), (1,), guess=(0, 0, 0, 0)))
    | 0 0 0 0
    0 1 | 0 3
    0 1 4 | 4
    0 1 4 1 |

    Raises ValueError for an empty guess or a token of it outside the vocabulary.
    """
    block = tuple(int(token) for token in guess)
    if not block:
        raise ValueError("the guess is empty; there must be 1 token or more to iterate on")
    for token in block:
        if not 0 <= token < target.vocabulary:
            raise ValueError(f"guessed token {token} is outside the target's vocabulary of {target.vocabulary}")
    guesses, final = [block], [0]
    while final[-1] < len(block):
        best = tuple(int(law.argmax()) for law in target.next_laws(context, block[:-1]))
        corrected = block[: final[-1]] + best[final[-1] :]  # what is final stays, even where a near-tie rounds the other way
        guesses.append(corrected)
        final.append(min(agreement(block, corrected) + 1, len(block)))
        block = corrected
    return Jacobi(tuple(guesses), tuple(final))


def agreement(one: Tokens, other: Tokens) -> int:
    """How many first tokens two blocks have in common.

    >>> agreement((4, 2, 7), (4, 2, 1))
    2
    """
    common = 0
    while common < min(len(one), len(other)) and one[common] == other[common]:
        common += 1
    return common


class JacobiDrafter:
    """Drafts what `passes` Jacobi iterations make of the last token, repeated k times.

    Jacobi decoding itself (`generate`) goes on to the fixed point, which is what greedy decoding writes. Stopped before it, the
    block is a draft of chosen tokens, which `one_hot_ratio`, `token_matching` and `greedy` verify losslessly.

    >>> from specref.chance import SampledChance
    >>> from specref.models import TableModel
    >>> JacobiDrafter(TableModel(5, seed=1), passes=2).draft((1,), 4, SampledChance(0)).tokens
    (0, 1, 4, 1)

    Raises ValueError for passes below 1.
    """

    def __init__(self, target: LanguageModel, passes: int) -> None:
        if passes < 1:
            raise ValueError(f"passes is {passes}; without 1 pass or more the draft repeats the last token")
        self.target, self.passes = target, passes

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        """See `Drafter.draft`."""
        if k < 1:
            return Draft.chosen(())
        found = jacobi(self.target, context, context[-1:] * k)
        return Draft.chosen(found.guesses[min(self.passes, found.passes)])


def generate(target: LanguageModel, prompt: Sequence[int], *, block: int, stops: Stops) -> tuple[Tokens, tuple[Jacobi, ...]]:
    """Greedy decoding by blocks of up to `block` tokens: the output after `prompt`, and the iterations of every block.

    Each block is first guessed to repeat the last token. A stop may fall on any token of a block, which is cut after it.

    >>> from specref.models import TableModel
    >>> tokens, blocks = generate(TableModel(5, seed=1), (1,), block=4, stops=Stops(6))
    >>> tokens, [iterations.passes for iterations in blocks]
    ((0, 1, 4, 1, 0, 2), [3, 2])

    Raises ValueError for an empty prompt, a prompt token outside the vocabulary or a block below 1.
    """
    if block < 1:
        raise ValueError(f"block is {block}; Jacobi iteration needs 1 token or more at a time")
    prompt = tuple(int(token) for token in prompt)
    if not prompt:
        raise ValueError("the prompt is empty; the first guess repeats its last token, so give 1 token or more")
    for token in prompt:
        if not 0 <= token < target.vocabulary:
            raise ValueError(f"prompt token {token} is outside the target's vocabulary of {target.vocabulary}")
    tokens: Tokens = ()
    blocks: list[Jacobi] = []
    while not stops.finished(tokens):
        context = prompt + tokens
        blocks.append(jacobi(target, context, context[-1:] * min(block, stops.room(tokens))))
        tokens += stops.cut(tokens, blocks[-1].tokens)
    return tokens, tuple(blocks)
