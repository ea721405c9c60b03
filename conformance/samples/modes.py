"""What a line of samples must be among the others of its mode: in its place, complete, and of one kind with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from conformance.levels import LOWEST_TEMPERATURE
from conformance.samples.lines import SampleLine
from conformance.samples.reading import BadSamples, shown

LAW = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "bad_words",
    "min_tokens",
)
"""Settings that change the law of a token: they are the same in all sampled requests of a mode."""


@dataclass(frozen=True)
class Defaults:
    """What the command says of samples that do not. at_random: what was omitted had nothing to do with its tokens."""

    temperature: float = 1.0
    max_tokens: int | None = None
    at_random: bool = False


@dataclass
class ModeSurvey:
    """What was counted in one mode. first, example: the line that others are compared with. floor: tokens that these requests
    give whatever they say, where the target has ids that end an output (True) and where it has none (False). most: tokens that
    they may give. echoes: outputs that begin with their whole prompt. law: the line and settings that others are compared with.
    """

    name: str
    first: int
    example: SampleLine
    submitted: int = 0
    sampled: int = 0
    greedy: int = 0
    tokens: int = 0
    most: int = 0
    echoes: int = 0
    floor: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    k: int = 0
    unfinished: int = 0
    not_judged: int = 0
    omitted: list[str] = field(default_factory=list)
    law: tuple[int, dict[str, Any]] | None = None

    @property
    def rule(self) -> str:
        """The declared rule."""
        return self.example.rule

    @property
    def has_rounds(self) -> bool:
        """Whether rounds come with the outputs."""
        return self.example.rounds is not None

    @property
    def has_logprobs(self) -> bool:
        """Whether log-probabilities come with the outputs."""
        return self.example.logprobs is not None

    @property
    def has_limits(self) -> bool:
        """Whether requests say how long an output may be."""
        return self.example.settings.max_tokens is not None

    @property
    def temperature(self) -> float:
        """Of the sampled requests; 1 if there are none."""
        return float(self.law[1]["temperature"]) if self.law else 1.0


def in_order(number: int, sample: SampleLine, mode: ModeSurvey) -> None:
    """Leaving requests out, or taking them in the order in which they finished, would accuse a correct engine."""
    due, got = mode.submitted, sample.request
    if got < due:
        what = f"request {got} of mode {sample.mode!r} stands here again, or after request {due - 1}"
        raise BadSamples(number, "request", what, "give each request once, in the order of submission")
    if got > due:
        missing, are = (f"request {due}", "is") if got == due + 1 else (f"requests {due} to {shown(got - 1)}", "are")
        declare = f'declare each as {{"request": {due}, "mode": ..., "omitted": "reason"}}'
        what = f"{missing} of mode {sample.mode!r} {are} missing before request {shown(got)}"
        remedy = f"sort the lines by request if they stand further down; what is left out biases the rest: add it, or {declare}"
        raise BadSamples(number, "request", what, remedy)
    mode.submitted += 1


def refuse_content(number: int, sample: SampleLine) -> None:
    """A request that was omitted says nothing else."""
    more = sample.model_fields_set - {"request", "mode", "omitted", "rule"}
    if more:
        what = f"a request that was omitted has no {sorted(more)[0]}"
        raise BadSamples(number, "omitted", what, 'leave that out, or "omitted"; for a part of an output say "finished": false')


def complete(number: int, sample: SampleLine) -> None:
    """A request that was not omitted has its prompt and its output."""
    for name in ("prompt", "output"):
        if getattr(sample, name) is None:
            raise BadSamples(number, name, "is missing", "add it; `specref judge --schema` prints the format")
    if not sample.output and sample.finished:
        remedy = 'write the tokens; or "finished": false if the request was cut off, or "omitted" with the reason'
        raise BadSamples(number, "output", "is empty, and a finished request has a token at least", remedy)
    for place, value in enumerate(sample.logprobs or ()):
        if float(value) != float(value) or float(value) == float("inf"):
            what = f'must be a finite number (or "-inf"), not {shown(value)}'
            raise BadSamples(
                number, f"logprobs[{place}]", what, "write what the engine returned, or leave logprobs out of all lines"
            )


def one_kind(number: int, sample: SampleLine, mode: ModeSurvey, defaults: Defaults) -> None:
    """All samples of a mode have the same fields and the same law."""
    for name, given, before in (
        ("rounds", sample.rounds is not None, mode.has_rounds),
        ("logprobs", sample.logprobs is not None, mode.has_logprobs),
        ("settings.max_tokens", sample.settings.max_tokens is not None, mode.has_limits),
    ):
        if given != before:
            here, there = ("is given", "has none") if given else ("is missing", "has it")
            what = f"{here}, and line {mode.first} of mode {sample.mode!r} {there}"
            raise BadSamples(number, name, what, "give it in all lines of a mode or in none, or name another mode")
    if sample.rule != mode.rule:
        what = f"{shown(sample.rule)} here, and {shown(mode.rule)} in line {mode.first} of mode {sample.mode!r}"
        raise BadSamples(number, "rule", what, "give each rule a mode of its own")
    settings = sample.settings.model_dump()
    temperature = defaults.temperature if settings["temperature"] is None else settings["temperature"]
    if not (temperature == 0 or temperature >= LOWEST_TEMPERATURE):
        what = f"{shown(temperature)} is no temperature that can be judged"
        raise BadSamples(number, "settings.temperature", what, f"use 0 (greedy), or {LOWEST_TEMPERATURE:g} or more")
    law = {**{name: settings[name] for name in LAW}, "temperature": temperature}
    law["eos"] = settings["eos"] if settings["min_tokens"] else None
    if temperature > 0 and mode.law is None:
        mode.law = number, law
    if temperature > 0 and mode.law is not None and mode.law[1] != law:
        line, settled = mode.law
        name = next(name for name in law if settled[name] != law[name])
        what = f"{shown(law[name])} here, and {shown(settled[name])} in line {line} of mode {sample.mode!r}"
        raise BadSamples(number, f"settings.{name}", what, 'settings may not be mixed: give each its own "mode"')
