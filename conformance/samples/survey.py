"""What a file of samples holds, counted before anything is judged, and what keeps it from being judged."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.protocols import Request, Tokens
from conformance.samples.lines import SampleLine
from conformance.samples.modes import Defaults, ModeSurvey, complete, in_order, one_kind, refuse_content
from conformance.samples.reading import BadSamples, read, shown
from conformance.sampling import FEWEST_ECHOES, NonsenseOutput, check_output
from specref.processors import SamplingSettings

OFF = "off"
"""The mode of samples without speculation: the control."""


@dataclass
class Survey:
    """What a file holds. largest: the largest token id of all, with the line and field where it stands; longest likewise."""

    modes: dict[str, ModeSurvey] = field(default_factory=dict)
    largest: tuple[int, int, str] = (-1, 0, "")
    longest: tuple[int, int] = (0, 0)
    digest: str = ""

    def refuse_outside(self, vocabulary: int, context: int | None) -> None:
        """Raise BadSamples unless all ids lie in the target's vocabulary, and all sequences fit its context (in tokens)."""
        token, line, place = self.largest
        if token >= vocabulary:
            remedy = "give the ids of the target's own tokenizer (--target names the model)"
            raise BadSamples(
                line, place, f"token id {shown(token)} lies outside the target's vocabulary of {vocabulary}", remedy
            )
        if context is not None and self.longest[0] > context:
            length, line = self.longest
            what = f"prompt and output are {length} tokens, and the target reads {context}"
            raise BadSamples(line, "", what, "leave out such requests before sampling, not after it")


def survey(path: Path, defaults: Defaults) -> Survey:
    """Read the whole file once. Raises BadSamples."""
    found = Survey()
    for number, sample in read(path):
        mode = found.modes.get(sample.mode)
        if mode is None:
            mode = found.modes[sample.mode] = ModeSurvey(sample.mode, number, sample)
        in_order(number, sample, mode)
        if sample.omitted is not None:
            refuse_content(number, sample)
            mode.omitted.append(sample.omitted)
            continue
        if mode.example.omitted is not None:
            mode.first, mode.example = number, sample
        complete(number, sample)
        one_kind(number, sample, mode, defaults)
        _count_ids(number, sample, found)
        _count(number, sample, mode, defaults, found.largest[0] + 1)
    if not any(mode.sampled or mode.greedy for mode in found.modes.values()):
        raise BadSamples(
            0, path.name, "holds no sample", "write one JSON object on each line; `specref judge --schema` prints the format"
        )
    for mode in found.modes.values():
        _refuse_what_is_meant_otherwise(mode)
    found.digest = digest(path)
    return found


def _refuse_what_is_meant_otherwise(mode: ModeSurvey) -> None:
    """Raise BadSamples for a mode that would accuse its engine of how the file was written."""
    if mode.name != OFF and mode.name.lower() == OFF:
        what = f"mode {shown(mode.name)} is not the control, whose name is {OFF!r}"
        raise BadSamples(mode.first, "mode", what, f"write {OFF!r} for samples without speculation, or another name")
    if mode.echoes >= FEWEST_ECHOES and mode.echoes == mode.sampled + mode.greedy:
        what = f"all {mode.echoes} outputs of mode {shown(mode.name)} begin with their own prompt"
        raise BadSamples(mode.first, "output", what, "give the new tokens alone, without the prompt")


def judged(path: Path, defaults: Defaults) -> Iterator[tuple[int, SampleLine]]:
    """The samples that are judged, in order: of each mode those before its first omitted request, or all if `at_random`."""
    ended: set[str] = set()
    for number, sample in read(path):
        if sample.omitted is not None and not defaults.at_random:
            ended.add(sample.mode)
        if sample.omitted is None and sample.mode not in ended:
            yield number, sample


def digest(path: Path) -> str:
    """SHA-256 of the file: what is judged is what was counted."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def request_of(sample: SampleLine, defaults: Defaults, eos: Tokens) -> Request:
    """The request as the checks take it. Without a limit, the output's own length stands for it. Raises ValueError."""
    given = {name: value for name, value in sample.settings.model_dump().items() if value is not None}
    output = sample.output or ()
    settings: dict[str, Any] = {"temperature": defaults.temperature, "eos": eos, "max_tokens": defaults.max_tokens, **given}
    if settings["max_tokens"] is None:
        settings["max_tokens"] = max(len(output), settings.get("min_tokens", 0), 1)
    settings["logit_bias"] = dict(settings.get("logit_bias", ()))
    seed = sample.seed if sample.seed is not None else sample.request
    return Request(tuple(sample.prompt or ()), SamplingSettings(**settings), seed)


def _count_ids(number: int, sample: SampleLine, found: Survey) -> None:
    settings = sample.settings
    lists = {"prompt": sample.prompt, "output": sample.output, "settings.eos": settings.eos}
    for name in ("stop_sequences", "bad_words"):
        lists |= {f"settings.{name}[{i}]": one for i, one in enumerate(getattr(settings, name) or ())}
    lists["settings.logit_bias"] = [token for token, _ in settings.logit_bias or ()]
    for i, one in enumerate(sample.rounds or ()):
        lists |= {f"rounds[{i}].drafted": one.drafted, f"rounds[{i}].emitted": one.emitted}
    for place, ids in lists.items():
        if ids:
            low, high = min(ids), max(ids)
            if low < 0:
                what = f"token id {shown(low)} is negative"
                raise BadSamples(number, f"{place}[{ids.index(low)}]", what, "leave padding and placeholders out")
            if high > found.largest[0]:
                found.largest = high, number, f"{place}[{ids.index(high)}]"
    length = len(sample.prompt or ()) + len(sample.output or ())
    if length > found.longest[0]:
        found.longest = length, number


def _count(number: int, sample: SampleLine, mode: ModeSurvey, defaults: Defaults, vocabulary: int) -> None:
    output = sample.the_output()
    try:
        request = request_of(sample, defaults, ())
    except ValueError as error:
        raise BadSamples(number, "settings", shown(str(error), 200)[1:-1], "correct it") from error
    if output.tokens:
        try:
            check_output(request, output, vocabulary)
        except NonsenseOutput as nonsense:
            raise BadSamples(
                number, "rounds", str(nonsense), "correct the trace, or leave rounds out of all lines"
            ) from nonsense
    if mode.omitted and not defaults.at_random:
        mode.not_judged += 1
        return
    mode.unfinished += not sample.finished
    prompt = tuple(sample.prompt or ())
    mode.echoes += len(prompt) > 1 and output.tokens[: len(prompt)] == prompt
    mode.k = max([mode.k, *(len(one.drafted) for one in sample.rounds or ())])
    if request.settings.temperature == 0:
        mode.greedy += 1
        return
    mode.sampled += 1
    mode.tokens += len(output.tokens)
    mode.most += request.settings.max_tokens
    for target_ends in mode.floor:
        mode.floor[target_ends] += _floor(sample, request.settings, defaults, target_ends)


def _floor(sample: SampleLine, settings: SamplingSettings, defaults: Defaults, target_ends: bool) -> int:
    """How many tokens an engine that is right gives in any case: what may end the output early does so at once."""
    if not sample.finished:
        return 0
    if not (sample.settings.max_tokens or defaults.max_tokens):
        return 1
    ends = target_ends if sample.settings.eos is None else bool(sample.settings.eos)
    return max(settings.min_tokens, 1) if ends or settings.stop_sequences else settings.max_tokens
