"""Outputs that follow a grammar: at every position only the tokens that it allows can be drawn.

What is allowed depends on all tokens before, drafted ones too, so every position of a round has a mask of its own: the one
after the committed tokens **and its own path**. Of a tree that is the path of ancestors, whatever the order of the nodes. A
matcher moves with committed tokens alone; to look down a path it takes the path's tokens in and gives back as many as it took,
which are fewer where the grammar refuses one.

Nothing follows a token that the grammar refuses, or the end of the text. Such positions have no mask and need none: a refused
token has p = 0, so no lossless rule keeps it, and what stands behind an end is cut off.

A draft need not know the grammar: under p with the mask, an invalid draft is rejected like any other, and the residual is taken
against the law that it was drawn from. To reject it and **then** measure the residual against another q is a bias, and so is
to drop it before verification, unless the q of every position is the one under the mask.

Parsing is left to `llguidance`: pip install 'specref[grammar]'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from specref.models import Tokens
from specref.processors import Processor
from specref.processors.rows import Row, keep_only

Allowed = npt.NDArray[np.bool_]


class GrammarsMissing(ImportError):
    """The library that parses grammars is not installed."""


def _library() -> ModuleType:
    try:
        import llguidance
        import llguidance.hf
    except ImportError as error:
        raise GrammarsMissing("grammars need the library llguidance: pip install 'specref[grammar]'") from error
    return llguidance


class Grammar:
    """Which texts are allowed: a grammar in the dialect of Lark that llguidance reads, over the texts of token ids.

    Use `over_bytes` or `over_tokenizer`. The token `eos` ends a text, and is allowed where the text is complete.

    >>> grammar = Grammar.over_bytes('start: "a" "b"*', [b"a", b"b", b"c", b""], eos=3)
    >>> grammar.allowed(()).tolist(), grammar.allowed((0, 1)).tolist()
    ([True, False, False, False], [False, True, False, True])
    >>> print(grammar.allowed((0, 2)), grammar.allowed((0, 3)))         # refused; ended
    None None

    Raises GrammarsMissing without llguidance, ValueError for a grammar that it cannot read.
    """

    def __init__(self, lark: str, tokenizer: Any) -> None:
        matcher_type = _library().LLMatcher
        source = matcher_type.grammar_from_lark(lark)
        is_error, messages = matcher_type.validate_grammar_with_warnings(source, tokenizer)
        if is_error:
            raise ValueError(f"the grammar cannot be read: {messages[0].strip()}")
        self.lark, self.eos, self.vocabulary = lark, int(tokenizer.eos_token), int(tokenizer.vocab_size)
        self._at_start = matcher_type(tokenizer, source)

    @classmethod
    def over_bytes(cls, lark: str, texts: Sequence[bytes], eos: int) -> Grammar:
        """texts `[V]`: the one byte that each token id stands for, empty for ids without a text, such as `eos`."""
        library = _library()
        return cls(lark, library.LLTokenizer(library.TokenizerWrapper(_Bytes(texts, eos)), len(texts), eos, slices=[]))

    @classmethod
    def over_tokenizer(cls, lark: str, tokenizer: Any) -> Grammar:
        """tokenizer: a fast one of transformers.

        >>> from transformers import AutoTokenizer
        >>> from specref import pretrained
        >>> tokenizer = AutoTokenizer.from_pretrained(pretrained.path("target"))
        >>> grammar = Grammar.over_tokenizer('start: "yes" | "no"', tokenizer)
        >>> tokenizer.decode(np.flatnonzero(grammar.allowed(())))
        'ny'
        """
        return cls(lark, _library().hf.from_tokenizer(tokenizer, slices=[]))

    def matcher(self) -> Matcher:
        """A matcher at the start of a text."""
        return Matcher(self, self._at_start.deep_copy())

    def allowed(self, text: Tokens) -> Allowed | None:
        """Which tokens `[V]` may follow `text`, read afresh from its start; None if it is refused or has ended."""
        return self.matcher().allowed(text)

    def __deepcopy__(self, memo: dict[int, object]) -> Grammar:
        return self


class _Bytes:
    """A vocabulary of single bytes, as llguidance asks for one."""

    bos_token_id = None

    def __init__(self, texts: Sequence[bytes], eos: int) -> None:
        self.ids = {text: token for token, text in enumerate(texts) if text}
        if any(len(text) > 1 for text in texts):
            raise ValueError(f"each token must stand for one byte or none, got {list(texts)}")
        self.eos_token_id = eos
        self.special_token_ids = [token for token, text in enumerate(texts) if not text]
        self.tokens = [text or f"<{token}>".encode() for token, text in enumerate(texts)]

    def __call__(self, text: bytes) -> list[int]:
        letters = (bytes([byte]) for byte in text)
        return [self.ids[letter] for letter in letters if letter in self.ids]


@dataclass(frozen=True)
class MatcherState:
    """What can be seen of a matcher. text: the tokens it has taken in. allowed: the ids that may follow; none after the end.

    >>> Grammar.over_bytes('start: "a"', [b"a", b"b", b""], eos=2).matcher().state
    MatcherState(text=(), allowed=(0,))
    """

    text: Tokens
    allowed: tuple[int, ...]


class Matching(Protocol):
    """What drafting may ask: it looks down a path and changes nothing."""

    def allowed(self, path: Tokens = ()) -> Allowed | None:
        """Which tokens `[V]` may follow the committed tokens and `path`; None where nothing can follow."""


class Matcher:
    """Where one output stands in its grammar.

    >>> grammar = Grammar.over_bytes('start: "a" "b"* "c"', [b"a", b"b", b"c", b""], eos=3)
    >>> matcher = grammar.matcher()
    >>> matcher.advance((0, 1))
    >>> matcher.allowed((1, 2)).tolist(), matcher.state        # looked down a path; it has not moved
    ([False, False, False, True], MatcherState(text=(0, 1), allowed=(1, 2)))
    """

    def __init__(self, grammar: Grammar, parser: Any) -> None:
        self.grammar = grammar
        self.text: Tokens = ()
        self.parser = parser

    def allowed(self, path: Tokens = ()) -> Allowed | None:
        """See `Matching.allowed`."""
        if self.grammar.eos in self.text + path:
            return None
        taken = self.parser.try_consume_tokens(list(path))  # stops before a token that is refused
        mask = self._mask() if taken == len(path) else None
        self.parser.rollback(taken)
        return mask

    def advance(self, committed: Tokens) -> None:
        """Move on by these tokens. Raises ValueError at one that is not allowed."""
        for token in committed:
            mask = self.allowed()
            if mask is None or not mask[token]:
                raise ValueError(f"the grammar refuses token {token} after {self.text}")
            if token != self.grammar.eos:  # the end is known by the text: the parser, once complete, takes nothing more
                self.parser.try_consume_tokens([token])
            self.text += (token,)

    @property
    def state(self) -> MatcherState:
        """What can be seen of it now."""
        mask = self.allowed()
        return MatcherState(self.text, () if mask is None else tuple(np.flatnonzero(mask).tolist()))

    def _mask(self) -> Allowed:
        bits = np.frombuffer(self.parser.compute_bitmask(), np.uint8)
        if self.parser.is_error():  # it raises nothing by itself, and would allow the end alone from now on
            raise RuntimeError(f"llguidance gave up after {self.text}: {self.parser.get_error().splitlines()[0]}")
        return np.unpackbits(bits, bitorder="little", count=self.grammar.vocabulary).astype(np.bool_)

    def __deepcopy__(self, memo: dict[int, object]) -> Matcher:
        copied = type(self)(self.grammar, self.parser.deep_copy())
        copied.text = self.text
        memo[id(self)] = copied
        return copied


class Constrained(Processor):
    """The grammar as a processor that reads every text afresh: slow, and what an engine's masks must come to.

    >>> grammar = Grammar.over_bytes('start: "a"', [b"a", b"b", b""], eos=2)
    >>> Constrained(grammar)(np.zeros(3), prompt=(1,), output=(0,))
    array([-inf, -inf,   0.])
    """

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar

    def __call__(self, row: Row, prompt: Tokens, output: Tokens) -> Row:
        """See `Processor`."""
        return masked(row, self.grammar.allowed(output))


def masked(row: Row, allowed: Allowed | None) -> Row:
    """The row `[V]` with everything but `allowed` forbidden; unchanged where there is no mask.

    >>> masked(np.array([1.0, 2.0, 3.0]), np.array([True, False, True])), masked(np.array([1.0, 2.0]), None)
    (array([  1., -inf,   3.]), array([1., 2.]))
    """
    return row if allowed is None else keep_only(row, allowed)
