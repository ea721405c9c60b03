"""What a violation shows: text beside the target's own, a tree's mask, a cache's entries, what adds to the evidence."""

from __future__ import annotations

import dataclasses
import io

import numpy as np
import pytest
from example_run import TOKENS, report
from hostile_run import poison
from rich.console import Console
from test_report_page import Reader

from conformance.checks import kv
from conformance.checks.greedy import Arm, greedy_finding, paired_greedy_finding
from conformance.checks.seen import cache_picture, mask_picture, parting
from conformance.checks.tree import Built, input_findings
from conformance.components import TreeInputs
from conformance.diagnosis import FOLLOWS
from conformance.findings import EngineReport, Finding, Statistic, Verdict, from_json, to_json
from conformance.pictures import Contribution, Parting
from conformance.reporting import html, markdown, print_table
from conformance.reporting.exhibits import exhibits, partings, state
from conformance.reporting.violation import accused
from conformance.statistics import FaultBank
from conformance.statistics.bets import law_of
from conformance.statistics.greedy import Margin
from specref.tree import TokenTree

MARGIN = Margin(1e-4, "float32", 10_000)


def greedy(seed: int = 0) -> Finding:
    """An output of 40 tokens with a near-tie at 17 and a wrong token at 20."""
    rows = np.random.default_rng(seed).normal(size=(40, len(TOKENS)))
    second, third = (np.argsort(rows, axis=1)[:, -place] for place in (2, 3))
    rows[17, second[17]] = rows[17].max() - 1e-5
    output = rows.argmax(axis=1)
    output[17], output[20] = second[17], third[20]
    return greedy_finding("m", [tuple(output.tolist())], [rows], MARGIN, 1, TOKENS)


def masks() -> Finding:
    """One tree in which node 3 sees a cousin, node 4 not its parent, and node 5 not the whole prefix."""
    tree = TokenTree([7, 1, 2, 3, 4, 5], [-1, 0, 0, 1, 1, 2])
    mask = np.concatenate([np.ones((6, 4), bool), tree.ancestor_mask()], axis=1)
    mask[3, 6], mask[4, 5], mask[5, 0] = True, False, False
    built = Built(4, tree, TreeInputs(mask, np.array(tree.position_ids(4)), np.array(tree.tokens)))
    return input_findings("masks", [built], 1)[0]


def caches() -> Finding:
    """23 entries of which the tenth differs and the last is missing."""
    fresh = np.random.default_rng(0).normal(size=(23, 4))
    found = fresh[:22].copy()
    found[9] += 0.3
    return kv.cache_finding("cache", [kv.CacheState("round 1", tuple(range(23)), found, fresh, "one rejection")], 1)


def law() -> Finding:
    adds = (Contribution("token", " the", 1234, 1001.5, 3.4), Contribution("context", "of the", 55, None, 2.2))
    bank = Statistic("bank", 96_000, log10_evidence=15.0, holder="leak to the draft, size 0.03")
    return Finding(
        "LAW-1", "m", Verdict.VIOLATES, "said", 96_000, 96_000, log10_evidence=15.0, statistics=(bank,), contributions=adds
    )


def all_of_them() -> EngineReport:
    return report("e", "1", [law(), greedy(), masks(), caches()], ())


def test_they_survive_the_json() -> None:
    assert from_json(to_json([all_of_them()])) == [all_of_them()]


def test_text_stands_beside_the_targets_own() -> None:
    (one,) = partings(greedy())
    assert (one.start, len(one.emitted)) == (14, 11)
    states = {one.start + place: state(one, place) for place in range(len(one.emitted))}
    assert states == {at: {17: "near-tie", 20: "wrong"}.get(at, "same") for at in range(14, 25)}
    assert one.gaps[3] == pytest.approx(1e-5)
    assert one.bound == MARGIN.value
    page = html.page([all_of_them()])
    assert page.count("<mark>") == 2  # the engine's token, and the target's
    assert '<tr role="row" class="wrong">' in page


def test_only_the_first_wrong_token_of_three_prompts_is_shown() -> None:
    rows = np.zeros((4, 2))
    rows[:, 1] = 1.0
    outputs = [(1, 0, 1, 0)] * 5
    finding = greedy_finding("m", outputs, [rows] * 5, MARGIN, 5)
    assert [(one.where, one.gaps[1], one.emitted[1]) for one in partings(finding)] == [
        (f"prompt {i}", 1.0, "token 0") for i in range(3)
    ]


def test_paired_prompts_show_where_speculation_was_first() -> None:
    rows = [np.array([[0.0, 9.0]])] * 60
    wrong, right = Arm([(0,)] * 60, rows), Arm([(1,)] * 60, rows)
    finding = paired_greedy_finding("m", wrong, right, 60)
    assert finding.verdict is Verdict.VIOLATES
    assert [one.gaps for one in partings(finding)] == [(9.0,)] * 3
    assert paired_greedy_finding("m", right, right, 60).pictures == ()


def test_a_mask_says_in_words_what_it_shows() -> None:
    (chart,) = exhibits(masks(), "x")
    told = "3 cells wrong. node 3 sees node 2; node 4 does not see node 1; node 5 does not see prefix token 0."
    assert told in chart.seen
    assert told in chart.drawing
    assert "3 under 1" in chart.drawing
    assert (chart.drawing.count("cell extra"), chart.drawing.count("cell missing")) == (1, 2)
    assert chart.drawing.count('class="mark"') == 3


def test_a_cache_says_in_words_where_it_differs() -> None:
    (chart,) = exhibits(caches(), "x")
    assert "position 9 (token 9) differs by 0.300; position 22 (token 22) is missing" in chart.drawing
    assert (chart.drawing.count("cell seen"), chart.drawing.count("cell missing")) == (21, 2)
    fresh = np.zeros((3, 1))
    long = Finding("KV-1", "m", Verdict.VIOLATES, "", pictures=(cache_picture("r", (1, 2, 3), np.zeros((5, 1)), fresh, 0.0),))
    assert "2 entries left over at the end" in exhibits(long, "x")[0].drawing


def test_long_caches_and_masks_are_cut_around_what_is_wrong() -> None:
    fresh = np.zeros((500, 2))
    found = fresh.copy()
    found[300, 1] = np.nan
    picture = cache_picture("r", tuple(range(500)), found, fresh, 0.0)
    assert len(picture.differences) == 64
    assert picture.differences[300 - picture.start] == np.inf
    ring = cache_picture("r", tuple(range(500)), found[-8:], fresh[-8:], 0.0)
    assert (ring.start, ring.tokens[0]) == (492, "492")
    wide = mask_picture("t", 200, (-1, 0), np.ones((2, 202), bool), np.ones((2, 202), bool))
    assert (wide.prefix, len(wide.found[0])) == (46, 48)


def test_every_format_names_the_bet_the_contributions_and_the_public_kinds() -> None:
    console = Console(file=io.StringIO(), width=400)
    print_table([all_of_them()], console)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    for said in (html.page([all_of_them()]), markdown.document([all_of_them()]), printed):
        for word in ("leak to the draft, size 0.03", "+3.4", "+2.2", "vllm 9834", "TensorRT"):
            assert word in said


def test_hostile_texts_in_them_stay_texts() -> None:
    bad = "<script>alert(1)</script>\x1b[31m\u202e{{ 7 * 7 }}"
    hostile: EngineReport = poison(all_of_them(), bad)
    finding = hostile.findings[1]
    assert isinstance(finding.pictures[0], Parting)
    hostile = dataclasses.replace(  # the names of kinds are ours, and so are rows of 0 and 1
        hostile,
        findings=tuple(
            dataclasses.replace(
                one,
                pictures=tuple(
                    dataclasses.replace(
                        shown,
                        kind=shown.kind.removeprefix(bad),  # type: ignore[arg-type]
                        **(
                            {"expected": before.expected, "found": before.found}
                            if (before := plain.pictures[place]).kind == "mask"
                            else {}
                        ),
                    )
                    for place, shown in enumerate(one.pictures)
                ),
                contributions=tuple(
                    dataclasses.replace(each, kind=each.kind.removeprefix(bad))  # type: ignore[arg-type]
                    for each in one.contributions
                ),
            )
            for one, plain in zip(hostile.findings, all_of_them().findings)
        ),
    )
    page = html.page([hostile])
    reader = Reader(page)
    assert {tag for tag, _ in reader.tags} == {tag for tag, _ in Reader(html.page([all_of_them()])).tags}
    assert "\x1b" not in page
    assert "\u202e" not in page
    ids = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert parting("p", (0,), np.zeros((1, 1)), 0, 1.0, (bad,)).emitted == (bad,)


def test_faults_that_the_evidence_does_not_tell_apart_are_named_beside_the_best() -> None:
    """Over-acceptance has no bet of its own: several laws lie near, and none may be accused alone."""
    p, q = np.array([0.1, 0.6, 0.25, 0.05]), np.array([0.3, 0.35, 0.1, 0.25])
    kept, residual = q * np.minimum(1, 1.25 * p / q), np.maximum(p - q, 0)
    emitted = kept + (1 - kept.sum()) * residual / residual.sum()
    bank, n = FaultBank(), 8_000
    found = bank.evidence(bank.from_counts(p, q, np.round(n * emitted).astype(np.int64)), n)
    named = [law_of(name) for name in (found.holder, *found.others)]
    assert named == ["leak to the draft", "ratio upside down", "absolute residual"]
    row = Statistic("bank", found.n, log10_evidence=found.log10_e, holder=found.holder, others=found.others)
    said = accused(dataclasses.replace(law(), statistics=(row,)))
    assert "part of the output follows the draft model" in said
    assert "the evidence hardly tells it from these: drafts were kept with probability min(1, q/p)" in said


def test_what_one_place_of_a_round_shows_is_said_of_that_place() -> None:
    row = Statistic("bonus", 500, log10_evidence=26.0, holder="temperature 1.471, size 0.999")
    said = accused(dataclasses.replace(law(), statistics=(row,)))
    assert said.startswith("In bonus tokens the engine behaves as if tokens were sampled at temperature 1.471 times")


def test_what_follows_from_another_violation_is_given_no_law_of_its_own() -> None:
    row = Statistic("bank", 500, log10_evidence=26.0, holder="leak to the draft, size 0.3")
    company = dataclasses.replace(law(), requirement="BATCH-1", statistics=(row,))
    assert accused(company).startswith("The engine behaves as if")
    assert accused(dataclasses.replace(company, summary=f"tokens differ. {FOLLOWS}")) == ""
