"""A model seen through processors is again a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from specref.laws import Law
from specref.models import LanguageModel, Tokens
from specref.processors.rows import Row, law_of, rows_of


class Processor(ABC):
    """Changes a row of scores, knowing what came before it. It keeps no state: the same history, the same change."""

    @abstractmethod
    def __call__(self, row: Row, prompt: Tokens, output: Tokens) -> Row:
        """The changed row `[V]` for the token that follows `prompt + output`; `row` itself is left as it was."""

    def ids(self) -> Iterable[int]:
        """The token ids that its settings name, checked against the vocabulary when a model is wrapped."""
        return ()


class Processed:
    """`model` seen through `processors`, applied in order: a language model again.

    prompt_length: how many tokens of every context are the prompt; the rest is output. Drafted tokens are part of the context,
    so each row of `next_laws` has the penalties of its own position: that is what makes speculation with penalties lossless.
    The order is part of the target's law: audit an engine with the engine's own.

    >>> from specref.models import TableModel
    >>> from specref.processors import TopK
    >>> model = TableModel(3, seed=1)
    >>> model.next_law((0, 2))
    array([Fraction(4, 9), Fraction(1, 18), Fraction(1, 2)], dtype=object)
    >>> Processed(model, [TopK(2)], prompt_length=1).next_law((0, 2))
    array([Fraction(8, 17), Fraction(0, 1), Fraction(9, 17)], dtype=object)

    Raises ValueError for a token id outside the vocabulary, or a context shorter than its prompt; NothingLeft if the processors
    forbid every token.
    """

    def __init__(self, model: LanguageModel, processors: Sequence[Processor], prompt_length: int) -> None:
        if prompt_length < 0:
            raise ValueError(f"prompt_length is {prompt_length}; it counts tokens, so it must be 0 or more")
        for processor in processors:
            for token in processor.ids():
                if not 0 <= token < model.vocabulary:
                    raise ValueError(f"{processor} names token {token}, outside the vocabulary of {model.vocabulary}")
        self.model, self.processors, self.prompt_length = model, tuple(processors), prompt_length

    @property
    def vocabulary(self) -> int:
        """V, the number of token ids."""
        return self.model.vocabulary

    def next_law(self, context: Tokens) -> Law:
        """The law `[V]` of the token that follows `context`, after every processor."""
        return self.next_laws(context, ())[0]

    def next_laws(self, context: Tokens, drafted: Tokens) -> list[Law]:
        """The laws `[k+1, V]` after the context and 0..k of the `drafted` tokens, each with its own history."""
        rows = rows_of(self.model, context, drafted)
        return [law_of(self._process(row, context + drafted[:i])) for i, row in enumerate(rows)]

    def _process(self, row: Row, context: Tokens) -> Row:
        if len(context) < self.prompt_length:
            raise ValueError(f"a context of {len(context)} tokens is shorter than its prompt of {self.prompt_length}")
        prompt, output = context[: self.prompt_length], context[self.prompt_length :]
        for processor in self.processors:
            row = processor(row, prompt, output)
        return row
