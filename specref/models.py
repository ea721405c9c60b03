"""Language models as the rules see them: a context in, the law of the next token out.

`TableModel` is a model small enough to compute with exactly; `TransformersModel` is any causal language model of transformers.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import numpy as np
import torch

from specref import laws
from specref.laws import Law

Tokens = tuple[int, ...]


class BadModel(ValueError):
    """A model cannot be read, or gives something that is not a law."""


class LanguageModel(Protocol):
    """A next-token law for every context."""

    @property
    def vocabulary(self) -> int:
        """V, the number of token ids."""

    def next_law(self, context: Tokens) -> Law:
        """The law `[V]` of the token that follows `context`."""

    def next_laws(self, context: Tokens, drafted: Tokens) -> list[Law]:
        """The laws `[k+1, V]` after the context and 0..k of the `drafted` tokens: one pass over prompt and drafts."""


Kind = Literal["plain", "zeros", "ties", "one_hot", "same", "near", "far", "disjoint", "mixed"]
_ROW_KINDS: tuple[Kind, ...] = ("plain", "zeros", "ties", "one_hot", "same", "near", "far", "disjoint")
_OF_A_TARGET = ("same", "near", "far", "disjoint")


class TableModel:
    """A language model whose rational next-token law depends on the context, made from a seed: the same seed, the same model.

    kind: what its rows look like. "plain" has full support; "zeros" leaves tokens out; "ties" repeats probabilities; "one_hot"
    is certain. With a `target` to draft for: "same" is its law, "near" lies close to it, "far" is it upside down, "disjoint"
    avoids its support where it leaves room. "mixed" takes another kind for each context.
    memory: how many last tokens the law depends on (None: the whole context). exact: Fractions, else float64.

    >>> TableModel(3, seed=1).next_law((0, 2))
    array([Fraction(4, 9), Fraction(1, 18), Fraction(1, 2)], dtype=object)
    """

    def __init__(
        self,
        vocabulary: int,
        seed: int | str,
        kind: Kind = "plain",
        *,
        target: TableModel | None = None,
        memory: int | None = None,
        exact: bool = True,
    ) -> None:
        if vocabulary < 2:
            raise ValueError(f"a vocabulary needs 2 tokens or more, got {vocabulary}")
        if kind not in get_args(Kind):
            raise ValueError(f"no kind of row is called {kind!r}; there are {', '.join(get_args(Kind))}")
        if kind in _OF_A_TARGET and target is None:
            raise ValueError(f"rows of kind {kind!r} are made from a target's: give target=")
        if target is not None and target.vocabulary != vocabulary:
            raise ValueError(f"vocabulary {vocabulary} is not the target's {target.vocabulary}")
        self._vocabulary, self.seed, self.kind, self.target = vocabulary, seed, kind, target
        self.memory, self.exact = memory, exact
        self._known: dict[Tokens, Law] = {}

    @property
    def vocabulary(self) -> int:
        """V, the number of token ids."""
        return self._vocabulary

    def next_law(self, context: Tokens) -> Law:
        """The law `[V]` of the token that follows `context`."""
        seen = context if self.memory is None else context[max(0, len(context) - self.memory) :]
        law = self._known.get(seen)
        if law is None:
            weights = self._weights(seen)
            law = laws.rational(weights)
            if not self.exact:
                law = law.astype(np.float64)
                law /= laws.total(law)
            self._known[seen] = law
        return law

    def next_laws(self, context: Tokens, drafted: Tokens) -> list[Law]:
        """The laws `[k+1, V]` after the context and 0..k of the `drafted` tokens."""
        return [self.next_law(context + drafted[:i]) for i in range(len(drafted) + 1)]

    def _weights(self, context: Tokens) -> list[int]:
        # A string seeds Python's generator through SHA-512, so the same model comes out on every platform.
        rng = random.Random(f"{self.seed}|{context}")
        kind = self.kind
        if kind == "mixed":
            kind = rng.choice(_ROW_KINDS if self.target else _ROW_KINDS[:4])
        weights = self._row(kind, context, rng)
        if not any(weights):
            weights[rng.randrange(self.vocabulary)] = 1
        return weights

    def _row(self, kind: Kind, context: Tokens, rng: random.Random) -> list[int]:
        V = self.vocabulary
        if self.target is not None and kind in _OF_A_TARGET:
            of_target = self.target._weights(context)
            if kind == "same":
                return of_target
            if kind == "near":
                return [4 * weight + (rng.randint(0, 2) if weight else 0) for weight in of_target]
            if kind == "far":
                return [1 + max(of_target) - weight for weight in of_target]
            return [rng.randint(1, 5) if weight == 0 else 0 for weight in of_target]
        if kind == "one_hot":
            certain = rng.randrange(V)
            return [int(token == certain) for token in range(V)]
        choices = {"ties": (1, 2), "zeros": (0, 0, 1, 2, 5)}.get(kind, tuple(range(1, 10)))
        return [rng.choice(choices) for _ in range(V)]


def sequence_law(model: LanguageModel, prompt: Tokens, length: int, eos: Sequence[int] = ()) -> dict[Tokens, Any]:
    """{tokens: probability} of plain sampling: up to `length` tokens after `prompt`, ending after the first of `eos`.

    >>> sum(sequence_law(TableModel(3, 0), (), 2).values())
    Fraction(1, 1)
    """
    finished: dict[Tokens, Any] = {}
    growing: dict[Tokens, Any] = {(): Fraction(1)}
    for _ in range(length):
        longer: dict[Tokens, Any] = {}
        for tokens, mass in growing.items():
            for token, probability in enumerate(model.next_law(prompt + tokens)):
                if probability:
                    into = finished if token in eos else longer
                    into[(*tokens, token)] = mass * probability
        growing = longer
    return finished | growing


class TransformersModel:
    """Any causal language model of transformers, with its key-value cache.

    model: a loaded `PreTrainedModel`; `TransformersModel.load(folder)` reads one. The laws are softmaxes of its logits, in
    float64. Consecutive calls share a cache: what the new context has in common with the last one is not computed again.

    >>> from specref import pretrained
    >>> model = TransformersModel.load(pretrained.path("draft"))
    >>> laws_of_two = model.next_laws((1, 20), drafted=(21,))              # [2, V]: after the context, and after the draft
    >>> len(laws_of_two), model.vocabulary, bool(abs(laws_of_two[1].sum() - 1) < 1e-9)
    (2, 114, True)
    """

    def __init__(self, model: Any) -> None:
        self.model = model.eval()
        self._cached: Tokens = ()
        self._cache: Any = None

    @classmethod
    def load(cls, folder: str | Path, dtype: torch.dtype = torch.float32, device: str = "cpu") -> TransformersModel:
        """Read a model from a local folder (or a hub id), in safetensors only. Raises BadModel if it cannot be read."""
        from safetensors import SafetensorError
        from transformers import AutoModelForCausalLM

        try:
            model, loaded = AutoModelForCausalLM.from_pretrained(
                str(folder), dtype=dtype, use_safetensors=True, output_loading_info=True
            )
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise BadModel(f"cannot read a causal language model from {str(folder)!r}: {reason}") from error
        if loaded["missing_keys"]:  # transformers would make them up
            missing = ", ".join(sorted(loaded["missing_keys"])[:3])
            raise BadModel(f"the weights in {str(folder)!r} lack {missing}")
        return cls(model.to(device))

    @property
    def vocabulary(self) -> int:
        """V, the number of token ids (the width of the logits)."""
        return int(self.model.config.get_text_config().vocab_size)

    def next_law(self, context: Tokens) -> Law:
        """The law `[V]` of the token that follows `context`, which must hold one token or more."""
        return self.next_laws(context, ())[0]

    def next_laws(self, context: Tokens, drafted: Tokens) -> list[Law]:
        """The laws `[k+1, V]` after the context and 0..k of the `drafted` tokens, in one forward pass."""
        logits = self.logits(context + drafted, len(drafted) + 1)
        return list(softmax(logits))

    def logits(self, tokens: Tokens, rows: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Raw float64 logits `[rows, V]` after the last `rows` prefixes of `tokens`. Raises BadModel if they are not finite."""
        if len(tokens) < rows:
            raise ValueError("a transformers model answers after one token or more; start the prompt with a BOS token")
        known = self._keep_common(tokens, limit=len(tokens) - rows)
        with torch.inference_mode():
            fresh = torch.tensor([tokens[known:]], device=self.model.device)
            out = self.model(input_ids=fresh, cache=self._cache, use_cache=True)
        self._cache, self._cached = out.cache, tokens
        wanted = out.logits[0, -rows:].double().cpu().numpy()
        if not np.isfinite(wanted).all():
            raise BadModel(f"the model gave logits that are not finite after {len(tokens)} tokens")
        result: np.ndarray[Any, np.dtype[np.float64]] = wanted
        return result

    def _keep_common(self, tokens: Tokens, limit: int) -> int:
        """Roll the cache back to the prefix it shares with `tokens` (at most `limit`), and say how long that is."""
        common = 0
        while common < min(limit, len(self._cached)) and self._cached[common] == tokens[common]:
            common += 1
        surplus = len(self._cached) - common
        if self._cache is None or (surplus and not self._cache.is_croppable):
            self._cache, self._cached = None, ()
            return 0
        if surplus:
            self._cache.crop(-surplus)
        return common


def softmax(logits: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The laws of rows of logits `[..., V]`, in float64.

    >>> softmax(np.log([[1.0, 3.0]]))
    array([[0.25, 0.75]])
    """
    weights: np.ndarray[Any, np.dtype[np.float64]] = np.exp(logits - logits.max(axis=-1, keepdims=True))
    result: np.ndarray[Any, np.dtype[np.float64]] = weights / weights.sum(axis=-1, keepdims=True)
    return result
