"""SGLang's server without a GPU: how it would be started, and what a server of its documented shape is asked and answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.engines import BY_NAME
from conformance.engines.sglang.modes import DRAFT, server_modes
from conformance.engines.sglang.server import SglangServer
from conformance.findings import Verdict
from conformance.harness import check_modes
from conformance.levels import AuditSettings, level_named
from conformance.not_here import OF_A_MODE, not_run
from conformance.protocols import Mode, Models, NotHere, Request, Unsupported
from conformance.run import models_named
from conformance.subject import read_subject
from specref.processors import SamplingSettings

PLAIN = SamplingSettings(max_tokens=5)
MODELS = models_named(None, None)
OFF, *SPECULATING = server_modes(4)


class Started(SglangServer):
    """The adapter, which starts the fake in SGLang's place."""

    def command(self, mode: Mode, port: int) -> list[str]:
        return [sys.executable, str(Path(__file__).parent / "fake_sglang.py"), str(port)]


@pytest.fixture
def server() -> Iterator[Started]:
    engine = Started(MODELS)
    yield engine
    engine.close()


@pytest.fixture
def with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)


def asked(*settings: SamplingSettings) -> list[Request]:
    return [Request((7, 8, 9), one, seed=number) for number, one in enumerate(settings)]


def test_requests_go_in_and_come_out_as_ids(server: Started) -> None:
    stopped, biased = replace(PLAIN, eos=(9, 2)), replace(PLAIN, logit_bias={3: -1.0}, top_k=5, temperature=0.5)
    outputs = list(server.generate(OFF, asked(PLAIN, stopped, biased)))
    assert [one.tokens for one in outputs] == [(7, 8, 9, 7, 8), (7, 8, 9), (7, 8, 9, 7, 8)]
    assert outputs[1].logprobs == (-0.5,) * 3


def test_another_mode_is_another_server_and_counts_outlive_it(server: Started) -> None:
    list(server.generate(SPECULATING[0], asked(PLAIN, PLAIN)))
    first = server._process
    list(server.generate(SPECULATING[1], asked(PLAIN)))
    assert first is not None
    assert first.poll() is not None
    counts = {"emitted": 5.0, "rounds": 2.0, "draft_tokens": 6.0, "accepted": 3.0}
    assert server.metrics(SPECULATING[0]) == {name: 2 * value for name, value in counts.items()}
    assert server.metrics(SPECULATING[1]) == counts
    assert server.renew()
    assert server._process is None
    assert server.metrics(SPECULATING[1]) == counts


def test_what_it_cannot_be_asked_is_refused_by_name(server: Started) -> None:
    for name, value in (("stop_sequences", ((1, 2),)), ("bad_words", ((1,),)), ("min_tokens", 2), ("seed", 3)):
        with pytest.raises(Unsupported, match=name):
            list(server.generate(OFF, asked(replace(PLAIN, **{name: value}))))
    with pytest.raises(Unsupported, match=r"SGLang's server refuses: .*presence_penalty must be in"):
        list(server.generate(OFF, asked(replace(PLAIN, presence_penalty=1e4))))
    assert len(list(server.generate(OFF, asked(PLAIN)))) == 1


def test_a_server_that_ends_at_once_says_so() -> None:
    class Broken(SglangServer):
        def command(self, mode: Mode, port: int) -> list[str]:
            return [sys.executable, "-c", "raise SystemExit(5)"]

    engine = Broken(MODELS)
    with pytest.raises(RuntimeError, match="SGLang's server ended with exit code 5"):
        list(engine.generate(OFF, asked(PLAIN)))
    engine.close()


def test_every_mode_has_a_control_and_says_how_it_is_lossy() -> None:
    modes = [OFF, *SPECULATING]
    check_modes(modes)
    for mode in modes:
        assert any(not one.speculates and one.options == mode.options for one in modes), mode.name
        assert (mode.rule == "target") == (not mode.speculates)
        assert bool(mode.lossy) == any("threshold" in name for name in mode.speculation)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_trees_have_no_more_nodes_than_drafting_gives(k: int) -> None:
    for mode in server_modes(k):
        steps, topk = mode.speculation.get("speculative-num-steps"), mode.speculation.get("speculative-eagle-topk")
        if steps is not None and topk is not None:
            assert mode.speculation["speculative-num-draft-tokens"] <= 1 + topk + (steps - 1) * topk**2


def test_a_mode_is_a_command_line(with_a_gpu: None) -> None:
    engine = SglangServer(MODELS)
    by_name = {mode.name: engine.command(mode, 8000) for mode in (OFF, *SPECULATING)}
    off = by_name["off"]
    assert off[:3] == [sys.executable, "-m", "sglang.launch_server"]
    assert "--disable-radix-cache" in off
    assert "--disable-radix-cache" not in by_name["off, prefix cache"]
    assert "--cuda-graph-backend-decode" not in by_name["off, CUDA graphs"]
    assert not [word for word in off if word.startswith("--speculative")]
    drawn = by_name["eagle, rejection sampling"]
    assert drawn[-1] == "--speculative-use-rejection-sampling"
    assert drawn[drawn.index("--speculative-algorithm") + 1] == "EAGLE"
    assert by_name["standalone"][by_name["standalone"].index(f"--{DRAFT}") + 1] == str(MODELS.draft)


def test_models_are_given_as_sglang_reads_them(with_a_gpu: None, tmp_path: Path) -> None:
    engine = SglangServer(MODELS)
    read = [json.loads((folder / "config.json").read_text()) for folder in (engine.target, engine.drafter("eagle"))]
    assert read[0]["eos_token_id"] is None
    assert not (engine.target / "generation_config.json").exists()
    assert read[1]["architectures"] == ["LlamaForCausalLMEagle"]
    eagle3 = json.loads((engine.drafter("eagle3") / "config.json").read_text())
    assert eagle3["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [0, 1, 2]
    assert engine.drafter("eagle") == engine.drafter("eagle")
    elsewhere = SglangServer(Models(tmp_path / "target", tmp_path / "draft"))
    with pytest.raises(NotHere, match="eagle: no folder of that name"):
        elsewhere.drafter("eagle")


def test_without_a_gpu_every_mode_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.engines.gpu.gpus", lambda: 0)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(NotHere, match="no GPU"):
        list(SglangServer(MODELS).generate(OFF, asked(PLAIN)))
    entry = BY_NAME["sglang"]
    report = not_run(entry, entry.missing, MODELS, read_subject(MODELS), AuditSettings(level_named("smoke")))
    assert {one.mode for one in report.findings} == {mode.name for mode in (OFF, *SPECULATING)}
    assert {one.verdict for one in report.findings} == {report.verdict} == {Verdict.NOT_RUN}
    assert {one.requirement for one in report.findings} >= {*OF_A_MODE, "STOP-1", "SEED-3", "LOGPROB-1"}
