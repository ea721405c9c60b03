"""A small trained model family, in transformers' format, for tests and audits of speculative decoding.

`target` writes Python's documentation one byte at a time; `draft` is a cheap model that it often accepts; `poor_draft` is
one that it seldom accepts. All share a tokenizer. `medusa`, `eagle` and `eagle3` draft from the target's hidden states;
`specref.drafters` loads them. README.md says how all were made and gives their measured figures.

    >>> from transformers import AutoModelForCausalLM
    >>> target = AutoModelForCausalLM.from_pretrained(path("target"))
    >>> target.config.vocab_size
    114
"""

from __future__ import annotations

import json
from pathlib import Path

_NAMES = ("target", "draft", "poor_draft")
_DRAFTERS = ("medusa", "eagle", "eagle3")
_HERE = Path(__file__).parent


def names() -> tuple[str, ...]:
    """The names of the family's models, the target first.

    >>> names()
    ('target', 'draft', 'poor_draft')
    """
    return _NAMES


def drafter_names() -> tuple[str, ...]:
    """The names of what drafts from the target's own hidden states, in the layouts that engines load.

    >>> drafter_names()
    ('medusa', 'eagle', 'eagle3')
    """
    return _DRAFTERS


def path(name: str) -> Path:
    """The folder of one model, for `from_pretrained`, or for any engine that reads transformers' format; or of one drafter.

    >>> sorted(file.name for file in path("draft").iterdir())[:2]
    ['config.json', 'generation_config.json']

    Raises ValueError for a name that is not in the family.
    """
    if name not in (*_NAMES, *_DRAFTERS):
        raise ValueError(f"no pretrained model is called {name!r}; the known ones are {', '.join((*_NAMES, *_DRAFTERS))}")
    return _HERE / name


def held_out(family: Path = _HERE) -> list[str]:
    """The documents that no model of the family was trained on: good prompts, and what `measure` measures on.

    >>> len(held_out())
    67
    """
    documents: list[str] = json.loads((family / "held_out.json").read_text(encoding="utf-8"))
    return documents
