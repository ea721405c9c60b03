"""The JSON Schema of report.json, from the types that are written; `report.schema.json` beside this module publishes it.

Write it again with `python -m conformance.reporting.schema`; a test holds the two together.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from conformance.findings import SCHEMA, EngineReport

PUBLISHED = Path(__file__).with_name("report.schema.json")


class _Numbers(GenerateJsonSchema):
    """JSON has no infinities and no NaN: they are written as {"float": "-inf"}."""

    def float_schema(self, schema: Any) -> JsonSchemaValue:
        """A number, or one of those."""
        odd = {"type": "object", "properties": {"float": {"enum": ["inf", "-inf", "nan"]}}, "required": ["float"]}
        return {"anyOf": [{"type": "number"}, odd]}


def report_schema() -> dict[str, Any]:
    """The schema of a whole report.json; its `schema` says which version it describes."""
    engines = TypeAdapter(list[EngineReport]).json_schema(schema_generator=_Numbers)
    shared = engines.pop("$defs")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A run of specref: the audits of one or more engines",
        "type": "object",
        "properties": {"schema": {"const": SCHEMA}, "engines": engines},
        "required": ["schema", "engines"],
        "$defs": shared,
    }


def text() -> str:
    """The schema as it is published."""
    return json.dumps(report_schema(), indent=2) + "\n"


if __name__ == "__main__":
    PUBLISHED.write_text(text(), encoding="utf-8")
