"""Every known kind of fault has a control, and every control a place in the list of what is known."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import conformance.controls
from conformance.controls.faults import FAULTS
from conformance.controls.lawful import LAWFUL
from conformance.controls.lossy import LOSSY

ROOT = Path(__file__).parents[2]
KNOWN = tomllib.loads((Path(conformance.controls.__file__).parent / "catalogue.toml").read_text(encoding="utf-8"))
REGISTRY = {
    "faults": {one.id for one in FAULTS},
    "lawful": {one.id for one in LAWFUL},
    "lossy": {one.id for one in LOSSY},
    "reports": {one.id for one in FAULTS},
}
NOTES = ROOT.parent / "shared"
"""The notes that the list was made from; they are no part of the repository."""


def names(part: str) -> set[str]:
    return {name for section in KNOWN[part].values() for controls in section.values() for name in controls}


@pytest.mark.parametrize("part", REGISTRY)
def test_every_name_in_the_list_is_a_control_of_its_part(part: str) -> None:
    assert names(part) <= REGISTRY[part]


def test_every_control_has_a_place_in_the_list() -> None:
    assert REGISTRY["faults"] == names("faults") | names("reports")
    assert REGISTRY["lawful"] == names("lawful")
    assert REGISTRY["lossy"] == names("lossy")


def test_every_place_in_the_list_has_a_control() -> None:
    sections = [section for part in KNOWN.values() for section in part.values()]
    assert not [words for section in sections for words, controls in section.items() if not controls]


def sections(text: str) -> dict[str, int]:
    """How many bullets each section of the catalogue in the notes has; they are divided by semicolons."""
    catalogue = text.partition("## Catalogue by kind")[2]
    found = {}
    for name, body in re.findall(r"\*\*([A-Z][a-z ]+)\*\*(.*?)(?=\*\*[A-Z]|\Z)", catalogue, re.DOTALL):
        divided_by_commas = name == "Lossy by choice"
        found[name.lower()] = body.split(":")[1].count(",") + 1 if divided_by_commas else body.count(";") + 1
    return found


def test_the_bullets_of_a_section_are_counted() -> None:
    text = "## Catalogue by kind\n\n* **Sampler**: one;\n two; three.\n* **Numerics**: one.\n\n**Lossy by choice**: a, b: told."
    assert sections(text) == {"sampler": 3, "numerics": 1, "lossy by choice": 2}


@pytest.mark.skipif(not (NOTES / "faults.md").exists(), reason="the notes are not beside the repository")
def test_the_list_has_as_many_places_as_the_notes_have_bullets() -> None:
    noted = sections((NOTES / "faults.md").read_text(encoding="utf-8"))
    listed = {name: len(section) for part in ("faults", "lawful", "lossy") for name, section in KNOWN[part].items()}
    assert noted == {name: count for name, count in listed.items() if name != "the reference itself"}


@pytest.mark.skipif(not (NOTES / "public_reports.md").exists(), reason="the notes are not beside the repository")
def test_every_kind_of_public_report_is_in_the_list() -> None:
    text = (NOTES / "public_reports.md").read_text(encoding="utf-8")
    kinds = set(re.findall(r"^## ([A-Z])\. ", text, re.MULTILINE))
    assert kinds == {words.partition(":")[0] for words in KNOWN["reports"]["public reports"]}
