"""A file of samples, line by line. Whatever is wrong with it is one message that names the line, the field and the remedy."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError

from conformance.problems import UsageProblem
from conformance.samples.lines import RoundLine, SampleLine, SettingsLine

LONGEST = 1 << 24
"""Bytes of a line: a file without line breaks must not fill the memory."""
GZIP, PARQUET, BOM = b"\x1f\x8b", b"PAR1", b"\xef\xbb\xbf"


class BadSamples(UsageProblem):
    """A file of samples cannot be judged. The message names the line, the field where there is one, and what to do."""

    def __init__(self, line: int, field: str, what: str, remedy: str, unit: str = "line") -> None:
        where = f"{unit} {line}" + (f", {field}" if field else "") if line else field
        super().__init__(f"{where}: {what}; {remedy}" if where else f"{what}; {remedy}")


def shown(value: object, limit: int = 40) -> str:
    r"""A value as a message shows it: short, and without a character that a terminal or a page would obey.

    >>> shown("\x1b[31m<b>"), shown([1] * 99, 9)
    ("'\\x1b[31m<b>'", '[1, 1, 1…')
    """
    text = ascii(value if not isinstance(value, str) else value[:limit])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def read(path: Path) -> Iterator[tuple[int, SampleLine]]:
    """(line number, sample) of every line that is not blank. JSON Lines, also gzipped, or Parquet. Raises BadSamples."""
    try:
        with open(path, "rb") as file:
            start = file.read(4)
            file.seek(0)
            if start == PARQUET:
                yield from _rows(path)
            elif start[:2] == GZIP:
                with gzip.open(file) as unpacked:
                    yield from _lines(unpacked)
            else:
                yield from _lines(file)
    except OSError as error:
        what = error.strerror or str(error)
        raise BadSamples(0, path.name, f"cannot be read ({what})", "give a file of samples (JSON Lines, or Parquet)") from error


def _lines(file: IO[bytes] | gzip.GzipFile) -> Iterator[tuple[int, SampleLine]]:
    number = 0
    while True:
        number += 1
        try:
            line = file.readline(LONGEST + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            remedy = "the file was cut off or damaged: copy it again"
            raise BadSamples(number, "", f"the gzipped data cannot be unpacked ({shown(str(error), 60)})", remedy) from error
        if not line:
            return
        if len(line) > LONGEST:
            raise BadSamples(number, "", f"it is longer than {LONGEST:,} bytes", "write one sample on each line")
        if number == 1:
            line = line.removeprefix(BOM)
        if line.strip():
            try:
                yield number, SampleLine.model_validate_json(line)
            except ValidationError as error:
                raise _problem(number, error, "line") from error


def _rows(path: Path) -> Iterator[tuple[int, SampleLine]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        remedy = "pip install pyarrow, or convert it to JSON Lines"
        raise BadSamples(0, path.name, "reading Parquet needs pyarrow, which is not installed here", remedy) from error
    number = 0
    try:
        for batch in parquet.ParquetFile(path).iter_batches():
            for row in batch.to_pylist():
                number += 1
                try:
                    yield number, SampleLine.model_validate(_without_nulls(row))
                except ValidationError as problem:
                    raise _problem(number, problem, "row") from problem
    except pyarrow.ArrowException as error:
        what = f"it is no Parquet file that can be read ({shown(str(error), 60)})"
        raise BadSamples(0, path.name, what, "write it again, or convert it to JSON Lines") from error


def _without_nulls(value: Any) -> Any:
    """A column that some rows leave out holds nulls there."""
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


_WORDS: Mapping[str, str] = {
    "int_type": "a whole number",
    "float_type": "a number",
    "list_type": "a list",
    "tuple_type": "a pair [token id, bias]",
    "string_type": "a text",
    "bool_type": "true or false",
    "model_type": "an object {...}",
    "finite_number": "a finite number",
}
_NAMES = {SampleLine: "a sample", RoundLine: "a round", SettingsLine: "settings"}


def _problem(number: int, error: ValidationError, unit: str) -> BadSamples:
    """The first problem of a line, in our words."""
    first = error.errors(include_url=False)[0]
    kind, field = first["type"], _field(first["loc"])
    found, context = first.get("input"), first.get("ctx", {})
    see = "`specref judge --schema` prints the format"
    if kind == "json_invalid":
        said = str(context.get("error", "")).replace(" at line 1 column ", " at column ")  # it was given one line of the file
        what = f"is no JSON ({shown(said, 100)[1:-1]})"
        if unit == "line" and number == 1:
            return BadSamples(number, "", what, "write one JSON object on each line (jq -c '.[]' makes lines of an array)")
        return BadSamples(number, "", what, "the line was cut off or damaged: write this sample again")
    if kind == "model_type" and not field:
        return BadSamples(number, "", f"is no JSON object but {shown(found)}", f"write each sample as an object; {see}", unit)
    if kind == "missing":
        return BadSamples(number, field, "is missing", f"add it; {see}", unit)
    if kind == "extra_forbidden":
        name = shown(str(first["loc"][-1]), 60)
        known = _fields_of(first["loc"])
        return BadSamples(number, _field(first["loc"][:-1]), f"no field is called {name}", f"the fields are {known}", unit)
    if kind in _WORDS:
        return BadSamples(number, field, f"must be {_WORDS[kind]}, not {shown(found)}", see, unit)
    if kind == "greater_than_equal":
        return BadSamples(
            number, field, f"must be {context.get('ge')} or more, not {shown(found)}", "number requests from 0", unit
        )
    if kind == "string_pattern_mismatch":
        what = f"{shown(found)} is no name"
        return BadSamples(number, field, what, "use 1 to 80 characters, without < and > and control characters", unit)
    if kind == "too_short":
        return BadSamples(
            number, field, "is empty", "give the token ids that were continued (a BOS token, where there is one)", unit
        )
    said = str(first["msg"])
    return BadSamples(number, field, f"{said[:1].lower()}{said[1:]}, not {shown(found)}", see, unit)


def _field(place: Sequence[int | str]) -> str:
    """Where in a line, as a person writes it: `rounds[2].drafted[0]`."""
    text = ""
    for step in place:
        if isinstance(step, int):
            text += f"[{step}]"
        elif not (step == "float" or "[" in step):  # which member of a union, of no interest to a reader
            text += f".{step}" if text else step
    return shown(text, 62)[1:-1]


def _fields_of(place: Sequence[int | str]) -> str:
    """The fields of the object that an unknown field stands in."""
    kind = RoundLine if place[0] == "rounds" else SettingsLine if place[0] == "settings" and len(place) > 1 else SampleLine
    return ", ".join(kind.model_fields)


def schema() -> str:
    """The format as JSON Schema."""
    return json.dumps(SampleLine.model_json_schema(), indent=2) + "\n"
