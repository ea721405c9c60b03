"""One line of a file of samples: a request, what the engine answered, and what it said about how it came to it.

The classes here are the format: the published JSON Schema (`samples.schema.json`) is made from them, and they read every line.
Evidence folders hold the same lines.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from conformance.protocols import Output, RecordedRound, Request, Tokens
from specref.processors import SamplingSettings

SCHEMA_ID = "specref-samples-1"

Ids = Annotated[list[int], Field(description="Token ids, each from 0 to V - 1.")]
Number = Annotated[float, Field(allow_inf_nan=False)]
NAMES = r"^[^\x00-\x1f\x7f<>]{1,80}$"
"""Names are shown in reports and terminals: no control characters, no markup."""


class Line(BaseModel):
    """What the parts of a line have in common: exact types, no unknown fields."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class RoundLine(Line):
    """One round of speculation: drafts, how many of them the verifier accepted, and what was emitted after stops."""

    drafted: Ids
    accepted: Annotated[int, Field(description="The verifier's count before stops.")]
    emitted: Annotated[list[int], Field(description="What was kept of the accepted drafts and the token after them.")]
    start: Annotated[int | None, Field(description="Output length before the round. Default: what earlier rounds emitted.")] = (
        None
    )
    rule: Annotated[str | None, Field(pattern=NAMES, description="The verification rule. Default: the sample's.")] = None
    reported_accepted: Annotated[int | None, Field(description="The engine's own count, for metrics; never trusted.")] = None


class SettingsLine(Line):
    """Sampling settings that differ from the defaults of `specref judge`. The seed stands beside them."""

    temperature: Annotated[Number | None, Field(description="0 is greedy. Default: --temperature.")] = None
    max_tokens: Annotated[int | None, Field(description="The limit of the output. Without it, limits are not judged.")] = None
    min_tokens: Annotated[int | None, Field(description="No end before that many tokens.")] = None
    eos: Annotated[list[int] | None, Field(description="Ids that end an output. Default: the target's own; [] for none.")] = (
        None
    )
    stop_sequences: Annotated[list[list[int]] | None, Field(description="Sequences of ids that end an output.")] = None
    top_k: Annotated[int | None, Field(description="Only the k most probable tokens. Default: all.")] = None
    top_p: Annotated[Number | None, Field(description="Only the most probable tokens of that mass. Default: all.")] = None
    min_p: Annotated[Number | None, Field(description="Only tokens of that share of the largest probability.")] = None
    repetition_penalty: Annotated[Number | None, Field(description="Default: 1, none.")] = None
    presence_penalty: Annotated[Number | None, Field(description="Default: 0, none.")] = None
    frequency_penalty: Annotated[Number | None, Field(description="Default: 0, none.")] = None
    logit_bias: Annotated[list[tuple[int, Number]] | None, Field(strict=False, description="[token id, bias] pairs.")] = None
    bad_words: Annotated[list[list[int]] | None, Field(description="Sequences of ids that must not occur.")] = None


class SampleLine(Line):
    """A request and its answer; or a request that was omitted, with the reason.

    Requests of a mode are numbered from 0 in the order in which they were submitted, without gaps.
    """

    model_config = ConfigDict(
        title="A sample of an engine's output (one line of JSON Lines)",
        json_schema_extra={
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": SCHEMA_ID,
            "anyOf": [{"required": ["prompt", "output"]}, {"required": ["omitted"]}],
        },
    )

    request: Annotated[int, Field(ge=0, description="Number of the request in its mode, in the order of submission, from 0.")]
    mode: Annotated[
        str,
        Field(
            pattern=NAMES,
            description='The way of running the engine. "off" is the control: the same engine without speculation, which shows '
            "whether a fault is speculation's. Any other name is a way of speculating.",
        ),
    ] = "speculation"
    prompt: Annotated[list[int] | None, Field(min_length=1, description="Token ids of the prompt, all of them.")] = None
    output: Annotated[list[int] | None, Field(description="Token ids of the answer, its end included, without the prompt.")] = (
        None
    )
    seed: Annotated[int | None, Field(description="The request's seed, for the record.")] = None
    rule: Annotated[str, Field(pattern=NAMES, description="The rule that the engine declares for this mode.")] = "undeclared"
    settings: SettingsLine = SettingsLine()
    rounds: Annotated[list[RoundLine] | None, Field(description="The rounds; their emitted parts add up to the output.")] = None
    logprobs: Annotated[
        list[float | Literal["nan", "inf", "-inf"]] | None,
        Field(description="Natural logarithms, one for each token of the output."),
    ] = None
    finished: Annotated[
        bool,
        Field(
            description="False if the output was cut off (a time-out, say) and is only its beginning: its tokens are judged, "
            "and that it has no end is not held against the engine."
        ),
    ] = True
    omitted: Annotated[
        str | None,
        Field(pattern=NAMES, description="Why this request has no output; then it has no other field but request and mode."),
    ] = None

    def the_output(self) -> Output:
        """The answer as the checks take it; whatever does not fit together is left as it is."""
        tokens, rounds, emitted = tuple(self.output or ()), [], 0
        for one in self.rounds or ():
            start = emitted if one.start is None else one.start
            rule = one.rule or self.rule
            rounds.append(
                RecordedRound(start, tuple(one.drafted), one.accepted, tuple(one.emitted), rule, one.reported_accepted)
            )
            emitted += len(one.emitted)
        logprobs = None if self.logprobs is None else tuple(float(value) for value in self.logprobs)
        return Output(tokens, None if self.rounds is None else tuple(rounds), logprobs)


def entry(number: int, mode: str, request: Request, output: Output) -> dict[str, Any]:
    """A request and its output as the plain data of a line, whatever the engine answered.

    >>> request = Request((5, 6), SamplingSettings(max_tokens=4, temperature=0.5), seed=7)
    >>> entry(0, "off", request, Output((8,)))
    {'request': 0, 'mode': 'off', 'prompt': [5, 6], 'output': [8], 'seed': 7, 'settings': {'max_tokens': 4, 'temperature': 0.5}}
    """
    found: dict[str, Any] = {
        "request": number,
        "mode": _name(mode),
        "prompt": _ids(request.prompt),
        "output": _ids(output.tokens),
        "seed": request.seed,
        "settings": _changed(request.settings),
    }
    if output.rounds is not None:
        found["rounds"] = [
            {
                "drafted": _ids(one.drafted),
                "accepted": int(one.accepted),
                "emitted": _ids(one.emitted),
                "start": int(one.start),
                "rule": _name(one.rule),
                "reported_accepted": one.reported_accepted,
            }
            for one in output.rounds
        ]
    if output.logprobs is not None:
        found["logprobs"] = [value if math.isfinite(value) else str(value) for value in output.logprobs]
    return found


def _ids(tokens: Tokens) -> list[int]:
    return [int(token) for token in tokens]  # an engine in this process may have given NumPy's integers


def _changed(settings: SamplingSettings) -> dict[str, Any]:
    """The settings that differ from the defaults, and max_tokens, which has none."""
    plain = SamplingSettings(max_tokens=settings.max_tokens)
    found: dict[str, Any] = {"max_tokens": settings.max_tokens}
    for name in SettingsLine.model_fields:
        value = getattr(settings, name)
        if value != getattr(plain, name):
            found[name] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return [list(item) for item in value.items()]
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return float(value) if isinstance(value, Fraction) else value


def _name(text: str) -> str:
    """The text as a name that the format allows: an engine may call its modes anything."""
    return re.sub(r"[\x00-\x1f\x7f<>]", "?", text)[:80] or "?"
