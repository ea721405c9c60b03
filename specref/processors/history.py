"""Processors that look at what was written: penalties, bad words, min tokens; and the logit bias.

Drafted tokens are part of the output they see. A penalty that counts only what was committed when the round began ("frozen
penalties") gives another law, and so does one that counts the newest token twice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from specref.models import Tokens
from specref.processors.processed import Processor
from specref.processors.rows import Row, add, forbid, scale


@dataclass(frozen=True)
class RepetitionPenalty(Processor):
    """Makes every token seen so far less probable (penalty > 1): positive logits are divided by it, the others multiplied.

    prompt_counts: whether the prompt's tokens count as seen (they do in most engines). Source: Keskar et al. 1909.05858.

    >>> import numpy as np
    >>> RepetitionPenalty(2.0)(np.array([3.0, -1.0, 3.0]), (0,), (1, 1))
    array([ 1.5, -2. ,  3. ])
    """

    penalty: float
    prompt_counts: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.penalty < math.inf:
            raise ValueError(f"repetition penalty is {self.penalty}; it must be above 0, and 1 switches it off")

    def __call__(self, row: Row, prompt: Tokens, output: Tokens) -> Row:
        """See `Processor.__call__`."""
        seen = {*prompt, *output} if self.prompt_counts else set(output)
        no_preference = 1 if row.dtype == object else 0  # the weight exp(0), or the logit 0 itself
        positive = {token for token in seen if row[token] > no_preference}
        return scale(scale(row, positive, 1 / self.penalty), seen - positive, self.penalty)


@dataclass(frozen=True)
class PresencePenalty(Processor):
    """Subtracts `penalty` from the logit of every token that occurs in the output, however often.

    prompt_counts: whether tokens of the prompt count as well (they do not in most engines). Range and meaning as in OpenAI's
    API; a negative penalty rewards repetition.

    >>> import numpy as np
    >>> PresencePenalty(0.5)(np.array([1.0, 1.0]), (0,), (1, 1))
    array([1. , 0.5])
    """

    penalty: float
    prompt_counts: bool = False

    def __post_init__(self) -> None:
        _check_finite("presence penalty", self.penalty)

    def __call__(self, row: Row, prompt: Tokens, output: Tokens) -> Row:
        """See `Processor.__call__`."""
        return add(row, dict.fromkeys(prompt + output if self.prompt_counts else output, -self.penalty))


@dataclass(frozen=True)
class FrequencyPenalty(Processor):
    """Subtracts `penalty` from a token's logit for each time that it occurs in the output.

    prompt_counts: as in `PresencePenalty`.

    >>> import numpy as np
    >>> FrequencyPenalty(0.5)(np.array([1.0, 1.0]), (0,), (1, 1))
    array([1., 0.])
    """

    penalty: float
    prompt_counts: bool = False

    def __post_init__(self) -> None:
        _check_finite("frequency penalty", self.penalty)

    def __call__(self, row: Row, prompt: Tokens, output: Tokens) -> Row:
        """See `Processor.__call__`."""
        counts = Counter(prompt + output if self.prompt_counts else output)
        return add(row, {token: -self.penalty * times for token, times in counts.items()})


@dataclass(frozen=True)
class LogitBias(Processor):
    """Adds a fixed amount to the logits of some tokens.

    >>> import numpy as np
    >>> LogitBias({1: -2.0})(np.array([1.0, 1.0]), (), ())
    array([ 1., -1.])
    """

    bias: Mapping[int, float] = field(hash=False)

    def __post_init__(self) -> None:
        for token, amount in self.bias.items():
            _check_finite(f"the logit bias of token {token}", amount, "; name the token in bad words to forbid it")

    def __call__(self, row: Row, prompt: Tokens, output: Tokens) -> Row:
        """See `Processor.__call__`."""
        return add(row, self.bias)

    def ids(self) -> Iterable[int]:
        """See `Processor.ids`."""
        return tuple(self.bias)


@dataclass(frozen=True)
class MinTokens(Processor):
    """Forbids the tokens in `eos` until the output holds `least` tokens. Tokens are counted, never rounds.

    >>> import numpy as np
    >>> least_two = MinTokens(2, eos=(1,))
    >>> least_two(np.array([0.0, 0.0]), (0,), (0,)), least_two(np.array([0.0, 0.0]), (0,), (0, 0))
    (array([  0., -inf]), array([0., 0.]))
    """

    least: int
    eos: Sequence[int]

    def __post_init__(self) -> None:
        if self.least < 0:
            raise ValueError(f"min tokens is {self.least}; it counts tokens, so it must be 0 or more")

    def __call__(self, row: Row, prompt: Tokens, output: Tokens) -> Row:
        """See `Processor.__call__`."""
        return forbid(row, self.eos) if len(output) < self.least else row

    def ids(self) -> Iterable[int]:
        """See `Processor.ids`."""
        return tuple(self.eos)


@dataclass(frozen=True)
class BadWords(Processor):
    """Forbids sequences of tokens: the last token of a word, wherever the tokens before it stand at the end of the context.

    A word of one token is always forbidden. prompt_counts: whether a word may begin in the prompt (if not, only in the output).

    >>> import numpy as np
    >>> no_words = BadWords([(0,), (1, 2)])
    >>> no_words(np.zeros(3), (), (1,)), no_words(np.zeros(3), (), (2,))
    (array([-inf,   0., -inf]), array([-inf,   0.,   0.]))
    """

    words: Sequence[Sequence[int]]
    prompt_counts: bool = True

    def __post_init__(self) -> None:
        if not all(len(word) for word in self.words):
            raise ValueError("a bad word has no tokens; leave it out (some tokenizers give none for a blank)")

    def __call__(self, row: Row, prompt: Tokens, output: Tokens) -> Row:
        """See `Processor.__call__`."""
        context = prompt + output if self.prompt_counts else output
        return forbid(row, (word[-1] for word in self.words if _ends_with(context, word[:-1])))

    def ids(self) -> Iterable[int]:
        """See `Processor.ids`."""
        return (token for word in self.words for token in word)


def _ends_with(context: Tokens, ending: Sequence[int]) -> bool:
    return len(context) >= len(ending) and context[len(context) - len(ending) :] == tuple(ending)


def _check_finite(what: str, value: float, remedy: str = "") -> None:
    if not math.isfinite(value):
        raise ValueError(f"{what} is {value}; it must be a finite number{remedy}")
