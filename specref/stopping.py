"""When an output ends: EOS ids, stop sequences, and the limits on its length.

A round emits several tokens at once, and the end may fall on any of them: a draft, the residual's token, the bonus. So a stop
is looked for after **every** token, never only after the last one of a round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from specref.models import Tokens

Reason = Literal["eos", "stop_sequence", "length"]


class Stops:
    """The output ends after the first token at which one of these holds:

    eos: the token is one of these ids. sequences: the tokens up to it end with one of these sequences of ids, which may begin
    in an earlier round (but not in the prompt). max_tokens: the output is that long. Before `min_tokens` tokens neither `eos`
    nor `sequences` end it. The tokens that end the output are part of it; trimming them from the text is left to the caller.

    >>> stops = Stops(max_tokens=8, eos=[2], sequences=[(5, 6)])
    >>> stops.cut((4, 5), emitted=(6, 7)), stops.reason((4, 5, 6))
    ((6,), 'stop_sequence')

    Raises ValueError for limits out of range or an empty sequence.
    """

    def __init__(
        self,
        max_tokens: int,
        *,
        eos: Sequence[int] = (),
        sequences: Sequence[Sequence[int]] = (),
        min_tokens: int = 0,
    ) -> None:
        if max_tokens < 1:
            raise ValueError(f"max_tokens is {max_tokens}; it must be 1 or more")
        if not 0 <= min_tokens <= max_tokens:
            raise ValueError(f"min_tokens is {min_tokens}; it must lie between 0 and max_tokens, which is {max_tokens}")
        if not all(len(sequence) for sequence in sequences):
            raise ValueError("a stop sequence has no tokens, so it would end every output at once; leave it out")
        self.max_tokens, self.min_tokens = max_tokens, min_tokens
        self.eos = tuple(int(token) for token in eos)
        self.sequences = tuple(tuple(int(token) for token in sequence) for sequence in sequences)

    def __repr__(self) -> str:
        return f"Stops({self.max_tokens}, eos={self.eos}, sequences={self.sequences}, min_tokens={self.min_tokens})"

    def room(self, output: Tokens) -> int:
        """How many more tokens `output` may take.

        >>> Stops(8).room((4, 5))
        6
        """
        return self.max_tokens - len(output)

    def reason(self, output: Tokens) -> Reason | None:
        """Why an output ends with its last token, or None if it goes on. Length is the reason only if no other holds.

        >>> Stops(2, eos=[7]).reason((4, 7)), Stops(2).reason((4, 7)), Stops(3).reason((4, 7))
        ('eos', 'length', None)
        """
        if output and len(output) >= self.min_tokens:
            if output[-1] in self.eos:
                return "eos"
            if any(output[-len(sequence) :] == sequence for sequence in self.sequences):
                return "stop_sequence"
        return "length" if len(output) >= self.max_tokens else None

    def finished(self, output: Tokens) -> bool:
        """Whether the output ends with its last token.

        >>> Stops(8, eos=[2]).finished((4, 2)), Stops(8).finished((4, 2))
        (True, False)
        """
        return self.reason(output) is not None

    def cut(self, output: Tokens, emitted: Tokens) -> Tokens:
        """The part of `emitted` that is kept after `output`: everything up to the token that ends it.

        >>> Stops(3).cut((), (4, 2, 7, 1)), Stops(3, eos=[2]).cut((), (4, 2, 7, 1))
        ((4, 2, 7), (4, 2))
        """
        for kept in range(1, len(emitted) + 1):
            if self.finished(output + emitted[:kept]):
                return emitted[:kept]
        return emitted
