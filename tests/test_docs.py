from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest
import yaml
from doc_blocks import ROOT, Reader, blocks, matches

from conformance import cli
from conformance.checks.law import sample_of_laws
from conformance.components import Component
from conformance.findings import EXIT_CODES
from conformance.levels import LEVELS, AuditSettings
from conformance.protocols import Mode, RecordedRound
from conformance.reporting.suspects import SUSPECTS
from conformance.requirements import catalogue
from conformance.run import models_named
from conformance.statistics import BetTable, FaultBank, ModePlan, Threshold, leak
from conformance.statistics.bets import STANDARD_BETS, law_of
from conformance.statistics.plan import GROUPS
from conformance.subject import read_subject

NAV = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
IN_NAV = [entry if isinstance(entry, str) else next(iter(entry.values())) for entry in NAV]
PAGES = [*(ROOT / "docs" / name for name in IN_NAV), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
IDS = [page.name for page in PAGES]
LONG = [page for page in PAGES if any(block.how == "long" for block in blocks(page))]


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_a_reader_who_does_what_a_page_says_sees_what_it_shows(page: Path, tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    reader.follow(page)
    reader.finish()


@pytest.mark.long
@pytest.mark.parametrize("page", LONG, ids=[page.name for page in LONG])
def test_and_so_does_one_who_waits_for_the_audits(page: Path, tmp_path: Path) -> None:
    reader = Reader(tmp_path, long=True)
    reader.follow(page)
    reader.finish()


def test_the_readme_tells_the_levels_as_they_are() -> None:
    said = (ROOT / "README.md").read_text(encoding="utf-8")
    for level in LEVELS.values():
        budget = f"{level.budget:,}" if level.budget else "no limit"
        assert f"| `{level.name}` | {level.tokens:,} | {budget} | {level.prompts:,} | " in said


def test_exit_codes_are_worded_alike_everywhere() -> None:
    told = "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for said in (readme, cli.audit.__doc__ or ""):
        assert f"Exit code: {told}." in " ".join(said.split())
    page = (ROOT / "docs" / "gpu_ci.md").read_text(encoding="utf-8")
    for code, meaning in EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in page


def test_specref_is_installed_from_a_clone_wherever_a_page_says_how() -> None:
    for page in PAGES:
        for words in re.findall(r"pip install ([^`\n]*)", page.read_text(encoding="utf-8")):
            assert "specref" not in words, f"{page.name}: pip install {words}; specref is on no index: pip install . in a clone"


def test_the_tokens_that_a_leak_takes_are_those_of_the_planning_function() -> None:
    page = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
    settings, subject = AuditSettings(LEVELS["smoke"]), read_subject(models_named(None, None))
    p, q = (sample_of_laws(model, subject, settings) for model in (subject.target, subject.draft))
    mode = ModePlan.standard("one of two", 3_000, weight=0.5, batch=False)
    share = Threshold(settings.alpha, mode.weight * mode.checks["bank"])
    table = BetTable(FaultBank(), p, q)
    for percent in (10, 3, 1):
        needed = table.samples_needed(leak(p, q)(percent / 100), share)
        assert needed is not None
        assert f"| {percent}% | {float(f'{needed.tokens:.2g}'):,.0f} |" in page
    smallest = table.smallest_detectable(leak(p, q), 3_000, share)
    assert smallest is not None
    assert f"draft leak of {smallest:.2g} would have been caught" in (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")


def test_every_bet_and_every_check_that_a_report_can_name_is_explained() -> None:
    page = (ROOT / "docs" / "verdict.md").read_text(encoding="utf-8").split("## Reading the evidence")[1].split("\n## ")[0]
    for name, one in SUSPECTS.items():
        words = one.words.replace("|", r"\|")
        assert f"| {name} | {words} |" in page
    explained = {name for row in re.findall(r"^\| ([^|]+) \|", page, re.MULTILINE) for name in row.split(", ")}
    assert {name for _, names in GROUPS.values() for name in names} <= explained
    assert {law_of(bet.name) for bet in STANDARD_BETS if not bet.name.startswith("temperature")} <= set(SUSPECTS)


def test_the_catalogue_of_requirements_is_current() -> None:
    page = (ROOT / "docs" / "requirements.md").read_text(encoding="utf-8")
    assert page == catalogue(), "specref requirements > docs/requirements.md makes it again"


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    built = subprocess.run(words, cwd=ROOT, check=False, text=True, capture_output=True)
    assert built.returncode == 0, built.stderr
    pages = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("index.html")}
    assert {"index.html", "tutorial/index.html", "verdict/index.html"} <= pages
    elsewhere = re.findall(r'(?:src|href)="(https?://[^"]+\.(?:js|css|woff2?))"', (tmp_path / "index.html").read_text())
    assert not elsewhere, "the site loads nothing from elsewhere"


def test_the_matcher_of_outputs_can_say_no() -> None:
    assert matches("one ... three\n", "one two\nand  three\n")
    assert matches("...\n✗ LAW-1\n...", "a\n ✗   LAW-1\nb\n")
    assert not matches("one\n", "one\ntwo\n")
    assert not matches("...\n✗ LAW-1\n...", "a\n✓ LAW-1\nb\n")


def test_the_adapter_guide_names_every_field() -> None:
    page = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
    for kind in (Mode, RecordedRound):
        missing = [field.name for field in fields(kind) if f"| `{field.name}` |" not in page]
        assert not missing, f"{kind.__name__}: {missing}"
    assert all(f"`{component.__name__}`" in page for component in get_args(Component))
