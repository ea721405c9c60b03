from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from conformance import cli
from conformance.checks import accept, law
from conformance.controls import instance
from conformance.engines.own import ReferenceEngine
from conformance.findings import REMARKABLE, EngineReport, Verdict, exit_code, from_json
from conformance.protocols import Mode, Request
from conformance.reporting import wording
from conformance.reporting.guarantee import guarantee
from conformance.samples import command
from conformance.samples import judging as judging_module
from conformance.samples.judging import Judging, judge_samples
from conformance.samples.lines import entry
from conformance.samples.modes import Defaults
from conformance.samples.reading import BadSamples, schema
from conformance.samples.survey import survey
from conformance.scoring import laws_at
from specref.processors import SamplingSettings
from specref.rules import Rule
from tests.conformance.evidence.audits import chunks, kept, subject
from tests.conformance.wrong_engine import accept_all

MODE = "draft model, ratio"


class AcceptsAll(ReferenceEngine):
    def rule(self, mode: Mode, request: Request) -> Rule:
        return accept_all if mode.speculates else super().rule(mode, request)


@pytest.fixture(autouse=True)
def what_was_detectable_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(law, "detectable", lambda *_: "")
    monkeypatch.setattr(accept, "smallest_detectable_let_through", lambda *_: math.inf)
    monkeypatch.setattr(judging_module, "can_catch", lambda *_: "")


def sampled(
    engine: ReferenceEngine | None = None, number: int = 30, greedy: int = 3, seed: int = 0, **settings: Any
) -> list[dict[str, Any]]:
    """Lines of both modes: `number` sampled requests, then `greedy` greedy ones."""
    made, prompts = engine or ReferenceEngine(*instance()), subject().prompts
    found = []
    for mode in made.modes(3)[:2]:
        heats = [1.0] * number + [0.0] * greedy
        asked = [
            Request(prompts.prompt(seed + i), SamplingSettings(**{"max_tokens": 12, "temperature": heat, **settings}), seed + i)
            for i, heat in enumerate(heats)
        ]
        for i, (request, output) in enumerate(zip(asked, made.generate(mode, asked))):
            found.append({**entry(i, mode.name, request, output), "rule": mode.rule})
    return found


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def judged(path: Path, defaults: Defaults | None = None, **judging: Any) -> EngineReport:
    defaults = defaults or Defaults()
    found = survey(path, defaults)
    return judge_samples(path, found, subject(), Judging("made here", defaults=defaults, **{"has_draft": True, **judging}))


def test_evidence_below_the_alarm_is_remarked_upon(tmp_path: Path) -> None:
    lines = [line for line in sampled(AcceptsAll(*instance()), 40, greedy=0) if line["mode"] == MODE]
    remarked = set()
    for number in range(4, 41, 4):
        report = judged(write(tmp_path / "some", lines[:number]))
        (found,) = (one for one in report.findings if one.requirement == "LAW-1")
        if found.verdict is Verdict.CONFORMS:
            much = (found.log10_evidence or 0) > REMARKABLE
            assert ("judge more tokens, with another seed" in found.summary) is much
            assert ("agree with the target's law" in found.summary) is not much
            again = [said for about, said in guarantee(report) if about == "Look again"]
            assert any(said.startswith("LAW-1") for said in again) is much
            assert ("look at again" in wording.verdict_sentence(report)) is bool(again and report.verdict is Verdict.CONFORMS)
            remarked.add(much)
    assert remarked == {False, True}


def verdicts(report: EngineReport, mode: str = MODE) -> dict[str, Verdict]:
    return {one.requirement: one.verdict for one in report.findings if one.mode == mode}


def test_samples_of_a_right_engine_conform_in_all_that_can_be_judged(tmp_path: Path) -> None:
    report = judged(write(tmp_path / "samples.jsonl", sampled()))
    found = verdicts(report)
    judgeable = {"LAW-1", "LAW-2", "GREEDY-1", "ACCEPT-1", "ACCEPT-3", "STOP-3", "STOP-5"}
    assert {name for name, verdict in found.items() if verdict is Verdict.CONFORMS} == judgeable
    assert {name for name, verdict in found.items() if verdict is Verdict.NOT_EXPOSED} == {"LOGPROB-1", "LOGPROB-2"}
    assert exit_code([report]) == 0
    assert [mode.tokens_judged for mode in report.modes] == [360, 360]
    assert report.plan["sealed plans"].keys() == {"control", "speculation"}


def test_an_engine_that_accepts_every_draft_is_found_by_law_greedy_and_acceptance(tmp_path: Path) -> None:
    report = judged(write(tmp_path / "samples.jsonl", sampled(AcceptsAll(*instance()))))
    found = verdicts(report)
    assert {found["LAW-1"], found["GREEDY-1"], found["ACCEPT-1"]} == {Verdict.VIOLATES}
    assert Verdict.VIOLATES not in verdicts(report, "off").values()
    assert not any(one.not_speculation for one in report.findings)
    assert exit_code([report]) == 1


def test_a_violation_that_is_certain_ends_the_judging_of_its_law(tmp_path: Path) -> None:
    report = judged(write(tmp_path / "samples.jsonl", sampled(AcceptsAll(*instance()), number=130, greedy=0)))
    assert {mode.name: mode.tokens_judged for mode in report.modes} == {"off": 1560, MODE: 768}
    assert any(f"{MODE}: proven wrong after 768 of its tokens" in note for note in report.notes)


def test_a_target_that_is_not_the_samples_own_is_asked_about(tmp_path: Path) -> None:
    lines = sampled(ReferenceEngine(*instance(5)))
    notes = judged(write(tmp_path / "samples.jsonl", lines)).notes
    assert any("Is --target the very model that made them" in note for note in notes)
    notes = judged(write(tmp_path / "samples.jsonl", [line for line in lines if line["mode"] != "off"])).notes
    assert any('There are no samples of a mode "off"' in note for note in notes)


def test_without_a_draft_model_the_law_is_judged_and_acceptance_is_not_exposed(tmp_path: Path) -> None:
    lines = sampled(AcceptsAll(*instance()), number=60)
    report = judged(write(tmp_path / "samples.jsonl", lines), has_draft=False)
    assert verdicts(report)["LAW-1"] is Verdict.VIOLATES
    assert verdicts(report)["ACCEPT-1"] is Verdict.NOT_EXPOSED


@pytest.mark.parametrize(
    "settings", [{"top_k": 5}, {"top_p": 0.8}, {"min_p": 0.4}, {"presence_penalty": 0.7}, {"logit_bias": {3: 2.0}}]
)
def test_settings_of_the_samples_are_part_of_the_law(tmp_path: Path, settings: dict[str, Any]) -> None:
    lines = sampled(number=60, greedy=4, **settings)
    right = judged(write(tmp_path / "told.jsonl", lines))
    assert {verdicts(right)[one] for one in ("LAW-1", "LAW-2", "GREEDY-1")} == {Verdict.CONFORMS}
    for line in lines:
        line["settings"] = {name: value for name, value in line["settings"].items() if name not in settings}
    wrong = judged(write(tmp_path / "not-told.jsonl", lines))
    assert Verdict.VIOLATES in (verdicts(wrong)["LAW-1"], verdicts(wrong)["GREEDY-1"])


def test_a_number_of_tokens_is_registered_that_right_samples_have_whatever_they_say(tmp_path: Path) -> None:
    lines = sampled(greedy=0, eos=(3,))
    assert any(len(line["output"]) < 12 for line in lines)
    path = write(tmp_path / "samples.jsonl", lines)
    report = judged(path)
    assert report.plan["registered tokens (chi-square, KS)"][MODE] == 30  # one of each request: its end may come at once
    assert verdicts(report)["LAW-1"] is Verdict.CONFORMS
    assert verdicts(report)["STOP-1"] is Verdict.CONFORMS
    assert survey(write(path, sampled(greedy=0)), Defaults()).modes[MODE].floor == {True: 30, False: 360}


def test_requests_after_an_omitted_one_are_judged_only_if_that_is_said_to_be_harmless(tmp_path: Path) -> None:
    lines = sampled(greedy=0)
    lines[40] = {"request": 10, "mode": MODE, "omitted": "time-out"}
    path = write(tmp_path / "samples.jsonl", lines)
    strict = judged(path)
    assert {mode.name: mode.tokens_judged for mode in strict.modes} == {"off": 360, MODE: 120}
    assert any("1 requests were omitted. The 19 after the first" in note for note in strict.notes)
    harmless = judged(path, Defaults(at_random=True))
    assert {mode.name: mode.tokens_judged for mode in harmless.modes} == {"off": 360, MODE: 348}
    assert any("said to be unrelated" in note for note in harmless.notes)


def test_cut_off_outputs_are_judged_and_their_ends_are_not(tmp_path: Path) -> None:
    lines = [{name: value for name, value in line.items() if name != "rounds"} for line in sampled(greedy=0)]
    for number, line in enumerate(lines[:20]):
        line |= {"output": line["output"][: number % 5], "finished": False}
    path = write(tmp_path / "samples.jsonl", lines)
    report = judged(path)
    assert verdicts(report, "off")["STOP-5"] is Verdict.CONFORMS
    assert verdicts(report, "off")["LAW-1"] is Verdict.CONFORMS
    for line in lines[:20]:
        line.pop("finished")
    whole = [line for line in lines if line["output"]]
    for name in ("off", MODE):
        for number, line in enumerate(line for line in whole if line["mode"] == name):
            line["request"] = number
    assert verdicts(judged(write(path, whole)), "off")["STOP-5"] is Verdict.VIOLATES


def test_without_limits_the_reasons_of_ends_are_not_exposed(tmp_path: Path) -> None:
    lines = sampled(greedy=0, eos=(3,))
    for line in lines:
        line["settings"].pop("max_tokens")
    path = write(tmp_path / "samples.jsonl", lines)
    found = verdicts(judged(path))
    assert found["STOP-5"] is found["STOP-3"] is Verdict.NOT_EXPOSED
    assert found["STOP-1"] is Verdict.CONFORMS
    assert verdicts(judged(path, Defaults(max_tokens=12)))["STOP-5"] is Verdict.CONFORMS


@pytest.mark.parametrize("kind", ["raw", "processed"])
def test_log_probabilities_are_judged_at_every_place(tmp_path: Path, kind: str) -> None:
    lines = sampled(number=10, greedy=1)
    for line in lines:
        line["settings"]["temperature"] = heat = 0.5 if line["request"] < 10 else 0.0
        rows = subject().target.logits([(tuple(line["prompt"]), tuple(line["output"]))])[0]
        laws = laws_at(rows, heat if kind == "processed" and heat else 1.0)
        line["logprobs"] = [float(value) for value in np.log(laws[np.arange(12), line["output"]])]
    path = write(tmp_path / "samples.jsonl", lines)
    assert verdicts(judged(path, logprobs=kind))["LOGPROB-1"] is Verdict.CONFORMS
    other = "raw" if kind == "processed" else "processed"
    assert verdicts(judged(path, logprobs=other))["LOGPROB-1"] is Verdict.VIOLATES
    lines[-2]["logprobs"].pop()
    assert verdicts(judged(write(path, lines), logprobs=kind))["LOGPROB-2"] is Verdict.VIOLATES


def comparable(report: EngineReport) -> list[Any]:
    return [(one.requirement, one.mode, one.verdict, one.log10_evidence, one.n) for one in report.findings]


def test_parquet_and_gzip_say_the_same_as_json_lines(tmp_path: Path) -> None:
    import gzip

    lines = sampled(number=10)
    lines[3]["settings"]["stop_sequences"] = [[0] * 9]  # a column that other rows do not have
    path = write(tmp_path / "samples.jsonl", lines)
    packed = tmp_path / "samples.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    rows = tmp_path / "samples.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(lines), rows)
    expected = comparable(judged(path))
    assert comparable(judged(packed)) == expected
    assert comparable(judged(rows)) == expected
    lines[5]["request"] = 7
    parquet.write_table(pyarrow.Table.from_pylist(lines), rows)
    with pytest.raises(BadSamples, match=r"line 6, request: requests 5 to 6 of mode 'off' are missing"):
        judged(rows)


def test_a_file_that_changes_while_it_is_judged_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "samples.jsonl", sampled(number=4))
    found = survey(path, Defaults())
    write(path, sampled(number=4, seed=9))
    with pytest.raises(BadSamples, match="was changed while it was judged"):
        judge_samples(path, found, subject(), Judging("made here"))


def test_the_samples_of_an_evidence_folder_are_samples(tmp_path: Path) -> None:
    import gzip

    kept(tmp_path / "evidence")
    path = tmp_path / "all.jsonl"
    path.write_bytes(b"".join(gzip.decompress(chunk.read_bytes()) for chunk in chunks(tmp_path / "evidence")))
    report = judged(path)
    assert verdicts(report)["LAW-1"] is Verdict.CONFORMS
    assert math.isfinite(report.log10_evidence or math.inf)


@pytest.fixture
def specref(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """The command, with the table's models in the place of those that it would read."""
    monkeypatch.setattr(command, "read_subject", lambda models: subject())
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> int:
        monkeypatch.setattr("sys.argv", ["specref", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0)

    return run


def test_the_command_judges_and_reports(
    specref: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "right.jsonl", sampled(number=10))
    assert specref("judge", "right.jsonl", "--engine", "a <b>bold</b> engine", "--out", "right") == 0
    said = capsys.readouterr().out
    assert "10 sampled requests with 120 tokens and 3 greedy ones" in said
    assert {path.name for path in (tmp_path / "right").iterdir()} == {"report.html", "report.md", "report.json", "junit.xml"}
    assert "<b>bold" not in (tmp_path / "right" / "report.html").read_text()
    (report,) = from_json((tmp_path / "right" / "report.json").read_text())
    assert report.engine == "a <b>bold</b> engine"
    assert str(tmp_path) not in (tmp_path / "right" / "report.json").read_text()
    write(tmp_path / "wrong.jsonl", sampled(AcceptsAll(*instance())))
    assert specref("judge", "wrong.jsonl") == 1
    assert list((tmp_path / "audits").glob("wrong-*/report.json"))
    given = ("--alpha", "0.0001", "--seed", "12", "--max-tokens", "12", "--logprobs", "processed", "--omitted-at-random")
    assert specref("judge", "wrong.jsonl", "--temperature", "1", "--out", "wrong", *given) == 1
    (report,) = from_json((tmp_path / "wrong" / "report.json").read_text())
    (command, *_) = next(one.reproduction for one in report.findings if one.verdict is Verdict.VIOLATES).splitlines()
    assert sorted(command.split()) == sorted(["specref", "judge", "wrong.jsonl", *given])


def test_the_command_says_in_one_line_what_is_wrong(
    specref: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right = str(write(tmp_path / "right.jsonl", sampled(number=2)))
    (tmp_path / "evidence").mkdir()
    broken = write(tmp_path / "broken.jsonl", [{"request": 0, "prompt": [1], "output": [99]}])
    for words, says in (
        ((), "no samples were named; give a file"),
        (("nowhere.jsonl",), "nowhere.jsonl: cannot be read (No such file or directory); give a file of samples"),
        ((str(broken),), "line 1, output[0]: token id 99 lies outside the target's vocabulary of 16; give the ids of"),
        ((right, "--target", "nowhere"), "no target model lies in nowhere"),
        ((right, "--temperature", "-1"), "temperature is -1"),
        ((right, "--logprobs", "none"), "logprobs is 'none'"),
        ((right, "--max-tokens", "0"), "max-tokens is 0"),
        ((right, "--alpha", "2"), "alpha is 2"),
        ((right, "--expected", "nowhere.toml"), "cannot read known violations"),
        ((right, "--out", "/dev/null/x"), "cannot write reports"),
        ((str(broken), "--out", "/dev/null/x"), "cannot write reports"),  # before the samples are read
        ((right, "--out", "/dev/null"), "cannot write reports to /dev/null: Not a directory"),
        (("evidence",), "'evidence' is neither a file of samples nor the evidence of one engine"),
    ):
        assert specref("judge", *words) == 2, words
        said = capsys.readouterr().err
        assert says in said
        assert said.count("\n") == 1


def test_the_command_prints_its_schema_and_judges_evidence_again(
    specref: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert specref("judge", "--schema") == 0
    assert capsys.readouterr().out == schema()
    kept(tmp_path / "kept" / "small")
    assert specref("judge", "kept/small", "--out", "again") == 0
    assert "small" in capsys.readouterr().out
    for option, value in (
        *(("--alpha", "1e-4"), ("--seed", "3"), ("--temperature", "0.5"), ("--max-tokens", "9"), ("--logprobs", "processed")),
        *(("--omitted-at-random", None), ("--engine", "other"), ("--engine-version", "2")),
    ):
        assert specref("judge", "kept/small", option, *([value] if value else [])) == 2
        assert f"{option} is sealed in the evidence's plan; give the folder alone, without it" in capsys.readouterr().err
    assert specref("judge", "kept") == 2
    assert "it has some of small: name one of these" in capsys.readouterr().err
