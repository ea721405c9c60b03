"""What an audit is about: the target and draft models, read by the judge itself, and the prompts that engines continue."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import transformers

from conformance.problems import UsageProblem
from conformance.protocols import Mode, Models, Scorer, Tokens
from conformance.scoring import ROWS, GuidedScorer, TransformersScorer, sequential_logits
from conformance.statistics.greedy import MARGIN_POSITIONS, Margin, hard_margin
from conformance.statistics.tolerance import Tolerance, difference, joined
from specref.engine.grammar import Grammar
from specref.models import BadModel

SHORTEST, LONGEST = 8, 48
"""Length of a prompt, in tokens: long enough that n-grams recur, short enough that outputs are most of the work."""
STEPWISE = 16
"""Calibration sequences that are also read token by token."""


@dataclass(frozen=True)
class Subject:
    """The models as the judge reads them.

    names: of target and draft, without the folders they lie in. texts: what a token looks like, for reports. dtype: in
    which the engine computes; in bfloat16 and float16 no single token convicts. read_grammar: reads a grammar over the target's
    tokens; None where these have no texts.
    """

    target: Scorer
    draft: Scorer
    prompts: PromptSource
    eos: Tokens
    target_name: str
    draft_name: str
    texts: Sequence[str]
    dtype: str = "float32"
    read_grammar: Callable[[str], Grammar] | None = None

    @property
    def in_words(self) -> str:
        """The models, for people."""
        names = f"Target model “{self.target_name}”, draft model “{self.draft_name}”"
        return f"{names}, vocabulary {self.target.vocabulary}"

    @property
    def architecture(self) -> str:
        """What the target's configuration calls its architecture, or "" for a table."""
        return str(self.target.model.config.model_type) if isinstance(self.target, TransformersScorer) else ""

    def under(self, mode: Mode) -> Subject:
        """The models as they are read in one mode: under its guidance. Asked again for the same mode, it changes nothing."""
        if mode.guidance == 1 or isinstance(self.target, GuidedScorer):
            return self
        guided = GuidedScorer(self.target, mode.guidance)
        found = replace(self, target=guided)
        vars(found)["tolerance"] = self.tolerance.times(guided.magnifies)  # which is not measured once more
        return found

    @cached_property
    def tolerance(self) -> Tolerance:
        """How far apart lawful ways of computing the same rows lie, measured once, without speculation: in batches of 32, one
        sequence at a time, and (for some of them) token by token from a cache.
        """
        if not isinstance(self.target, TransformersScorer):
            return Tolerance(0.0, 0.0, 0.0, MARGIN_POSITIONS)  # a table can be read in one way only
        return joined(self._differences(self.target))

    def _differences(self, target: TransformersScorer) -> Iterator[Tolerance]:
        """Sequence by sequence: the laws of 10,000 positions over a large vocabulary would not fit into memory."""
        sequences = self.calibration_sequences()
        for first in range(0, len(sequences), ROWS):
            some = sequences[first : first + ROWS]
            for place, (one, batched) in enumerate(zip(some, target.logits(some), strict=True), first):
                yield difference(batched, target.logits([one])[0])
                if place < STEPWISE:
                    yield difference(batched, sequential_logits(target, [one])[0])

    @cached_property
    def margin(self) -> Margin:
        """How far below the top logit a token may lie for numerical reasons alone: 4 times the tolerance.

        Raises WrongUse above the cap, and for a type in which no margin convicts.
        """
        if not isinstance(self.target, TransformersScorer | GuidedScorer):
            return Margin(0.0, "float64", 0)
        return hard_margin(self.tolerance, self.dtype)

    def calibration_sequences(self) -> list[tuple[Tokens, Tokens]]:
        """Prompts with continuations from the same source: a little over 10,000 positions to compute in two ways."""
        sequences: list[tuple[Tokens, Tokens]] = []
        positions = seed = 0
        while positions < MARGIN_POSITIONS:
            prompt = self.prompts.prompt(seed)
            continuation: Tokens = ()
            while len(continuation) < 64:
                seed += 1
                continuation += self.prompts.prompt(seed)
            sequences.append((prompt, continuation[:64]))
            positions += 64
        return sequences


class PromptSource(Protocol):
    """Gives prompts, the same ones for the same seed."""

    def prompt(self, seed: int) -> Tokens:
        """The prompt of one request."""


class RandomPrompts:
    """Prompts of random tokens, for models that know no text."""

    def __init__(self, vocabulary: int, avoid: Sequence[int] = (), first: Tokens = ()) -> None:
        self._ids = [token for token in range(vocabulary) if token not in avoid]
        self._first = first

    def prompt(self, seed: int) -> Tokens:
        """See `PromptSource.prompt`."""
        rng = random.Random(f"prompt {seed}")
        return self._first + tuple(rng.choices(self._ids, k=rng.randint(SHORTEST, LONGEST)))


class TextPrompts:
    """Prompts cut from the English text that every CPython ships (`pydoc_data.topics`)."""

    def __init__(self, token_ids: Sequence[int], first: Tokens) -> None:
        self._ids, self._first = token_ids, first

    def prompt(self, seed: int) -> Tokens:
        """See `PromptSource.prompt`."""
        rng = random.Random(f"prompt {seed}")
        length = rng.randint(SHORTEST, LONGEST)
        start = rng.randrange(len(self._ids) - length)
        return self._first + tuple(self._ids[start : start + length])


def read_subject(models: Models) -> Subject:
    """Read both models and try them. Raises UsageProblem if one cannot be used or they do not fit together."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    scorers = {}
    for role, folder in (("target", models.target), ("draft", models.draft)):
        try:
            scorers[role] = TransformersScorer.load(folder)
        except BadModel as problem:
            raise UsageProblem(f"the {role} model cannot be used: {problem}; give another with --{role}") from problem
    target, draft = scorers["target"], scorers["draft"]
    if target.vocabulary != draft.vocabulary:
        raise UsageProblem(
            f"the draft's vocabulary of {draft.vocabulary} is not the target's of {target.vocabulary}; "
            "give a draft that shares it with --draft, since drafts are verified token by token"
        )
    config = target.model.generation_config
    eos = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    eos_ids = tuple(token for token in eos if token is not None)
    first = (config.bos_token_id,) if config.bos_token_id is not None else ()
    prompts, texts, tokenizer = _prompts_and_texts(models.target, target.vocabulary, eos_ids, first)
    target_name, draft_name = models.target.resolve().name, models.draft.resolve().name  # "." has no name of its own
    read_grammar = None if tokenizer is None else cache(partial(_grammar, tokenizer))
    return Subject(target, draft, prompts, eos_ids, target_name, draft_name, texts, read_grammar=read_grammar)


def _grammar(tokenizer: Any, lark: str) -> Grammar:
    return Grammar.over_tokenizer(lark, tokenizer)


def _prompts_and_texts(folder: Path, vocabulary: int, eos: Tokens, first: Tokens) -> tuple[PromptSource, Sequence[str], Any]:
    """Text prompts through the model's own tokenizer where it has one that fits, and it; else random tokens, and None."""
    from pydoc_data.topics import topics

    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
        text = "\n".join(topics[name] for name in sorted(topics)[:20])
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    except Exception:  # no tokenizer, or one that cannot be read: tokenizers raises errors of every kind
        ids = []
    if not ids or max(ids) >= vocabulary:
        return RandomPrompts(vocabulary, avoid=eos, first=first), [str(token) for token in range(vocabulary)], None
    return TextPrompts(ids, first), [tokenizer.decode([token]) for token in range(vocabulary)], tokenizer
