"""Drafts from a model with another tokenizer, by way of text.

* `Reencoded`: whatever the other model drafts is decoded to text and encoded again for the target. The proposals were chosen by
  the encoder, not drawn from any known law over the target's vocabulary: verify them as one-hot or by token matching.
  Source: Timor et al. 2502.05202, algorithm 2 (string-level exact match).
* `SharedVocabulary`: the other model's law restricted to the tokens that both vocabularies have, renormalised. That is a law
  over the target's vocabulary, it is the one drawn from, and the ratio rule applies. Source: the same paper, algorithm 4.

Both are lossless. Neither can propose much that the other model would say in tokens the target does not have: acceptance of the
second is at most the target's probability of a shared token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from specref.chance import Chance
from specref.draft import Draft
from specref.generate import Drafter
from specref.laws import Law, norm
from specref.models import LanguageModel, Tokens


class TextCodec(Protocol):
    """Text to token ids and back; the tokenizers of transformers fit when wrapped in `HubCodec`."""

    def encode(self, text: str) -> Tokens:
        """The token ids of `text`."""

    def decode(self, tokens: Tokens) -> str:
        """The text of `tokens`."""


class PieceCodec:
    """A codec made of pieces of text, one per token id: encoding takes the longest piece that fits, again and again.

    >>> codec = PieceCodec(["a", "b", "ab"])
    >>> codec.encode("aab"), codec.decode((0, 2))
    ((0, 2), 'aab')

    Raises ValueError for a piece that is empty or occurs twice, and when encoding text that no piece begins.
    """

    def __init__(self, pieces: Sequence[str]) -> None:
        for piece in pieces:
            if not piece or pieces.count(piece) > 1:
                raise ValueError(f"the piece {piece!r} is empty or occurs twice")
        self.pieces = tuple(pieces)
        self._id_of = {piece: token for token, piece in enumerate(self.pieces)}
        self._longest = max(map(len, self.pieces))

    def encode(self, text: str) -> Tokens:
        """See `TextCodec.encode`."""
        tokens: list[int] = []
        at = 0
        while at < len(text):
            for length in range(self._longest, 0, -1):
                token = self._id_of.get(text[at : at + length])
                if token is not None:
                    break
            else:
                raise ValueError(f"no piece begins the text {text[at : at + 10]!r}")
            tokens.append(token)
            at += len(self.pieces[token])
        return tuple(tokens)

    def decode(self, tokens: Tokens) -> str:
        """See `TextCodec.decode`."""
        return "".join(self.pieces[token] for token in tokens)


class HubCodec:
    """A tokenizer of transformers as a codec. Special tokens are neither added nor written out.

    pieces `[tokens of the tokenizer]`: the text of each token, with the usual signs for a leading space ("Ġ", "▁") as a space.

    >>> from transformers import AutoTokenizer
    >>> from specref import pretrained
    >>> codec = HubCodec(AutoTokenizer.from_pretrained(pretrained.path("target")))
    >>> codec.decode(codec.encode("for")), len(codec.encode("for"))
    ('for', 3)
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        names = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
        self.pieces = tuple(name.replace("Ġ", " ").replace("▁", " ") for name in names)

    def encode(self, text: str) -> Tokens:
        """See `TextCodec.encode`."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def decode(self, tokens: Tokens) -> str:
        """See `TextCodec.decode`."""
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False))


class Reencoded:
    """A drafter for the target made from `drafter`, which works in the other model's tokens.

    target, draft: the two codecs. begin: tokens that the other model wants before the text (its BOS). The context goes over as
    text; what is drafted comes back as text and is encoded **on its own**, since committed tokens cannot be merged any more.

    >>> from specref.chance import SampledChance
    >>> from specref.drafters.prompt_lookup import PromptLookup
    >>> target, draft = PieceCodec(["a", "b", "ab"]), PieceCodec(["a", "b"])
    >>> drafter = Reencoded(PromptLookup(longest=2), target, draft)
    >>> context = target.encode("baabba")                    # the other model looks up "ba", which was followed by "abb"
    >>> drafter.draft(context, 3, SampledChance(0)).tokens   # "abb" is the target's tokens "ab", "b"
    (2, 1)
    """

    def __init__(self, drafter: Drafter, target: TextCodec, draft: TextCodec, begin: Tokens = ()) -> None:
        self.drafter, self.target, self.draft_codec, self.begin = drafter, target, draft, begin

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        """See `Drafter.draft`: k tokens are drafted by the other model, and k of the target's or fewer proposed."""
        theirs = self.begin + self.draft_codec.encode(self.target.decode(context))
        drafted = self.drafter.draft(theirs, k, chance).tokens
        return Draft.chosen(self.target.encode(self.draft_codec.decode(drafted))[:k])


class SharedVocabulary:
    """`model`'s law over the tokens that it shares with the target, as a language model over the target's vocabulary.

    shared: {its token id: the target's token id}, as `shared_tokens` makes it. vocabulary: V of the target. Use it in
    `ModelDrafter`. The model reads the context as text in its own tokens (`begin` before it). Where it gives no shared token
    any probability, the law is uniform over the shared ones: any law will do that is the one drawn from.

    >>> from specref.models import TableModel
    >>> target, draft = PieceCodec(["a", "b", "ab"]), PieceCodec(["b", "c", "a"])
    >>> model = TableModel(3, seed=1)
    >>> model.next_law(draft.encode("ab"))                                                  # of b, c, a
    array([Fraction(9, 14), Fraction(1, 7), Fraction(3, 14)], dtype=object)
    >>> SharedVocabulary(model, target, draft, shared_tokens(target.pieces, draft.pieces), 3).next_law(target.encode("ab"))
    array([Fraction(1, 4), Fraction(3, 4), Fraction(0, 1)], dtype=object)

    Raises ValueError if nothing is shared, an id lies outside its vocabulary, or two of its tokens map to one.
    """

    def __init__(
        self,
        model: LanguageModel,
        target: TextCodec,
        draft: TextCodec,
        shared: Mapping[int, int],
        vocabulary: int,
        begin: Tokens = (),
    ) -> None:
        if not shared:
            raise ValueError("the two vocabularies share no token; use Reencoded instead")
        for theirs, ours in shared.items():
            if not (0 <= theirs < model.vocabulary and 0 <= ours < vocabulary):
                raise ValueError(
                    f"token {theirs} stands for {ours}, but the vocabularies have {model.vocabulary} and {vocabulary} tokens"
                )
        if len(set(shared.values())) < len(shared):
            raise ValueError("two tokens of the draft model stand for one of the target's; map each to a token of its own")
        self.model, self.target, self.draft_codec, self.begin = model, target, draft, begin
        self._theirs, self._ours = list(shared), list(shared.values())
        self._vocabulary = vocabulary

    @property
    def vocabulary(self) -> int:
        """V of the target."""
        return self._vocabulary

    def next_law(self, context: Tokens) -> Law:
        """The law `[V]` over the target's tokens after `context` in the target's tokens; zero outside the shared ones."""
        theirs = self.model.next_law(self.begin + self.draft_codec.encode(self.target.decode(context)))
        weights = theirs[self._theirs]
        if not weights.any():
            weights = weights + 1
        law = np.full(self._vocabulary, Fraction(0) if theirs.dtype == object else 0.0)
        law[self._ours] = weights
        return norm(law)

    def next_laws(self, context: Tokens, drafted: Tokens) -> list[Law]:
        """The laws `[k+1, V]` after the context and 0..k of the `drafted` tokens."""
        return [self.next_law(context + drafted[:i]) for i in range(len(drafted) + 1)]


def shared_tokens(target: Sequence[str], draft: Sequence[str]) -> dict[int, int]:
    """{id in `draft`: id in `target`} of the pieces of text that both hold. Of pieces that occur twice the first id counts.

    >>> shared_tokens(["a", "b", "ab"], ["b", "c", "a"])
    {0: 1, 2: 0}
    """
    ours: dict[str, int] = {}
    for token, piece in enumerate(target):
        ours.setdefault(piece, token)
    shared: dict[int, int] = {}
    for token, piece in enumerate(draft):
        if piece in ours:
            shared[token] = ours.pop(piece)
    return shared
