"""The reference engine: everything around the rule that a speculative decoding engine must get right, written to be read.

    models        models that see the past through cache entries only, so that a wrong cache gives a wrong output
    speculation   who drafts, how much, verified by which rule; the draft model and its own cache
    grammar       what a grammar allows after the committed tokens and a path
    sampling      from scores to the law that a request asked for at one position
    request       what survives from round to round, and what can be seen of it
    memory        pages: prefix reuse, publishing, release
    scheduler     who takes part in a step
    rounds        one round of one request, part by part
    metrics       what is reported
    engine        the loop around all that
    exact         the exact law of a request's output

Read them in this order. Each part is a small class whose methods can be overridden one at a time: a fault is one override.
"""

from __future__ import annotations

from specref.engine.engine import Engine
from specref.engine.grammar import Grammar
from specref.engine.metrics import Metrics
from specref.engine.models import CachedModel, CachedTableModel, CachedTransformer
from specref.engine.request import RequestState
from specref.engine.speculation import PLAIN, Speculation, by_draft_model, by_drafter

__all__ = [
    "PLAIN",
    "CachedModel",
    "CachedTableModel",
    "CachedTransformer",
    "Engine",
    "Grammar",
    "Metrics",
    "RequestState",
    "Speculation",
    "by_draft_model",
    "by_drafter",
]
