"""vLLM's own counts of its speculation, under the names of `Engine.metrics`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

NAMES = {
    "vllm:spec_decode_num_drafts": "drafts",
    "vllm:spec_decode_num_draft_tokens": "draft_tokens",
    "vllm:spec_decode_num_accepted_tokens": "accepted",
    "vllm:generation_tokens": "emitted",
}
PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos"
LINE = re.compile(r"(?P<name>[\w:]+?)(?:_total)?(?:\{(?P<labels>.*)\})? (?P<value>\S+)")


def from_objects(metrics: Iterable[Any]) -> dict[str, float]:
    """From what `LLM.get_metrics()` returns: counters with a `value`, and a vector with `values` by position."""
    counts: dict[str, float] = {}
    for metric in metrics:
        if metric.name in NAMES:
            counts[NAMES[metric.name]] = counts.get(NAMES[metric.name], 0.0) + float(metric.value)
        elif metric.name == PER_POSITION:
            for position, value in enumerate(metric.values):
                counts[f"accepted_per_position.{position}"] = float(value)
    return counts


def from_text(page: str) -> dict[str, float]:
    """From the server's `/metrics` page.

    >>> from_text('vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 7.0')
    {'accepted_per_position.1': 7.0}
    """
    counts: dict[str, float] = {}
    for line in page.splitlines():
        found = LINE.fullmatch(line)
        if found is None:
            continue
        name, value = found["name"], float(found["value"])
        if name in NAMES:
            counts[NAMES[name]] = counts.get(NAMES[name], 0.0) + value
        elif name == PER_POSITION:
            position = re.search(r'position="(\d+)"', found["labels"] or "")
            if position:
                counts[f"accepted_per_position.{position[1]}"] = value
    return counts
