"""Every sub-command's help fits a screen and shows an example; every error that a user can cause ends with what to do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import conformance
from conformance import cli

COMMAND: Any = typer.main.get_command(cli.app)
NAMES = [*COMMAND.commands, ""]
LINES, COLUMNS = 40, 80
VERBS = ("give", "write", "compare", "move", "use", "run", "see", "install", "name", "print", "specref", "for instance")
DOES = re.compile(rf"\b({'|'.join(VERBS)}|the fields are|there are|a server is audited by)\b")
"""What a last clause begins with that tells a reader what to do."""
TOLD = {"problem", "say", "like"}
"""Names of what a message ends with where another one, which says what to do, is its end."""


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["specref", *words])
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize("name", NAMES)
def test_help_fits_a_screen_and_shows_an_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert run(monkeypatch, *filter(None, [name]), "--help") == 0
    lines = capsys.readouterr().out.rstrip().splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS
    assert any(f"specref {name or 'audit'} " in line or line.rstrip().endswith(f"specref {name}") for line in lines)
    assert any("Example" in line for line in lines)
    for parameter in COMMAND.commands[name].params if name else ():
        assert getattr(parameter, "help", "") or getattr(parameter, "hidden", False), parameter.name


def wrong_words() -> Iterator[tuple[str, ...]]:
    """Every command with an option that there is not, with a word for each number, and without what it needs."""
    yield ("no-such-command",)
    for name, command in COMMAND.commands.items():
        needed = [word.name for word in command.params if word.param_type_name == "argument" and word.required]
        if needed:
            yield (name,)
        yield (name, "--no-such-option", *needed)
        for option in command.params:
            if option.param_type_name == "option" and str(option.bare_type()) in ("int", "float"):
                yield (name, *needed, option.opts[0], "many")
            if option.param_type_name == "option" and not option.is_flag:
                yield (name, *needed, option.opts[0])


def test_words_that_cannot_be_read_say_where_to_look(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    some = list(wrong_words())
    assert len(some) > 50
    for words in some:
        assert run(monkeypatch, *words) == 2, words
        said = capsys.readouterr().err
        assert "--help' for help" in said or f"Option '{words[-1]}' requires an argument." in said, words
        assert "Traceback" not in said


def messages() -> Iterator[tuple[str, ast.expr]]:
    """Every message of a problem of use in our source, with its place."""
    root = Path(conformance.__file__).parent
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "UsageProblem" and node.args:
                yield f"{path.relative_to(root)}:{node.lineno}", node.args[0]


def text_of(message: ast.expr) -> str:
    """The message with {name} in the place of what is put in; of a call, its name."""
    if isinstance(message, ast.Constant):
        return str(message.value)
    if isinstance(message, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}" for part in message.values]  # type: ignore[attr-defined]
        return "".join(map(str, parts))
    return f"{{{ast.unparse(message)}}}"


def test_every_problem_of_use_ends_with_what_to_do() -> None:
    found = {place: text_of(message) for place, message in messages()}
    assert len(found) > 40
    left = {(place.partition(":")[0], text) for place, text in found.items() if not says_what_to_do(text)}
    assert left == {("engines/named.py", "{_why(name, module, tried.stderr.strip().splitlines())}")}  # tested by its words


def says_what_to_do(text: str) -> bool:
    last = re.split(r"[;:,?] ", text)[1:]
    ends = re.fullmatch(r".*\{(\w+)\}", text)
    return any(DOES.search(clause) for clause in last) or bool(ends and ends[1] in TOLD)


def test_a_message_that_says_only_what_is_wrong_would_be_found() -> None:
    assert not says_what_to_do("k is {k}; speculation drafts at least 1 token a round")
    assert says_what_to_do("k is {k}; give 1 or more")


def test_a_message_cannot_steer_the_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "audit", "specref", "--target", "no\x1b[31m\x07\udcffsuch") == 2
    said = capsys.readouterr().err.removesuffix("\n")
    assert said.isprintable()
