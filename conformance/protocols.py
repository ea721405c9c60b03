"""What the judge asks of an engine, and what an engine answers. An adapter is a class that satisfies `Engine`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from specref.processors import SamplingSettings

Tokens = tuple[int, ...]


class Unsupported(Exception):
    """The engine cannot do what was asked. The message names the setting; an adapter never works around it."""


@dataclass(frozen=True)
class Models:
    """Folders of the models under audit: the target, and the model that drafts for it."""

    target: Path
    draft: Path


@dataclass(frozen=True)
class Mode:
    """One way of running an engine.

    name: unique within the engine. speculation: the settings that switch it on ({} is off). rule: the verification rule that
    the engine declares (a name of `specref.rules`, or "undeclared"). draft_law: what a leak would leak towards: "draft model",
    "n-gram" or "" when there is no draft. exposes_rounds: outputs come with their rounds. lossy: how the mode changes the law
    on purpose, in words, or "".
    """

    name: str
    speculation: dict[str, Any] = field(default_factory=dict)
    rule: str = "undeclared"
    draft_law: str = ""
    exposes_rounds: bool = False
    lossy: str = ""

    @property
    def speculates(self) -> bool:
        """Whether drafts are made at all."""
        return bool(self.speculation)


@dataclass(frozen=True)
class Request:
    """One prompt to continue, as token ids, with a seed of its own."""

    prompt: Tokens
    settings: SamplingSettings
    seed: int

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        settings = dataclasses.asdict(self.settings)
        settings["logit_bias"] = list(self.settings.logit_bias.items())
        return {"prompt": self.prompt, "settings": settings, "seed": self.seed}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Request:
        """From the plain data of `to_json`."""
        settings = dict(data["settings"])
        settings["logit_bias"] = dict(settings["logit_bias"])
        for name in ("eos", "bad_words", "stop_sequences"):
            settings[name] = tuple(tuple(item) if isinstance(item, list) else item for item in settings[name])
        return cls(tuple(data["prompt"]), SamplingSettings(**settings), data["seed"])


@dataclass(frozen=True)
class RecordedRound:
    """A round as the engine exposes it. reported_accepted is the engine's own count: recorded, never trusted."""

    start: int
    drafted: Tokens
    accepted: int
    emitted: Tokens
    rule: str = "undeclared"
    reported_accepted: int | None = None


@dataclass(frozen=True)
class Output:
    """What one request gave: new tokens (prompt not included) and, where exposed, its rounds."""

    tokens: Tokens
    rounds: tuple[RecordedRound, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Output:
        """From plain data that an engine's process sent. Raises ValueError, TypeError or KeyError for anything else."""
        tokens = _tokens(data["tokens"])
        if data.get("rounds") is None:
            return cls(tokens)
        rounds = tuple(
            RecordedRound(
                int(entry["start"]),
                _tokens(entry["drafted"]),
                int(entry["accepted"]),
                _tokens(entry["emitted"]),
                str(entry["rule"]),
                None if entry["reported_accepted"] is None else int(entry["reported_accepted"]),
            )
            for entry in data["rounds"]
        )
        if tuple(token for round in rounds for token in round.emitted) != tokens:
            raise ValueError("the emitted parts of the rounds do not add up to the output")
        return cls(tokens, rounds)


def _tokens(data: Any) -> Tokens:
    if not isinstance(data, list | tuple) or not all(type(token) is int for token in data):
        raise ValueError(f"token ids must be a list of integers, got {str(data)[:80]}")
    return tuple(data)


class Engine(Protocol):
    """An engine under audit. `make(models)` builds one; it lives in a process of its own.

    name and version say what was audited; `rule`s and lossy modes are declared in `modes()`.
    """

    name: str
    version: str

    def modes(self, k: int) -> Sequence[Mode]:
        """Every way of running it that is audited, with `k` drafts per round; the first is speculation off."""

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """One output per request, in the order of the requests. Raises Unsupported for a setting it cannot honour."""

    def close(self) -> None:
        """Release what it holds."""


class Scorer(Protocol):
    """Who supplies p: the target's raw logits, computed independently of the engine."""

    @property
    def vocabulary(self) -> int:
        """V, the number of token ids."""

    def logits(self, sequences: Sequence[tuple[Tokens, Tokens]]) -> list[npt.NDArray[np.float64]]:
        """For each (prompt, output): float64 logits `[len(output), V]`, row j for output token j given all before it."""
