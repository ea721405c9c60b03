from __future__ import annotations

from pathlib import Path

import pytest

from conformance.expected import mark_expected, read_expected
from conformance.findings import EngineReport, Finding, Verdict, exit_code
from conformance.problems import UsageProblem

ENTRY = """
[[violation]]
engine = "e"
version = "1"
requirement = "LAW-1"
mode = "draft"
reason = "known upstream"
n = 2000
"""


def report(verdict: Verdict, n: int = 5_000, version: str = "1") -> EngineReport:
    finding = Finding("LAW-1", "draft", verdict, "what was seen", n=n, planned=n)
    control = Finding("LAW-1", "off", Verdict.CONFORMS, "fine", n=n, planned=n)
    return EngineReport("e", version, "quick", 1e-6, 0, "", 1.0, "t", "d", (finding, control))


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (report(Verdict.VIOLATES), 0),
        (report(Verdict.VIOLATES, version="2"), 1),
        (report(Verdict.CONFORMS), 1),
        (report(Verdict.CONFORMS, n=100), 0),
        (report(Verdict.ERROR), 3),
    ],
)
def test_only_what_the_file_does_not_say_fails(tmp_path: Path, made: EngineReport, code: int) -> None:
    file = tmp_path / "expected.toml"
    file.write_text(ENTRY)
    marked = mark_expected([made], read_expected(file))
    if made.findings[0].verdict is Verdict.ERROR:
        assert exit_code(marked) in (1, 3)
    else:
        assert exit_code(marked) == code


def test_an_entry_about_nothing_is_said(tmp_path: Path) -> None:
    file = tmp_path / "expected.toml"
    file.write_text(ENTRY.replace('mode = "draft"', 'mode = "drafft"'))
    (marked,) = mark_expected([report(Verdict.CONFORMS)], read_expected(file))
    assert "'drafft'" in marked.notes[0]


def marked(tmp_path: Path, entry: str, *findings: Finding, level: str = "quick") -> EngineReport:
    file = tmp_path / "expected.toml"
    file.write_text(entry)
    made = EngineReport("e", "1", level, 1e-6, 0, "", 1.0, "t", "d", findings)
    return mark_expected([made], read_expected(file))[0]


def test_a_known_error_does_not_fail_and_another_one_does(tmp_path: Path) -> None:
    crash = Finding("LAW-1", "draft", Verdict.ERROR, "crash: index out of range")
    fine = Finding("LAW-1", "off", Verdict.CONFORMS, "fine", n=5_000)
    entry = ENTRY + 'verdict = "error"\n'
    assert exit_code([marked(tmp_path, ENTRY, crash, fine)]) == 3, "a known violation excuses no crash"
    known = marked(tmp_path, entry, crash, fine)
    assert (exit_code([known]), known.findings[0].expected) == (0, "known upstream")
    other = Finding("LAW-1", "lookup", Verdict.ERROR, "crash: something else")
    assert exit_code([marked(tmp_path, entry, crash, fine, other)]) == 3
    wrong = Finding("LAW-1", "draft", Verdict.VIOLATES, "it leaks", n=5_000)
    assert exit_code([marked(tmp_path, entry, wrong, fine)]) == 1, "a known crash excuses no violation"


def test_a_star_stands_for_modes_and_is_seen_in_any_of_them(tmp_path: Path) -> None:
    entry = ENTRY.replace('"draft"', '"draft*"').replace("LAW-1", "LAW-*")
    seen = Finding("LAW-1", "draft [top-k 5]", Verdict.VIOLATES, "it leaks", n=5_000)
    unseen = Finding("LAW-2", "draft", Verdict.CONFORMS, "fine", n=5_000)
    elsewhere = Finding("LAW-1", "lookup", Verdict.VIOLATES, "it leaks too", n=5_000)
    assert exit_code([marked(tmp_path, entry, seen, unseen)]) == 0
    assert exit_code([marked(tmp_path, entry, seen, unseen, elsewhere)]) == 1
    assert exit_code([marked(tmp_path, entry, unseen)]) == 1, "it was not seen anywhere"
    few = Finding("LAW-2", "draft", Verdict.CONFORMS, "fine", n=10)
    assert "not tested at this level" in marked(tmp_path, entry, few).findings[0].expected


TOP_K, BLOCK = "top_k: expected an answer, found the end", "method='block': expected drafts that are drawn"


def entry(text: str, reason: str) -> str:
    return ENTRY.replace("known upstream", reason) + f'text = "{text}"\n'


def found(*places: str) -> Finding:
    return Finding("LAW-1", "draft", Verdict.VIOLATES, f"fails in {len(places)} places", n=5_000, violations=places)


def test_each_of_several_faults_of_a_mode_is_known_by_its_text_and_missed_by_it(tmp_path: Path) -> None:
    both = entry("drafts that are drawn", "block ignored (a.py)") + entry("top_k: expected", "top_k ends it (b.py)")
    known = marked(tmp_path, both, found(TOP_K, BLOCK))
    assert (exit_code([known]), known.findings[0].expected) == (0, "block ignored (a.py); top_k ends it (b.py)")
    gone = marked(tmp_path, both, found(TOP_K))
    assert exit_code([gone]) == 1
    assert gone.findings[0].summary.startswith("a known violation was not seen in 5,000 samples (block ignored (a.py)); is it")
    assert exit_code([marked(tmp_path, both.replace("n = 2000", "n = 9000"), found(TOP_K))]) == 0, "not looked for with so few"
    crash = Finding("LAW-1", "draft", Verdict.ERROR, "crash: out of memory", n=5_000)
    assert exit_code([marked(tmp_path, both, crash)]) == 3, "a crash is not the absence of a violation"


def test_a_new_place_beside_a_known_one_is_new(tmp_path: Path) -> None:
    one = entry("top_k: expected", "top_k ends it")
    made = marked(tmp_path, one, found(TOP_K, BLOCK))
    assert exit_code([made]) == 1
    assert made.findings[0].summary == "of this is known: top_k ends it; the rest is new. fails in 2 places"
    whole = marked(tmp_path, ENTRY + one, found(TOP_K, BLOCK))
    assert (exit_code([whole]), whole.findings[0].expected) == (0, "top_k ends it; known upstream"), "the one with a text first"
    summary = Finding("LAW-1", "draft", Verdict.VIOLATES, "top_k: expected another law", n=5_000)
    assert exit_code([marked(tmp_path, one, summary)]) == 0, "without places its summary is looked at"


def test_an_expired_entry_excuses_nothing(tmp_path: Path) -> None:
    made = marked(tmp_path, ENTRY + "expires = 2020-01-31\n", found(TOP_K))
    assert exit_code([made]) == 1
    assert "its entry expired on 2020-01-31" in made.findings[0].summary
    beside = marked(tmp_path, entry("top_k: expected", "top_k ends it") + ENTRY + "expires = 2020-01-31\n", found(TOP_K))
    assert (exit_code([beside]), beside.findings[0].expected) == (0, "top_k ends it")


@pytest.mark.parametrize(
    ("mode", "level", "noted"),
    [
        ("draft [top-k 5]", "quick", False),  # a setting that this level leaves out
        ("component: Drafter", "quick", False),  # components were not judged at all
        ("drafft", "samples", False),  # samples have the modes that they have
        ("drafft", "quick", True),
        ("drafft*", "quick", True),
    ],
)
def test_only_a_mode_that_should_be_there_is_missed(tmp_path: Path, mode: str, level: str, noted: bool) -> None:
    seen = Finding("GREEDY-1", "draft", Verdict.CONFORMS, "fine", n=9)
    report = marked(tmp_path, ENTRY.replace('"draft"', f'"{mode}"'), seen, level=level)
    assert bool(report.notes) is noted


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("violation = 3", "write .* tables only"),
        ("[[violation]\n", "cannot read"),
        (ENTRY.replace("n = 2000", "n = 'many'"), "violation 1 .* n is 'many'; write a whole number"),
        (ENTRY.replace("mode", "mood"), "mode is missing; write a text"),
        (ENTRY + "size = 3\n", "nothing is called 'size'"),
        ("[other]\n", "holds other; write"),
        ("violation = [3]", "violation 1 .* write it as a"),
        (ENTRY.replace("n = 2000", "n = 0"), "n is 0; give 1 or more"),
        (ENTRY + 'verdict = "conforms"\n', "verdict is 'conforms'; write one of violates, error"),
        (ENTRY + "text = 3\n", "text is 3; write some words of what is found, or leave it out"),
        (ENTRY + "text = ''\n", "text is ''; write some words"),
        (ENTRY.replace("LAW-1", "LAW-99"), "the catalogue has no requirement 'LAW-99'"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "expected.toml"
    file.write_text(text)
    with pytest.raises(UsageProblem, match=says):
        read_expected(file)
    with pytest.raises(UsageProblem, match="cannot read"):
        read_expected(tmp_path / "absent.toml")
