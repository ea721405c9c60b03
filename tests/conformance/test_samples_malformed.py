"""Fifty ways in which a file of samples can be wrong; each gives one message that names the place and the remedy."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from conformance.samples.lines import SampleLine
from conformance.samples.reading import BadSamples, read, schema
from conformance.samples.survey import Defaults, survey

VOCABULARY, CONTEXT = 16, 64
ROUND = {"drafted": [5, 6], "accepted": 1, "emitted": [5, 7]}


def sample(request: int = 0, **changes: Any) -> dict[str, Any]:
    """A right line, changed. None leaves a field out."""
    whole = {"request": request, "prompt": [1, 2], "output": [5, 7], "settings": {"max_tokens": 2}, **changes}
    return {name: value for name, value in whole.items() if value is not None}


def lines(*entries: Any) -> bytes:
    return b"".join((entry if isinstance(entry, bytes) else json.dumps(entry).encode()) + b"\n" for entry in entries)


def traced(**changes: Any) -> bytes:
    return lines(sample(rounds=[{**ROUND, **changes}]))


def settings(**values: Any) -> bytes:
    return lines(sample(settings={"max_tokens": 4, **values}))


WHOLE = lines(*(sample(i) for i in range(9)))
OTHER = sample(1)
MARKUP, CONTROL = "<script>alert(1)</script>", "a\x1b[31mb\x00\x07"

MALFORMED: dict[str, tuple[bytes, str, str]] = {
    # kind: (the file, where, what is said of it)
    "empty file": (b"", "samples.jsonl", "holds no sample"),
    "blank lines only": (b"\n \n\n", "samples.jsonl", "holds no sample"),
    "only omitted requests": (lines({"request": 0, "omitted": "time-out"}), "samples.jsonl", "holds no sample"),
    "truncated last line": (WHOLE[:-20], "line 9", "is no JSON (EOF while parsing"),
    "truncated line in the middle": (lines(sample(), b'{"request": 1, "prompt": [1', sample(2)), "line 2", "is no JSON"),
    "truncated gzip": (gzip.compress(WHOLE)[:-12], "line", "the gzipped data cannot be unpacked"),
    "damaged gzip": (gzip.compress(WHOLE)[:12] + b"\xff" * 40, "line 1", "the gzipped data cannot be unpacked"),
    "gzip of nothing": (gzip.compress(b""), "samples.jsonl", "holds no sample"),
    "text": (b"Once upon a time\n", "line 1", "is no JSON"),
    "binary": (bytes(range(256)), "line 1", "is no JSON"),
    "UTF-16": ("{}".encode("utf-16"), "line 1", "is no JSON"),
    "invalid UTF-8": (lines(b'{"request": 0, "mode": "\xff\xfe"}'), "line 1", "is no JSON (invalid unicode"),
    "lone surrogate": (lines(b'{"request": 0, "mode": "\\ud800"}'), "line 1", "is no JSON"),
    "an array of samples": (json.dumps([sample()], indent=1).encode(), "line 1", "one JSON object on each line"),
    "a list on a line": (lines(sample(), [1, 2]), "line 2", "is no JSON object but [1, 2]"),
    "a text on a line": (lines("samples"), "line 1", "is no JSON object but 'samples'"),
    "null on a line": (lines(None), "line 1", "is no JSON object but None"),
    "deep nesting": (lines(b"[" * 100_000), "line 1", "is no JSON (recursion limit exceeded"),
    "a Parquet file that is none": (b"PAR1 and nothing else", "samples.jsonl", "no Parquet file that can be read"),
    "no request number": (lines(sample(request=None)), "line 1, request", "is missing"),  # type: ignore[arg-type]
    "a negative request": (lines(sample(-1)), "line 1, request", "must be 0 or more, not -1"),
    "a request of text": (lines({**sample(), "request": "0"}), "line 1, request", "must be a whole number, not '0'"),
    "a request of true": (lines({**sample(), "request": True}), "line 1, request", "must be a whole number, not True"),
    "the first request is not 0": (lines(sample(1)), "line 1, request", "request 0 of mode 'speculation' is missing"),
    "a gap": (lines(sample(), sample(3)), "line 2, request", "requests 1 to 2 of mode 'speculation' are missing"),
    "a huge gap": (lines(sample(10**30)), "line 1, request", "are missing before request 1000000"),
    "a duplicate request": (lines(sample(), sample(1), sample(1)), "line 3, request", "request 1 of mode 'speculation' stands"),
    "order of completion": (lines(sample(), sample(1), sample(2), sample(0)), "line 4, request", "in the order of submission"),
    "no prompt": (lines(sample(prompt=None)), "line 1, prompt", "is missing"),
    "an empty prompt": (lines(sample(prompt=[])), "line 1, prompt", "is empty"),
    "no output": (lines(sample(output=None)), "line 1, output", "is missing"),
    "an empty output": (lines(sample(output=[])), "line 1, output", '"finished": false'),
    "an output of text": (lines(sample(output="hello")), "line 1, output", "must be a list, not 'hello'"),
    "a token of text": (lines(sample(output=[5, "7"])), "line 1, output[1]", "must be a whole number, not '7'"),
    "a token of 7.0": (lines(sample(output=[5, 7.0])), "line 1, output[1]", "must be a whole number, not 7.0"),
    "a token of null": (lines(sample(output=[5, None])), "line 1, output[1]", "must be a whole number, not None"),
    "a negative token": (lines(sample(output=[5, -1])), "line 1, output[1]", "token id -1 is negative"),
    "a token outside": (
        lines(sample(), sample(1, output=[5, 16])),
        "line 2, output[1]",
        "outside the target's vocabulary of 16",
    ),
    "a prompt outside": (lines(sample(prompt=[99, 2])), "line 1, prompt[0]", "token id 99 lies outside"),
    "a huge token": (lines(sample(output=[10**40])), "line 1, output[0]", "lies outside the target's vocabulary"),
    "a draft outside": (traced(drafted=[5, 77]), "line 1, rounds[0].drafted[1]", "token id 77 lies outside"),
    "an unknown field": (
        lines({**sample(), "logprob": []}),
        "line 1",
        "no field is called 'logprob'; the fields are request, mode",
    ),
    "an unknown setting": (settings(temprature=1), "line 1, settings", "no field is called 'temprature'"),
    "an unknown field of a round": (
        traced(draft=[5]),
        "line 1, rounds[0]",
        "no field is called 'draft'; the fields are drafted",
    ),
    "settings of text": (lines(sample(settings="T=1")), "line 1, settings", "must be an object {...}, not 'T=1'"),
    "a temperature of NaN": (settings(temperature=float("nan")), "line 1, settings.temperature", "must be a finite number"),
    "a temperature of infinity": (
        settings(temperature=float("inf")),
        "line 1, settings.temperature",
        "must be a finite number",
    ),
    "a negative temperature": (settings(temperature=-1.0), "line 1, settings", "-1"),
    "a tiny temperature": (settings(temperature=1e-5), "line 1, settings.temperature", "is no temperature that can be judged"),
    "no limit at all": (settings(max_tokens=0), "line 1, settings", "max_tokens is 0"),
    "a minimum above the limit": (settings(min_tokens=9), "line 1, settings", "min_tokens"),
    "an empty stop sequence": (settings(stop_sequences=[[]]), "line 1, settings", "a stop sequence has no tokens"),
    "mixed temperatures": (
        lines(sample(), sample(1, settings={"max_tokens": 2, "temperature": 0.7})),
        "line 2, settings.temperature",
        "0.7 here, and 1.0 in line 1",
    ),
    "mixed limits": (lines(sample(), sample(1, settings={})), "line 2, settings.max_tokens", "is missing, and line 1"),
    "mixed rules": (
        lines(sample(rule="ratio"), sample(1, rule="block")),
        "line 2, rule",
        "'block' here, and 'ratio' in line 1",
    ),
    "rounds in some lines": (lines(sample(rounds=[ROUND]), sample(1)), "line 2, rounds", "is missing, and line 1"),
    "logprobs in some lines": (lines(sample(), sample(1, logprobs=[-1.0, -2.0])), "line 2, logprobs", "is given, and line 1"),
    "rounds that do not add up": (traced(emitted=[5]), "line 1, rounds", "do not add up to the output"),
    "more accepted than drafted": (traced(accepted=3), "line 1, rounds", "which cannot be"),
    "accepted what was not drafted": (traced(drafted=[9, 6]), "line 1, rounds", "which it had not drafted"),
    "a round that starts elsewhere": (traced(start=3), "line 1, rounds", "says that it starts at 3"),
    "a round without drafts' list": (traced(drafted=None), "line 1, rounds[0].drafted", "must be a list, not None"),
    "a log-probability of NaN": (
        lines(sample(logprobs=[-1.0, float("nan")])),
        "line 1, logprobs[1]",
        "must be a finite number",
    ),
    "a log-probability of infinity": (lines(sample(logprobs=[float("inf"), -1.0])), "line 1, logprobs[0]", "must be a finite"),
    "a log-probability of text": (lines(sample(logprobs=["-1"])), "line 1, logprobs[0]", "must be a number, not '-1'"),
    "markup in a mode": (lines(sample(mode=MARKUP)), "line 1, mode", "is no name"),
    "control characters in a mode": (lines(sample(mode=CONTROL)), "line 1, mode", "is no name"),
    "an empty mode": (lines(sample(mode="")), "line 1, mode", "is no name"),
    "a long mode": (lines(sample(mode="m" * 1_000_000)), "line 1, mode", "is no name"),
    "markup in a rule": (lines(sample(rule=MARKUP)), "line 1, rule", "is no name"),
    "markup in a round's rule": (traced(rule=MARKUP), "line 1, rounds[0].rule", "is no name"),
    "control characters in a reason": (lines({"request": 0, "omitted": CONTROL}), "line 1, omitted", "is no name"),
    "markup in a field's name": (lines({**sample(), MARKUP: 1}), "line 1", "no field is called '<script>"),
    "control characters in a field's name": (lines({**sample(), CONTROL: 1}), "line 1", r"no field is called 'a\x1b[31mb\x00"),
    "a line of a million characters": (lines(b"x" * 1_000_000), "line 1", "is no JSON"),
    "a list of a million characters": (lines([0] * 350_000), "line 1", "is no JSON object"),
    "a field's name of a million characters": (lines({**sample(), "f" * 1_000_000: 1}), "line 1", "no field is called 'fff"),
    "an output of half a million tokens": (lines(sample(output=[5] * 500_000)), "line 1", "the target reads 64"),
    "a file without line breaks": (b" " * ((1 << 24) + 9), "line 1", "it is longer than 16,777,216 bytes"),
    "outputs that hold their prompts": (
        lines(*(sample(i, prompt=[1, 2], output=[1, 2, 3]) for i in range(3))),
        "line 1, output",
        "all 3 outputs of mode",
    ),
    "the control under another name": (lines(sample(mode="Off")), "line 1, mode", "is not the control, whose name is 'off'"),
    "an omitted request with an output": (lines(sample(omitted="time-out")), "line 1, omitted", "has no output"),
}


def refusal(path: Path) -> str:
    with pytest.raises(BadSamples) as refused:
        survey(path, Defaults()).refuse_outside(VOCABULARY, CONTEXT)
    return str(refused.value)


@pytest.mark.parametrize("kind", MALFORMED)
def test_every_malformed_file_is_one_clear_message(tmp_path: Path, kind: str) -> None:
    data, where, says = MALFORMED[kind]
    path = tmp_path / "samples.jsonl"
    path.write_bytes(data)
    message = refusal(path)
    assert message.startswith(where), message
    assert says in message
    assert "; " in message, "it says what to do"
    assert message.isprintable()
    assert len(message) < 420
    assert str(tmp_path) not in message


def test_there_are_fifty_kinds_and_more() -> None:
    assert len(MALFORMED) >= 50


@pytest.mark.parametrize("what", ["absent", "a folder"])
def test_a_file_that_cannot_be_opened_says_so(tmp_path: Path, what: str) -> None:
    path = tmp_path / "samples.jsonl"
    if what == "a folder":
        path.mkdir()
    assert "cannot be read" in refusal(path)


def test_the_published_schema_is_that_of_the_reader() -> None:
    published = Path(SampleLine.__module__.replace(".", "/")).parent / "samples.schema.json"
    text = (Path(__file__).parents[2] / published).read_text()
    assert text == schema(), "write it again: specref judge --schema > conformance/samples/samples.schema.json"


@pytest.mark.parametrize(
    "kind",
    [
        "no request number",
        "a negative request",
        "a request of text",
        "a request of true",
        "no prompt",
        "an empty prompt",
        "an output of text",
        "a token of text",
        "a token of null",
        "an unknown field",
        "an unknown setting",
        "an unknown field of a round",
        "settings of text",
        "a log-probability of text",
        "markup in a mode",
        "control characters in a mode",
        "an empty mode",
    ],
)
def test_the_schema_alone_refuses_what_is_wrong_with_one_line(kind: str) -> None:
    validator = jsonschema.Draft202012Validator(json.loads(schema()))
    assert list(validator.iter_errors(json.loads(MALFORMED[kind][0])))


def test_the_schema_and_the_reader_take_a_line_with_everything_in_it(tmp_path: Path) -> None:
    everything = sample(
        mode="draft model, k = 2",
        seed=7,
        rule="ratio",
        rounds=[{**ROUND, "start": 0, "rule": "ratio", "reported_accepted": 1}],
        logprobs=[-1.5, "-inf"],
        finished=True,
        settings={"temperature": 0.5, "max_tokens": 4, "min_tokens": 1, "eos": [3], "stop_sequences": [[1, 2]]},
    )
    jsonschema.Draft202012Validator.check_schema(json.loads(schema()))
    jsonschema.validate(everything, json.loads(schema()))
    path = tmp_path / "samples.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + lines(everything).replace(b"\n", b"\r\n") + b"\n")
    ((number, read_back),) = read(path)
    assert number == 1
    assert read_back.the_output().logprobs == (-1.5, float("-inf"))
