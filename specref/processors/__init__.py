"""Logits processors: temperature, top-k, top-p, min-p, penalties, bias, min tokens, bad words.

A `Processor` changes a row of scores, knowing the prompt and the output before it. `Processed(model, processors,
prompt_length)` is a language model again, so verification rules, `generate` and exact enumeration meet processed laws only.
`SamplingSettings` holds a request's settings and makes its processors in a stated order.
"""

from specref.processors.history import BadWords, FrequencyPenalty, LogitBias, MinTokens, PresencePenalty, RepetitionPenalty
from specref.processors.processed import Processed, Processor
from specref.processors.rows import NothingLeft
from specref.processors.settings import ORDER, SamplingSettings
from specref.processors.truncation import Joint, MinP, Temperature, TopK, TopP, Truncation

__all__ = [
    "ORDER",
    "BadWords",
    "FrequencyPenalty",
    "Joint",
    "LogitBias",
    "MinP",
    "MinTokens",
    "NothingLeft",
    "PresencePenalty",
    "Processed",
    "Processor",
    "RepetitionPenalty",
    "SamplingSettings",
    "Temperature",
    "TopK",
    "TopP",
    "Truncation",
]
