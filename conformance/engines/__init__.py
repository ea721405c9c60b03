"""Adapters: one module per engine, each with a factory that takes `Models` and gives an `Engine`.

The registry knows how to load an engine and what to install when it is missing; nothing else here knows an engine by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec


@dataclass(frozen=True)
class Registered:
    """An engine that can be audited. package: what must be importable. install: how to get it. about: one line.

    share: of a level's samples that it is audited with; below 1 where samples are dear.
    """

    name: str
    factory: str
    package: str
    install: str
    about: str
    share: float = 1.0

    @property
    def importable(self) -> bool:
        """Whether its package is installed in this environment."""
        return find_spec(self.package) is not None


REGISTRY = (
    Registered(
        "specref",
        "conformance.engines.own:make",
        "specref",
        "pip install specref",
        "our own reference: ratio rule, token matching, one-hot and greedy verification",
        share=0.25,  # written to be read: it samples one request at a time
    ),
    Registered(
        "transformers",
        "conformance.engines.transformers:make",
        "transformers",
        "pip install transformers",
        "Hugging Face transformers: assisted generation with a draft model, and prompt lookup",
    ),
)

BY_NAME = {entry.name: entry for entry in REGISTRY}
