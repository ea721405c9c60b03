"""What the judge asks of an engine, and what an engine answers. An adapter is a class that satisfies `Engine`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from specref.processors import ORDER, SamplingSettings

if TYPE_CHECKING:
    from conformance.components import Component

Tokens = tuple[int, ...]


class Unsupported(Exception):
    """The engine cannot do what was asked. The message names the setting; an adapter never works around it."""


class NotHere(Unsupported):
    """This machine lacks what the mode needs (a GPU, a package, another model): it is not run, rather than refused."""


class Ended(Exception):
    """What the adapter runs has ended by itself. The adapter is well: asked again, it starts another."""


@dataclass(frozen=True)
class Models:
    """Folders of the models under audit: the target, and the model that drafts for it."""

    target: Path
    draft: Path


RULES = (
    *("undeclared", "target", "greedy", "ratio", "block", "token_matching", "one_hot"),
    *("without_replacement", "traversal", "target_only", "sequential_one_hot"),
)
"""Rules that a mode may declare, beside those that change the law and have one of `LOSSY_RULES` in their name."""
LOSSY_RULES = ("typical", "threshold", "relaxed", "synthetic", "lenient", "ensemble")
"""Rules that change the law on purpose."""


@dataclass(frozen=True)
class Mode:
    """One way of running an engine.

    name: unique within the engine. speculation: the settings that switch it on ({} is off); where drafts are bad on purpose,
    their key "hostile" says in words how, as {"hostile": "always token 0"}, and DRAFT-2 is judged. options: settings that are
    not speculation's, as {"cache": "static"}; a mode's control is the mode without speculation that has the same options.
    rule: the verification rule that the engine declares (a name of `specref.rules`, or "undeclared"). draft_law: what a leak
    would leak towards: "draft model", "n-gram" or "" when there is no draft. exact_draft: drafts are drawn from the draft
    model's law under the request's own settings and nothing else, so that acceptance and residual can be judged by it; False
    where the draft is truncated, quantised, or sees fewer settings, all of which is lawful. exposes_rounds: outputs come with
    their rounds.
    drafter: the name of the component that drafts in it while it samples, where that is audited alone, or "". cache: that of
    the component whose rounds show its cache.
    brief: the mode only completes the pairs of a speculation with an option: it is judged under LAW, in the cases that show
    them, and asked nothing else.
    not_here: what this machine or the models lack for the mode, or "": the plan then promises nothing of it, and it is not
    asked for, with no pair of models. An adapter that learns it only when asked, or for one pair alone, raises `NotHere`.
    prefix_block: tokens of a block of the cache in which it finds what earlier requests have read, 1 if it finds any prefix; 0
    if it keeps nothing from one request to the next.
    lossy: how the mode changes the law on purpose, in words, or "". ensemble: the weight of the target in the law that a lossy
    mode declares, `w p + (1 - w) q`, at drafted places alone where it exposes its rounds; 1 for any other. guidance: the scale
    of classifier-free guidance, which is part of p (`conformance.scoring.GuidedScorer`); 1 is none. order: in which order its
    processors apply.
    promises: what the engine's documentation promises, as {"SEED-1": link}; see `conformance.requirements` for the names.
    logprobs: of which law its log-probabilities are: "raw" (the target's logits), "processed", or "" if it gives none.
    """

    name: str
    speculation: dict[str, Any] = field(default_factory=dict)
    rule: str = "undeclared"
    draft_law: str = ""
    exposes_rounds: bool = False
    lossy: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    ensemble: float = 1.0
    order: tuple[str, ...] = ORDER
    promises: dict[str, str] = field(default_factory=dict)
    logprobs: str = ""
    exact_draft: bool = False
    brief: bool = False
    drafter: str = ""
    not_here: str = ""
    cache: str = ""
    guidance: float = 1.0
    prefix_block: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", tuple(self.order))

    @property
    def speculates(self) -> bool:
        """Whether drafts are made at all."""
        return bool(self.speculation)


@dataclass(frozen=True)
class Request:
    """One prompt to continue, as token ids, with a seed of its own.

    grammar: what the output must follow, in the dialect of Lark that `specref.engine.grammar` reads, or "". Only modes that
    promise GRAMMAR-3 are asked for one.
    """

    prompt: Tokens
    settings: SamplingSettings
    seed: int
    grammar: str = ""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        settings = dataclasses.asdict(self.settings)
        settings["logit_bias"] = list(self.settings.logit_bias.items())
        plain = {"prompt": self.prompt, "settings": settings, "seed": self.seed}
        return {**plain, "grammar": self.grammar} if self.grammar else plain

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Request:
        """From the plain data of `to_json`."""
        settings = dict(data["settings"])
        settings["logit_bias"] = dict(settings["logit_bias"])
        for name in ("eos", "bad_words", "stop_sequences"):
            settings[name] = tuple(tuple(item) if isinstance(item, list) else item for item in settings[name])
        return cls(tuple(data["prompt"]), SamplingSettings(**settings), data["seed"], data.get("grammar", ""))


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
    """What one request gave: new tokens (prompt not included) and, where exposed, its rounds.

    logprobs: what the engine returned as log-probabilities of its tokens, as many as it returned; None if it returns none.
    rows: what it returned for the whole vocabulary, for its first few tokens, as many as its adapter hands over (`few_rows`).
    """

    tokens: Tokens
    rounds: tuple[RecordedRound, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    rows: tuple[tuple[float, ...], ...] = field(default=(), repr=False)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Output:
        """From plain data that an engine's process sent. Raises ValueError, TypeError or KeyError for anything else."""
        tokens = _tokens(data["tokens"])
        logprobs = None if data.get("logprobs") is None else tuple(float(value) for value in data["logprobs"])
        rows = tuple(tuple(float(value) for value in row) for row in data.get("rows", ()))
        if data.get("rounds") is None:
            return cls(tokens, None, logprobs, rows)
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
        return cls(tokens, rounds, logprobs, rows)


def few_rows(vocabulary: int) -> int:
    """Of how many tokens of an output those of the whole vocabulary are handed over: a few, and fewer of a large one.

    >>> few_rows(114), few_rows(128_000), few_rows(1_000_000)
    (6, 2, 1)
    """
    return max(1, min(6, 2**18 // vocabulary))


def _tokens(data: Any) -> Tokens:
    if not isinstance(data, list | tuple) or not all(type(token) is int for token in data):
        raise ValueError(f"token ids must be a list of integers, got {str(data)[:80]}")
    return tuple(data)


class Engine(Protocol):
    """An engine under audit. `make(models)` builds one; it lives in a process of its own.

    name and version say what was audited; `rule`s and lossy modes are declared in `modes()`. An adapter is a subclass, and
    overrides `metrics` and `components` if the engine offers them.
    """

    name: str
    version: str

    def modes(self, k: int) -> Sequence[Mode]:
        """Every way of running it that is audited, with `k` drafts per round; the first is speculation off."""

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """One output per request, in the order of the requests, which an engine that has batches runs together.

        Raises Unsupported, naming the setting, for one that it cannot honour; NotHere for a mode that this machine cannot run.
        """

    def metrics(self, mode: Mode) -> Mapping[str, float] | None:
        """The engine's own counts of its speculation in `mode` since it started, or None if it reports none.

        Names: rounds, drafts (rounds with a draft), draft_tokens, accepted, emitted, accepted_per_position.0, .1 ...
        """
        return None

    def components(self) -> Sequence[Component]:
        """Its parts that can be audited alone, and its rounds as seen from within: see `conformance.components`."""
        return ()

    def not_asked(self) -> Sequence[str]:
        """What it is spared because a fault of it would spoil what comes after, each with the script that shows the fault."""
        return ()

    def renew(self) -> bool:
        """End all that was asked anything, so that no later answer can depend on it. False: only a new process does that."""
        return False

    def close(self) -> None:
        """Release what it holds."""


class Scorer(Protocol):
    """Who supplies p: the target's raw logits, computed independently of the engine."""

    @property
    def vocabulary(self) -> int:
        """V, the number of token ids."""

    def logits(self, sequences: Sequence[tuple[Tokens, Tokens]]) -> list[npt.NDArray[np.float64]]:
        """For each (prompt, output): float64 logits `[len(output), V]`, row j for output token j given all before it."""
