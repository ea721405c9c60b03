"""A request's sampling settings in one place: what an engine is asked for, and what the reference then computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from specref.processors.history import BadWords, FrequencyPenalty, LogitBias, MinTokens, PresencePenalty, RepetitionPenalty
from specref.processors.processed import Processor
from specref.processors.truncation import MinP, Temperature, TopK, TopP
from specref.stopping import Stops

ORDER = (
    "bad_words",
    "min_tokens",
    "logit_bias",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
)
"""The order in which `SamplingSettings.processors` applies them, unless told another."""


@dataclass(frozen=True, kw_only=True)
class SamplingSettings:
    """How tokens are drawn and when to stop; the defaults change nothing and stop at `max_tokens` alone.

    temperature: 0 is greedy. top_k: None keeps all. bad_words, stop_sequences: sequences of token ids. min_tokens: nothing in
    `eos` before that many tokens. seed: for engines that promise seeds; the reference takes its chance from elsewhere.

    >>> settings = SamplingSettings(max_tokens=8, temperature=0.5, top_k=40, presence_penalty=1.0)
    >>> settings.processors()
    (PresencePenalty(penalty=1.0, prompt_counts=False), Temperature(temperature=0.5), TopK(k=40))

    Raises ValueError, naming the value and the remedy, for a setting out of range.
    """

    max_tokens: int
    temperature: float | Fraction = 1.0
    top_k: int | None = None
    top_p: float | Fraction = 1.0
    min_p: float | Fraction = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    bad_words: Sequence[Sequence[int]] = ()
    min_tokens: int = 0
    eos: Sequence[int] = ()
    stop_sequences: Sequence[Sequence[int]] = ()
    seed: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "eos", tuple(self.eos))  # tuples, so that settings made from lists are equal and hashable
        for name in ("bad_words", "stop_sequences"):
            object.__setattr__(self, name, tuple(tuple(sequence) for sequence in getattr(self, name)))
        self.processors()  # each of these checks its own part
        self.stops()

    def processors(self, order: Sequence[str] = ORDER) -> tuple[Processor, ...]:
        """The processors that these settings ask for, in `order`; one that would change nothing is left out.

        Engines differ in order, and the order is part of the target's law: give the engine's own, as field names.

        >>> settings = SamplingSettings(max_tokens=8, temperature=0.5, min_p=0.1)
        >>> settings.processors((*ORDER[:6], "top_k", "top_p", "min_p", "temperature"))
        (MinP(m=0.1), Temperature(temperature=0.5))

        Raises ValueError unless `order` names every processor once.
        """
        if sorted(order) != sorted(ORDER):
            raise ValueError(f"order must name each of {', '.join(ORDER)} once, got {', '.join(order)}")
        wanted: dict[str, Processor | None] = {
            "bad_words": BadWords(self.bad_words) if self.bad_words else None,
            "min_tokens": MinTokens(self.min_tokens, self.eos) if self.min_tokens and self.eos else None,
            "logit_bias": LogitBias(self.logit_bias) if self.logit_bias else None,
            "repetition_penalty": RepetitionPenalty(self.repetition_penalty) if self.repetition_penalty != 1 else None,
            "presence_penalty": PresencePenalty(self.presence_penalty) if self.presence_penalty else None,
            "frequency_penalty": FrequencyPenalty(self.frequency_penalty) if self.frequency_penalty else None,
            "temperature": Temperature(self.temperature) if self.temperature != 1 else None,
            "top_k": TopK(self.top_k) if self.top_k is not None else None,
            "top_p": TopP(self.top_p) if self.top_p != 1 else None,
            "min_p": MinP(self.min_p) if self.min_p else None,
        }
        return tuple(processor for name in order if (processor := wanted[name]) is not None)

    def stops(self) -> Stops:
        """When the output ends."""
        return Stops(self.max_tokens, eos=self.eos, sequences=self.stop_sequences, min_tokens=self.min_tokens)
