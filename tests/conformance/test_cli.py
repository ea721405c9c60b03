from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from conformance import cli, engines, run
from conformance.engines import Registered
from conformance.findings import from_json
from conformance.levels import LEVELS, Level
from conformance.protocols import Models
from conformance.subject import read_subject
from specref import pretrained


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["specref", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def tiny_model(folder: Path, vocabulary: int, poison: float = 0.0, hidden_poison: float = 0.0) -> Path:
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, head_dim=8
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight[0] += poison
        model.model.embed_tokens.weight[1:5] += hidden_poison
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["audit", "vlm"], "no engine is called 'vlm'; there are specref, specref-engine"),
        (["audit", "transformers", "--level", "fast"], "no level is called 'fast'"),
        (["audit", "transformers", "-k", "0"], "k is 0"),
        (["audit", "transformers", "--temperature", "-0.1"], "temperature is -0.1"),
        (["audit", "transformers", "--alpha", "1.5"], "alpha is 1.5"),
        (["audit", "transformers", "--target", "nowhere"], "no target model lies in nowhere"),
        (["audit", "transformers", "--out", "/dev/null"], "cannot write reports to /dev/null"),
        (["audit", "transformers", "--out", "/proc"], "cannot write reports to /proc"),
        (
            ["audit", "transformers", "--control", "http://127.0.0.1:8001/v1"],
            "--control belongs to a server, and none is named",
        ),
        (["audit", "http://a/v1", "https://b/v1"], "2 servers are named; audit one at a time"),
        (
            ["audit", "--served-model", "tiny"],
            "--served-model belongs to a server, and none is named; name it by its URL, or leave",
        ),
        (["prove", "--scale", "0"], "scale is 0"),
        (["speedup", "--acceptance", "2"], "acceptance is 2"),
        (["speedup", "--plot", "/nowhere/x.svg"], "cannot draw /nowhere/x.svg"),
        (["speedup", "--plot", "x.foo"], "give a file that ends with .svg, .png or .pdf"),
    ],
)
def test_wrong_settings_are_one_line_and_exit_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    assert command(monkeypatch, *words) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


def test_a_model_that_cannot_be_used_is_one_line_and_exit_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    unreadable = tmp_path / "unreadable"
    shutil.copytree(pretrained.path("draft"), unreadable)
    (unreadable / "model.safetensors").write_bytes(b"no weights")
    other = tiny_model(tmp_path / "other", vocabulary=50)
    not_finite = tiny_model(tmp_path / "nan", 114, poison=float("nan"))
    sometimes = tiny_model(tmp_path / "sometimes", 114, hidden_poison=float("nan"))
    capsys.readouterr()
    for option, folder, says in (
        ("--target", unreadable, "the target model cannot be used"),
        ("--draft", other, "the draft's vocabulary of 50 is not the target's of 114"),
        ("--target", not_finite, "logits that are not finite"),
        ("--target", sometimes, "logits that are not finite"),
    ):
        assert command(monkeypatch, "audit", "specref", option, str(folder)) == 2
        said = capsys.readouterr().err
        assert says in said
        assert said.count("\n") == 1


def test_a_violation_exits_1_and_the_reports_say_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    wrong = Registered("wrong", "tests.conformance.wrong_engine:make", "specref", "", "accepts every draft")
    absent = Registered("absent", "x:y", "no_such_package", "pip install no-such-package", "is not there")
    monkeypatch.setitem(engines.BY_NAME, "wrong", wrong)
    monkeypatch.setitem(engines.BY_NAME, "absent", absent)
    monkeypatch.setitem(LEVELS, "tiny", Level("tiny", 400, 5, "for tests"))
    assert command(monkeypatch, "audit", "wrong", "absent", "--level", "tiny", "--out", str(tmp_path)) == 1
    said = capsys.readouterr().out
    assert "Not run here: absent (no_such_package is not installed here; pip install no-such-package)" in said
    assert "violates" in said
    judged, missing = from_json((tmp_path / "report.json").read_text())
    assert {one.mode for one in judged.findings if one.verdict == "violates"} == {"draft model, ratio"}
    assert [one.verdict for one in missing.findings] == ["not run"]
    assert {file.name for file in tmp_path.iterdir()} >= {"report.html", "report.md", "report.json", "junit.xml"}
    assert str(tmp_path) not in (tmp_path / "report.html").read_text()
    json.loads((tmp_path / "report.json").read_text())


def test_what_needs_a_gpu_is_not_run_without_one_and_nothing_is_judged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("conformance.engines.gpu.gpus", lambda: 0)
    monkeypatch.setitem(LEVELS, "tiny", Level("tiny", 400, 5, "for tests"))
    assert command(monkeypatch, "audit", "flashinfer", "sglang", "--level", "tiny", "--out", str(tmp_path)) == 3
    said = " ".join(capsys.readouterr().out.split())
    assert "Engines: none." in said
    for name, report in zip(("flashinfer", "sglang"), from_json((tmp_path / "report.json").read_text()), strict=True):
        assert f"{name} not installed was not run: no GPU" in said
        assert f'on a machine that has one: nox -s "audit({name})"' in said
        assert {one.verdict for one in report.findings} == {"not run"}
    assert said.count("off · ngram · standalone") == 1


def test_a_fault_of_our_own_does_not_look_like_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def falls_over(*_: object) -> int:
        raise RuntimeError("we are wrong")

    monkeypatch.setattr(run, "run_audits", falls_over)
    assert command(monkeypatch, "audit", "specref") == 3


def test_a_tokenizer_that_does_not_fit_gives_prompts_of_random_tokens(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "small", 50)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(pretrained.path("target") / name, folder)  # its ids go up to 113
    for broken in (False, True):
        if broken:
            (folder / "tokenizer.json").write_text("{}")
        read = read_subject(Models(folder, folder))
        assert all(token < 50 for seed in range(20) for token in read.prompts.prompt(seed))
        assert len(read.texts) == 50


def test_engines_requirements_and_help_teach(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for words, says in (
        (["engines"], "transformers"),
        (["requirements"], "| LAW-1 |"),
        (["audit", "transformers", "--help"], "specref audit my_engine_adapter:make --target ./my-model"),
        (["speedup"], "Break-even acceptance"),
    ):
        assert command(monkeypatch, *words) == 0
        assert says in capsys.readouterr().out


def test_prove_says_what_was_proven(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(monkeypatch, "prove", "--scale", "0.01", "--workers", "1") == 0
    said = capsys.readouterr().out
    assert "13 of 13 rules proven lossless" in said
