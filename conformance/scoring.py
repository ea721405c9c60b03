"""Who supplies p and q: the judge's own reading of the models, never the engine's word.

A scorer reads what the engine produced once, teacher-forced, and gives the raw logits at every output token. q, the law a leak
would lean towards, is read the same way from the draft model, or follows from the n-gram that a prompt-lookup draft would copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import log_softmax

from conformance.protocols import Scorer, Tokens
from specref.chance import SampledChance
from specref.drafters.prompt_lookup import PromptLookup
from specref.models import BadModel, LanguageModel, TransformersModel, softmax

Logits = npt.NDArray[np.float64]
ROWS = 32
"""Sequences scored in one forward pass."""


class TransformersScorer:
    """Logits of a transformers model, read in blocks of `ROWS` sequences padded on the right."""

    def __init__(self, model: TransformersModel) -> None:
        self.model = model.model

    @classmethod
    def load(cls, folder: Path) -> TransformersScorer:
        """Read the model in float32 and try it once. Raises BadModel if it cannot be read or its logits are not finite."""
        model = TransformersModel.load(folder)
        model.next_law((0,))
        return cls(model)

    @property
    def vocabulary(self) -> int:
        """V, the number of token ids."""
        return int(self.model.config.get_text_config().vocab_size)

    def logits(self, sequences: Sequence[tuple[Tokens, Tokens]]) -> list[Logits]:
        """For each (prompt, output): float64 logits `[len(output), V]`, row j for output token j given all before it."""
        result: list[Logits] = []
        for first in range(0, len(sequences), ROWS):
            result.extend(self._rows(sequences[first : first + ROWS]))
        return result

    def _rows(self, sequences: Sequence[tuple[Tokens, Tokens]]) -> list[Logits]:
        # The last output token is read by nobody. Padding stands on the right, where causal attention cannot see it.
        read = [(prompt + output)[:-1] if output else prompt for prompt, output in sequences]
        width = max(map(len, read))
        ids = torch.tensor([[*tokens, *[0] * (width - len(tokens))] for tokens in read], device=self.model.device)
        with torch.inference_mode():
            out = self.model(input_ids=ids, use_cache=False).logits
        spans = [(len(prompt) - 1, len(prompt) - 1 + len(output)) for prompt, output in sequences]
        rows = [out[i, start:end].double().cpu().numpy() for i, (start, end) in enumerate(spans)]
        for row in rows:
            if not np.isfinite(row).all():
                raise BadModel("the target model gave logits that are not finite; nothing can be judged by it")
        return rows


class TableScorer:
    """Logits of any `LanguageModel`: the logarithms of its laws (minus infinity where a token is impossible)."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model

    @property
    def vocabulary(self) -> int:
        """V, the number of token ids."""
        return self._model.vocabulary

    def logits(self, sequences: Sequence[tuple[Tokens, Tokens]]) -> list[Logits]:
        """See `TransformersScorer.logits`."""
        result = []
        for prompt, output in sequences:
            laws = self._model.next_laws(prompt, output)[: len(output)]
            table = np.array(laws, dtype=np.float64).reshape(len(output), self.vocabulary)
            with np.errstate(divide="ignore"):
                result.append(np.log(table))
        return result


class GuidedScorer:
    """The logits of `plain` under classifier-free guidance: the target's with the prompt, drawn away from those without it.

    s c - (s - 1) u, where c and u are log-probabilities of the whole text, and of its last prompt token with the output alone.
    Source: `UnbatchedClassifierFreeGuidanceLogitsProcessor` of transformers, and arXiv 2306.17806.

    >>> class Longer:  # a target that likes token 1 the more, the longer its context is
    ...     vocabulary = 2
    ...     def logits(self, sequences):
    ...         return [np.array([[0.0, len(prompt) + j] for j in range(len(output))]) for prompt, output in sequences]
    >>> rows = GuidedScorer(Longer(), 2.0).logits([((5, 6, 7), (1, 1))])[0]
    >>> (rows[:, 1] - rows[:, 0]).round(9).tolist()  # 2 * 3 - 1, and 2 * 4 - 2
    [5.0, 6.0]
    """

    def __init__(self, plain: Scorer, scale: float) -> None:
        self.plain, self.scale = plain, scale

    @property
    def vocabulary(self) -> int:
        """V, the number of token ids."""
        return self.plain.vocabulary

    @property
    def magnifies(self) -> float:
        """How many times as far apart two lawful ways of computing a row can lie."""
        return abs(self.scale) + abs(self.scale - 1)

    def logits(self, sequences: Sequence[tuple[Tokens, Tokens]]) -> list[Logits]:
        """See `TransformersScorer.logits`."""
        whole = self.plain.logits(sequences)
        alone = self.plain.logits([(prompt[-1:], output) for prompt, output in sequences])
        with_it, without = ([log_softmax(rows, axis=1) for rows in some] for some in (whole, alone))
        return [self.scale * c - (self.scale - 1) * u for c, u in zip(with_it, without)]


def laws_at(logits: Logits, temperature: float) -> Logits:
    """The laws `[n, V]` that sampling at `temperature` > 0 draws from.

    >>> laws_at(np.log([[1.0, 4.0]]), temperature=2.0)
    array([[0.33333333, 0.66666667]])
    """
    return softmax(logits / temperature)


LOOKUP = PromptLookup(longest=2)
"""What a prompt-lookup draft copies: the continuation of the last one or two tokens where they occurred first."""


def copying_laws(prompt: Tokens, output: Tokens, p: Logits) -> Logits:
    """q `[len(output), V]` of a prompt-lookup draft: certain of the copied token, and p itself where nothing matches.

    >>> copying_laws((5, 6, 7, 5, 6), (1,), np.full((1, 8), 0.125))[0]
    array([0., 0., 0., 0., 0., 0., 0., 1.])
    """
    q = p.copy()
    unasked = SampledChance(0)
    for place in range(len(output)):
        for token in LOOKUP.draft(prompt + output[:place], 1, unasked).tokens:
            q[place] = 0
            q[place, token] = 1
    return q


def sequential_logits(scorer: TransformersScorer, sequences: Sequence[tuple[Tokens, Tokens]]) -> list[Logits]:
    """The logits of `scorer.logits` computed another lawful way: one sequence at a time, token by token, from the cache.

    The largest difference between the two is how far apart two non-speculative configurations of one model lie.
    """
    result = []
    for prompt, output in sequences:
        cache: Any = None
        rows = []
        fresh = prompt
        for token in output:
            with torch.inference_mode():
                out = scorer.model(input_ids=torch.tensor([fresh], device=scorer.model.device), cache=cache, use_cache=True)
            cache, fresh = out.cache, (token,)
            rows.append(out.logits[0, -1].double().cpu().numpy())
        result.append(np.array(rows).reshape(len(output), scorer.vocabulary))
    return result
