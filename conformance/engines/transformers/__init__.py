"""Hugging Face transformers: `generate` with every kind of speculation that it offers, and its parts alone.

Declared rules, from its own documentation and source: where a drafter hands over its laws, the ratio rule of speculative
sampling (`_speculative_sampling`); where it hands over none (prompt lookup), token matching; greedy at temperature 0.
"""

from conformance.engines.transformers.engine import TransformersEngine, make

__all__ = ["TransformersEngine", "make"]
