from __future__ import annotations

from pathlib import Path

import pytest

from conformance.engines import BY_NAME
from conformance.engines.named import engine_named
from conformance.problems import UsageProblem


@pytest.fixture(autouse=True)
def in_a_folder_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", root)
    monkeypatch.chdir(tmp_path)


def test_an_adapter_in_the_current_folder_is_an_engine(tmp_path: Path) -> None:
    (tmp_path / "mine_adapter.py").write_text("def make(models):\n    raise RuntimeError('only imported')\n")
    engine = engine_named("mine_adapter:make")
    assert engine.factory == "mine_adapter:make"
    assert engine.importable
    assert engine.share == 1


def test_names_of_the_registry_are_its_engines() -> None:
    assert all(engine_named(name) is entry for name, entry in BY_NAME.items())


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("vlm", "no engine is called 'vlm'; there are specref, specref-engine, transformers"),
        ("json", "an adapter is named as json:make"),
        ("mine", "an adapter is named as mine:make"),
        ("nowhere:make", "No module named 'nowhere'; modules are looked for in the current folder"),
        ("mine:mak", "module 'mine' has no attribute 'mak'; name the function in it"),
        ("mine:NUMBER", "mine:NUMBER cannot be called"),
        ("broken:make", "importing broken ends with SyntaxError"),
        ("raises:make", "importing raises ends with RuntimeError: no driver; `python -c 'import raises'` shows where"),
        ("needs:make", "No module named 'an_engine'"),
        (":make", "names no adapter"),
        ("mine:", "names no adapter"),
    ],
)
def test_what_cannot_be_loaded_is_said_with_the_remedy(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "mine.py").write_text("NUMBER = 3\n")
    (tmp_path / "broken.py").write_text("no python\n")
    (tmp_path / "raises.py").write_text("raise RuntimeError('no driver')\n")
    (tmp_path / "needs.py").write_text("import an_engine\n")
    with pytest.raises(UsageProblem) as problem:
        engine_named(name)
    assert says in str(problem.value)
    assert "\n" not in str(problem.value)
