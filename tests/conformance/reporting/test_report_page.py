"""The page: self-contained, in order, readable without eyes, and deaf to what an engine says."""

from __future__ import annotations

import dataclasses
import re
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from example_run import conforming, mode, report, run
from hostile_run import CONTROL, hostile

from conformance.findings import Curve, EngineReport, Finding, ModeReport, Verdict
from conformance.reporting import charts, html

VOID = {"meta", "col", "img", "br", "link", "input"}
Tag = tuple[str, dict[str, str | None]]


class Reader(HTMLParser):
    """Collects tags and checks that they nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[Tag] = []
        self.open: list[str] = []
        self.headings: list[tuple[int, str]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs), attrs
        if tag not in VOID:
            self.open.append(tag)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append((int(tag[1]), ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if any(tag in self.open for tag in ("h1", "h2", "h3", "h4")):
            level, text = self.headings[-1]
            self.headings[-1] = (level, " ".join(f"{text} {data}".split()))


@pytest.fixture(scope="module")
def text() -> str:
    return html.page(run())


@pytest.fixture(scope="module")
def reader(text: str) -> Reader:
    return Reader(text)


def references(reader: Reader) -> list[str]:
    """Ids that something points to."""
    found = []
    for _, attributes in reader.tags:
        for name, value in attributes.items():
            if name in ("href", "xlink:href"):
                found.append((value or "").removeprefix("#"))
            elif name == "aria-labelledby":
                found += (value or "").split()
            found += re.findall(r"url\(#([^)]*)\)", value or "")
    return found


def test_it_is_self_contained_and_small(text: str, reader: Reader) -> None:
    assert len(text.encode()) < html.PAGE_LIMIT
    assert not {tag for tag, _ in reader.tags} & {"script", "img", "link", "iframe", "object", "embed", "form", "image"}
    assert not re.findall(r"(?:https?:)?//[a-z]|@import|url\((?!#)", text)
    assert all((a.get("href") or "#").startswith("#") for _, a in reader.tags)


def test_ids_are_unique_and_whatever_is_pointed_to_exists(reader: Reader) -> None:
    ids = [a["id"] for _, a in reader.tags if "id" in a]
    assert len(ids) == len(set(ids))
    assert set(references(reader)) <= set(ids)


def test_it_can_be_heard(reader: Reader) -> None:
    levels = [level for level, _ in reader.headings]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(text for _, text in reader.headings)
    tags = [tag for tag, _ in reader.tags]
    assert tags.count("table") == tags.count("caption") > 0
    for tag, attributes in reader.tags:
        if tag == "svg":
            assert attributes.get("aria-hidden") == "true" or attributes.get("role") == "img"
        if tag == "th":
            assert attributes["scope"] in ("row", "col")
    assert tags.count("figure") == tags.count("figcaption") > 0
    assert ("a", {"class": "skip", "href": "#main"}) in reader.tags


def test_every_engine_is_told_in_the_order_that_readers_need(reader: Reader) -> None:
    headings = [text for level, text in reader.headings if level <= 3]
    assert headings[1] == "Verdicts"
    assert headings[2].startswith("transformers 5.24.0 is lossy as declared")
    second = headings[headings.index("vllm 0.11.0 violates") :]
    wanted = ("What was tested", "Violations", "What was not tested", "Requirements", "Mode draft model", "Mode prompt")
    places = [next(i for i, text in enumerate(second) if text.startswith(start)) for start in wanted]
    assert places == sorted(places)


def test_the_guarantee_is_stated_only_where_it_holds() -> None:
    conforming, _, failing, absent = (dataclasses.replace(report, modes=()) for report in run())
    said = html.page([conforming])
    assert "probability at most 1 in 1,000,000" in said
    assert "probability at least 99.9%" in said
    for nothing_judged in (failing, absent):
        said = html.page([nothing_judged])
        assert "Nothing was judged, so nothing is promised." in said
        assert "99.9%" not in said


def test_the_three_bounds_are_stated_together_and_what_is_left_unclaimed() -> None:
    bounds = {"leak_bound": 0.0359, "ratio_sets_bound": 0.05, "total_variation_bound": 0.1171, "unclaimed": 0.123}
    plain, drafted, other = conforming().modes
    assert "99% confidence" not in html.page([conforming()])
    nothing = dataclasses.replace(drafted, **dict.fromkeys(bounds, 1.0))
    assert "vocabulary below" not in html.page([dataclasses.replace(conforming(), modes=(plain, nothing))])
    modes = (plain, dataclasses.replace(drafted, **bounds), dataclasses.replace(other, **dict.fromkeys(bounds, 1.0)))
    said = " ".join(html.page([dataclasses.replace(conforming(), modes=modes)]).split())
    assert "three errors are at most so large: leak 0.036, ratio 0.050, top 50 0.12 (draft model, k = 3). “Leak” is" in said
    assert "means over the contexts judged" in said
    assert "Nothing is said about smaller faults, total variation over the whole vocabulary below 0.12, other settings" in said
    lossy = [
        dataclasses.replace(f, verdict=Verdict.LOSSY_AS_DECLARED) if (f.requirement, f.mode) == ("LAW-1", drafted.name) else f
        for f in conforming().findings
    ]
    said = html.page([dataclasses.replace(conforming(), modes=modes, findings=tuple(lossy))])
    assert "99% confidence" not in said
    assert "vocabulary below" not in said


def test_hostile_texts_stay_texts() -> None:
    said = html.page([hostile()])
    reader = Reader(said)
    assert all((a.get("href") or "#").startswith("#") for _, a in reader.tags)
    benign = Reader(html.page([hostile("")]))
    assert {tag for tag, _ in reader.tags} == {tag for tag, _ in benign.tags}
    assert {name for _, attributes in reader.tags for name in attributes} == {name for _, a in benign.tags for name in a}
    assert not set(CONTROL) & set(said) - set("[]3m12J8;:/htpevilxample.<!-> ")
    assert "{{ 7 * 7 }}" in said
    said.encode()


def test_a_page_that_would_be_too_long_goes_with_less_detail(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = [engine if engine.engine != "vllm" else seen_in_two_modes(engine) for engine in run()]
    pages = [html.page(twice)]
    for _ in range(4):
        monkeypatch.setattr(html, "PAGE_LIMIT", len(pages[-1]) - 1)
        pages.append(html.page(twice))
    everything, named, rows, without, least = pages
    assert sorted(map(len, pages), reverse=True) == list(map(len, pages))
    assert "LAW-1 in <bdi>another</bdi>" in everything
    assert "The same in 1 more mode: another" in named
    assert "LAW-1 in <bdi>another</bdi>" not in named
    assert "Judged in the other modes" not in named
    assert "Judged in the other modes" in rows
    for page in (named, rows):
        for finding in twice[0].findings:
            assert finding.detects.replace("'", "’") in unescape(page)
    assert "<figure>" in rows
    assert "<figure>" not in without
    assert "Pictures are left out here" in without
    assert "Modes are left out here" in least
    monkeypatch.setattr(html, "MOST_VIOLATIONS", 1)
    assert "2 more kinds in <code>report.json</code>" in html.page(twice)


def seen_in_two_modes(engine: EngineReport) -> EngineReport:
    again = [dataclasses.replace(f, mode="another") for f in engine.findings if f.requirement == "LAW-1"]
    return dataclasses.replace(engine, findings=(*engine.findings, *again))


def test_modes_with_a_violation_are_drawn_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "PICTURES_LIMIT", 0)
    assert list(html.pictures(run())) == [(1, "draft model, k = 3")]


def test_no_report_is_still_a_page() -> None:
    assert "Nothing was audited." in html.page([])


def test_numbers_that_are_none_or_infinite_do_not_stop_the_page() -> None:
    nan, infinity = float("nan"), float("inf")
    odd = ModeReport(
        name="odd",
        rule="",
        speculation="",
        curves=(Curve("id", (0.0, nan, 1.0), (0.0, 0.5, infinity), nan), Curve("p", (), (), 0.1)),
        observed=(nan, 1.0),
        expected=(1.0, 1.0),
        accepted_lengths=(0, 0),
        evidence_growth=((10, -infinity), (20, nan)),
    )
    assert charts.charts(odd, 6.0, "x") == []
    findings = [Finding("LAW-1", "odd", Verdict.CONFORMS, "", n=3, log10_evidence=-infinity, alpha=1e-6)]
    assert "−∞" in html.page([report("e", "1", findings, (odd,), log10_evidence=-infinity)])


def test_a_thinned_curve_keeps_its_largest_departure() -> None:
    ecdf = [i / 4000 for i in range(4001)]
    ecdf[1234] += 0.3
    kept = charts.thinned(Curve("id", tuple(i / 4000 for i in range(4001)), tuple(ecdf), 0.1))
    assert len(kept) <= charts.POINTS_SHOWN + 3
    assert max(abs(y) for _, y in kept) == pytest.approx(0.3)


def test_the_tokens_shown_hold_the_one_that_is_most_wrong() -> None:
    measured = mode("m", "ratio", "draft", 100_000, k=2)
    observed = list(measured.observed)
    rarest = min(range(len(observed)), key=lambda i: measured.expected[i])
    observed[rarest] += 500
    rows = charts.frequencies(dataclasses.replace(measured, observed=tuple(observed), tokens=()))
    assert f"token {rarest}" in [name for name, _, _ in rows]
    assert len(rows) == charts.TOKENS_SHOWN


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_told_from_its_background(text: str, theme: str) -> None:
    """WCAG AA: a contrast of 4.5 for every pair of text and background that the page uses."""
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w{6})", block)) for block in re.findall(r":root \{(.*?)\}", text, re.S))
    colour = light if theme == "light" else dark
    pairs = [(ink, ground) for ink in ("ink", "muted", "link", "bad") for ground in ("paper", "card")]
    pairs += [(tone, f"{tone}-soft") for tone in ("good", "bad", "warn", "info", "none")]
    assert {
        pair: contrast(colour[pair[0]], colour[pair[1]]) for pair in pairs if contrast(colour[pair[0]], colour[pair[1]]) < 4.5
    } == {}


def contrast(first: str, second: str) -> float:
    """The contrast ratio of two colours as WCAG defines it."""

    def luminance(colour: str) -> float:
        parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def test_a_mode_is_held_against_its_own_share_of_the_false_alarm_rate() -> None:
    grown = ModeReport("shared", "", "k 2", 500, evidence_growth=((250, 6.5), (500, 6.4)), alarm=7.1)
    whole = report("e", "1", [Finding("LAW-1", "shared", Verdict.CONFORMS, "", n=500, alpha=1e-6)], (grown,))
    assert (whole.alarm(), whole.alarm(grown), whole.alarm(dataclasses.replace(grown, alarm=None))) == (6.0, 7.1, 6.0)
    page = html.page([whole])
    assert "Never reaches the alarm" in page
    assert "7.1 is an alarm, by this mode’s share of the false-alarm rate." in page
    assert "Reaches the alarm at 250 tokens" in html.page(
        [dataclasses.replace(whole, modes=(dataclasses.replace(grown, alarm=6.2),))]
    )
