"""Prompt lookup: propose what followed the last few tokens when they occurred before. No draft model, no training.

The proposed tokens are chosen, not drawn, so they are verified by `one_hot_ratio`, `token_matching` or `greedy`; any of them is
lossless whichever match is taken. Source: Saxena, "Prompt Lookup Decoding" (2023).
"""

from __future__ import annotations

from typing import Literal, get_args

from specref.chance import Chance
from specref.draft import Draft
from specref.models import Tokens

Take = Literal["leftmost", "rightmost"]


class PromptLookup:
    """Looks for the longest ending of the context, of `shortest` to `longest` tokens, that occurred before in prompt or output.

    take: which occurrence is followed where there are several, the first ("leftmost") or the most recent ("rightmost"). A draft
    is shorter than k where the context ends, and empty where nothing matches.

    >>> from specref.chance import SampledChance
    >>> context = (1, 2, 7, 8, 2, 9, 1, 2)
    >>> PromptLookup(longest=2).draft(context, 2, SampledChance(0)).tokens          # 1 2 was followed by 7 8
    (7, 8)
    >>> PromptLookup(longest=1, take="rightmost").draft(context, 2, SampledChance(0)).tokens     # the last 2 before, by 9 1
    (9, 1)

    Raises ValueError for lengths below 1, `shortest` above `longest`, or an unknown `take`.
    """

    def __init__(self, longest: int = 3, shortest: int = 1, take: Take = "leftmost") -> None:
        if not 1 <= shortest <= longest:
            raise ValueError(f"n-grams of {shortest} to {longest} tokens cannot be matched; give 1 <= shortest <= longest")
        if take not in get_args(Take):
            raise ValueError(f"take is {take!r}; it must be one of {', '.join(get_args(Take))}")
        self.longest, self.shortest, self.take = longest, shortest, take

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        """See `Drafter.draft`. `chance` is not asked."""
        for n in range(self.longest, self.shortest - 1, -1):
            followers = self._after_matches(context, n)
            if followers:
                begin = followers[0] if self.take == "leftmost" else followers[-1]
                return Draft.chosen(context[begin : begin + k])
        return Draft.chosen(())

    def _after_matches(self, context: Tokens, n: int) -> list[int]:
        """Where the text goes on after each earlier occurrence of the last n tokens; an occurrence may overlap them."""
        ending = context[len(context) - n :]
        return [end for end in range(n, len(context)) if context[end - n : end] == ending]
