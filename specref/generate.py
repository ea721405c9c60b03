"""Generation in rounds: draft, one look at the target, verify, keep what the stops allow.

chance.begin_round(start)
draft  = drafter.draft(context, room, chance)          # k tokens or fewer, possibly none
p      = target.next_laws(context, draft.tokens)       # [k+1, V], one pass
result = rule(p, draft, chance)                        # accepted tokens and the one after them
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from specref.chance import Chance
from specref.draft import Draft
from specref.laws import Law, checked
from specref.models import LanguageModel, Tokens
from specref.rules import Rule
from specref.stopping import Stops


class Drafter(Protocol):
    """Proposes up to k tokens after a context."""

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        """A draft of at most `k` tokens; none is a normal answer."""


class ModelDrafter:
    """Draws drafts from a smaller language model: the classical draft model.

    stop: may end a draft early, from the token just kept and its law (see `Draft.drawn`).

    >>> from specref.chance import SampledChance
    >>> from specref.models import TableModel
    >>> draft = ModelDrafter(TableModel(5, seed=2)).draft((1,), 3, SampledChance(0))
    >>> len(draft.tokens), len(draft.laws)
    (3, 3)
    """

    def __init__(self, model: LanguageModel, stop: Callable[[int, Law], bool] | None = None) -> None:
        self.model, self.stop = model, stop

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        """See `Drafter.draft`."""
        return Draft.drawn(lambda so_far: self.model.next_law(context + so_far), k, chance, self.stop)


class GreedyDrafter:
    """Proposes a smaller language model's most probable tokens. They are chosen, not drawn: they have no law.

    >>> from specref.chance import SampledChance
    >>> from specref.models import TableModel
    >>> draft = GreedyDrafter(TableModel(5, seed=2)).draft((1,), 3, SampledChance(0))
    >>> len(draft.tokens), draft.has_laws
    (3, False)
    """

    def __init__(self, model: LanguageModel) -> None:
        self.model = model

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        """See `Drafter.draft`."""
        tokens: Tokens = ()
        for _ in range(k):
            tokens += (int(self.model.next_law(context + tokens).argmax()),)
        return Draft.chosen(tokens)


class NoDrafter:
    """Proposes nothing: under any rule every round is one plain draw from the target.

    >>> from specref.chance import SampledChance
    >>> NoDrafter().draft((1,), 3, SampledChance(0)).tokens
    ()
    """

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        """See `Drafter.draft`."""
        return Draft.chosen(())


@dataclass(frozen=True)
class Round:
    """What one round did.

    start: length of the output before it. drafted: the proposed tokens. accepted: how many of them the rule kept, *before*
    stops. emitted: the tokens added to the output, *after* stops. rule: the name of the rule.
    """

    start: int
    drafted: Tokens
    accepted: int
    emitted: Tokens
    rule: str


@dataclass(frozen=True)
class Generation:
    """The output tokens (prompt not included) and the rounds that made them; the rounds' emitted parts add up to them."""

    tokens: Tokens
    rounds: tuple[Round, ...]


def chain_round(
    context: Tokens, target: LanguageModel, drafter: Drafter, rule: Rule, k: int, chance: Chance
) -> tuple[Draft, int, Tokens]:
    """One round after `context` without stops: the draft, how many tokens were accepted, and the tokens to emit.

    >>> from specref.chance import SampledChance
    >>> from specref.models import TableModel
    >>> from specref.rules.chain import ratio
    >>> target = TableModel(5, seed=1)
    >>> draft, accepted, emitted = chain_round((1,), target, ModelDrafter(target), ratio, 3, SampledChance(0))
    >>> accepted, emitted[:3] == draft.tokens, len(emitted)              # drafts from the target itself are all accepted
    (3, True, 4)
    """
    draft = drafter.draft(context, k, chance)
    if len(draft.tokens) > k:
        raise ValueError(f"the drafter proposed {len(draft.tokens)} tokens where at most {k} were asked for")
    verified = rule(target.next_laws(context, draft.tokens), draft, chance)
    return draft, verified.accepted, (*draft.tokens[: verified.accepted], verified.next_token)


def generate(
    target: LanguageModel,
    drafter: Drafter,
    rule: Rule,
    prompt: Sequence[int],
    *,
    k: int,
    stops: Stops,
    chance: Chance,
) -> Generation:
    """The tokens after `prompt` until `stops` end them, k drafts a round.

    A stop may fall on any token of a block: what a round emits is cut after it. A round never drafts beyond the room that is
    left (its own last token included), so its draft may be empty. For temperature, truncation and penalties make `target` (and
    the drafter's model) a `Processed` one.

    >>> from specref.chance import SampledChance
    >>> from specref.models import TableModel
    >>> from specref.rules.chain import ratio
    >>> target, small = TableModel(5, seed=1), TableModel(5, seed=2)
    >>> out = generate(target, ModelDrafter(small), ratio, (), k=3, stops=Stops(6), chance=SampledChance(0))
    >>> len(out.tokens), sum(len(round.emitted) for round in out.rounds)
    (6, 6)

    Raises ValueError for k < 1 or a prompt token outside the vocabulary, BadLaw if the target gives no law.
    """
    if k < 1:
        raise ValueError(f"k is {k}; speculation drafts 1 token or more a round (use NoDrafter to switch it off)")
    checked_target = _Checked(target)

    def one_round(context: Tokens, room: int) -> tuple[Tokens, int, Tokens]:
        draft, accepted, emitted = chain_round(context, checked_target, drafter, rule, min(k, room), chance)
        return draft.tokens, accepted, emitted

    return in_rounds(one_round, rule, prompt, target.vocabulary, stops, chance)


def in_rounds(
    one_round: Callable[[Tokens, int], tuple[Tokens, int, Tokens]],
    rule: Rule,
    prompt: Sequence[int],
    vocabulary: int,
    stops: Stops,
    chance: Chance,
) -> Generation:
    """The tokens after `prompt` until `stops` end them, whatever a round does: the loop of every generation.

    one_round(context, room) gives what was drafted (at most `room` tokens in a row), how many of it were accepted, and the
    tokens to emit. rule: of these rounds, for their record.

    >>> from specref.chance import SampledChance
    >>> from specref.rules.chain import greedy
    >>> in_rounds(lambda context, room: ((), 0, (7,)), greedy, (1,), 8, Stops(2), SampledChance(0)).tokens
    (7, 7)

    Raises ValueError for a prompt token outside the vocabulary.
    """
    prompt = tuple(int(token) for token in prompt)
    for token in prompt:
        if not 0 <= token < vocabulary:
            raise ValueError(f"prompt token {token} is outside the target's vocabulary of {vocabulary}")
    tokens: Tokens = ()
    rounds: list[Round] = []
    while not stops.finished(tokens):
        chance.begin_round(len(tokens))
        drafted, accepted, emitted = one_round(prompt + tokens, stops.room(tokens) - 1)
        kept = stops.cut(tokens, emitted)
        rounds.append(Round(len(tokens), drafted, accepted, kept, getattr(rule, "__name__", str(rule))))
        tokens += kept
    return Generation(tokens, tuple(rounds))


class _Checked:
    """A target at the border: each of its answers is checked to be a law before any rule sees it."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model

    @property
    def vocabulary(self) -> int:
        return self._model.vocabulary

    def next_law(self, context: Tokens) -> Law:
        return checked(self._model.next_law(context), "the target's law")

    def next_laws(self, context: Tokens, drafted: Tokens) -> list[Law]:
        rows = [
            checked(row, f"the target's law after {i} drafts") for i, row in enumerate(self._model.next_laws(context, drafted))
        ]
        if len(rows) != len(drafted) + 1:
            raise ValueError(f"the target gave {len(rows)} laws for {len(drafted)} drafted tokens; one more is needed")
        return rows
