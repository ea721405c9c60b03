from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from conformance.harness import InProcess
from conformance.new_engine import TEMPLATES, skeleton, write_skeleton
from conformance.problems import UsageProblem
from conformance.protocols import Models, Request, Unsupported
from specref.processors import SamplingSettings

MODELS = Models(Path("target"), Path("draft"))


def loaded(text: str) -> ModuleType:
    module = ModuleType("an_adapter")
    exec(compile(text, "an_adapter.py", "exec"), module.__dict__)
    return module


def filled(text: str, *changes: tuple[str, str]) -> ModuleType:
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return loaded(text)


def test_a_filled_in_engine_answers_and_refuses_by_name() -> None:
    module = filled(
        skeleton("my-engine"),
        ('raise NotImplementedError("load the engine here")', "self.bonus = 7"),
        ('raise NotImplementedError("run the engine here")', "return Output((*request.prompt, self.bonus))"),
    )
    runner = InProcess(module.make(MODELS))
    info = runner.describe(k=3)
    assert (info.name, [mode.speculation for mode in info.modes]) == ("my-engine", [{}, {"k": 3}])
    asked = [Request((first, 2), SamplingSettings(max_tokens=4, temperature=0.5, eos=(2,)), first) for first in (5, 6)]
    assert [output.tokens for output in runner.generate(info.modes[1], asked)] == [(5, 2, 7), (6, 2, 7)]
    for name, value in {"top_k": 3, "min_p": 0.1, "stop_sequences": [(5,)], "min_tokens": 1, "logit_bias": {3: 1.0}}.items():
        request = Request((1,), SamplingSettings(**{"max_tokens": 4, name: value}), 0)
        with pytest.raises(Unsupported, match=name):
            list(runner.generate(info.modes[0], [request]))
    assert module.one_round(0, [1, 2], 1, [1, 5], "ratio").emitted == (1, 5)
    runner.close()


def test_a_filled_in_verification_answers() -> None:
    call = "return VerifiedBatch(np.zeros(len(drafts), np.int64), np.zeros(len(drafts), np.int64))"
    module = filled(skeleton("parts", "component"), ('raise NotImplementedError("call the verification function here")', call))
    engine = module.make(MODELS)
    (verifier,) = engine.components()
    laws = np.full((2, 4, 5), 0.2)
    batch = verifier.verify(laws, laws[:, :3], np.zeros((2, 3), np.int64), uniforms=None, seed=0)
    assert batch.nonsense(nodes=3, vocabulary=5) == ""
    with pytest.raises(Unsupported):
        engine.generate(engine.modes(4)[0], [])


def test_what_is_not_filled_in_says_so() -> None:
    with pytest.raises(NotImplementedError, match="load the engine here"):
        loaded(skeleton("my-engine")).make(MODELS)


def test_nothing_is_overwritten_and_bad_names_are_refused(tmp_path: Path) -> None:
    path = write_skeleton("My Engine.2", tmp_path)
    assert path.name == "my_engine_2_adapter.py"
    assert "class MyEngine2Adapter(Engine):" in path.read_text()
    path.write_text("mine")
    with pytest.raises(UsageProblem, match="is there already"):
        write_skeleton("my-engine-2", tmp_path)
    assert path.read_text() == "mine"
    for name in ("", "1st", "a/b", 'x"', "class", "é"):
        with pytest.raises(UsageProblem, match="cannot name a Python module"):
            write_skeleton(name, tmp_path)
    with pytest.raises(UsageProblem, match="cannot write"):
        write_skeleton("x", tmp_path / "nowhere")


def test_what_is_written_is_clean(tmp_path: Path) -> None:
    for what in TEMPLATES:
        (tmp_path / f"{what}.py").write_text(skeleton("my-engine", what))
    ruff = [sys.executable, "-m", "ruff"]
    config = ["--config", str(Path(__file__).parents[2] / "pyproject.toml")]
    for words in ([*ruff, "format", "--check", *config, "."], [*ruff, "check", "--ignore", "D1,I", *config, "."]):
        said = subprocess.run(words, cwd=tmp_path, check=False, text=True, capture_output=True)
        assert said.returncode == 0, said.stdout
