"""The code blocks of a Markdown page, and running them as a reader would: from top to bottom, in one folder.

```python title="x.py"``` and other titled blocks are saved as files; ```diff title="x.py"``` changes one; other Python blocks
run as doctests; console blocks are commands after `$ ` with the output expected of them, where `...` is anything. A comment
before a block says how it is tested: `<!-- test: long -->` only among the long tests, `<!-- test: parsed -->` not run (it needs
what is not here), but its command line is parsed.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import typer
from packaging.requirements import Requirement

from conformance import cli
from conformance.samples.reading import read

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"(?:<!-- test: (?P<how>\w+) -->\n)?^```(?P<head>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    title: str
    body: str
    how: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        language, _, rest = match["head"].partition(" ")
        title = re.search(r'title="([^"]+)"', rest)
        line = text[: match.start("head")].count("\n") + 1
        found.append(Block(path.name, line, language, title[1] if title else "", match["body"], match["how"] or ""))
    assert text.count("\n```") + text.startswith("```") == 2 * len(found), f"{path.name}: a block is not closed"
    return found


def indented_commands(path: Path) -> list[str]:
    """Commands of ours that stand by themselves as indented code, without what is said behind a #."""
    found = re.findall(r"^    ((?:specref|nox|pip) [^#\n]*)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [command.strip() for command in found]


@dataclass
class Reader:
    """Somebody who follows a page in `folder`, with `specref` and this Python on the path. long: with the slow commands too."""

    folder: Path
    long: bool = False

    def __post_init__(self) -> None:
        programs = self.folder / ".bin"
        programs.mkdir()
        for name, words in (("specref", "-P -m conformance"), ("python", "")):
            (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
            (programs / name).chmod(0o755)
        path = os.pathsep.join([str(programs), os.environ["PATH"]])
        self.environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "160"}

    def follow(self, page: Path) -> None:
        for command in indented_commands(page):
            if not not_to_run(command):
                check_parses(command)
        for block in blocks(page):
            if block.how == "parsed":
                for command, _ in commands(block):
                    check_parses(command)
            elif block.how != "long" or self.long:
                self.do(block)

    def do(self, block: Block) -> None:
        if block.language == "console":
            self.type(block)
        elif block.language == "diff":
            self.change(block)
        elif block.title:
            file = self.folder / block.title
            file.write_text(block.body, encoding="utf-8")
            if block.language == "toml":
                tomllib.loads(block.body)
            if file.suffix == ".jsonl":
                assert list(read(file)), f"{block}: no samples"
        elif block.language == "python":
            self.doctest(block)
        else:
            raise AssertionError(
                f"{block}: nothing tests a block of {block.language!r}; give it a title, or make it a console block"
            )

    def change(self, block: Block) -> None:
        lines = block.body.splitlines()
        old = "".join(f"{line[1:]}\n" for line in lines if line[:1] != "+")
        new = "".join(f"{line[1:]}\n" for line in lines if line[:1] != "-")
        file = self.folder / block.title
        text = file.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{block}: what is to be changed occurs {text.count(old)} times in {block.title}"
        file.write_text(text.replace(old, new), encoding="utf-8")

    def doctest(self, block: Block) -> None:
        """In a process of its own, after the page's earlier doctests, whose names it may use."""
        file = self.folder / f"{block.page}.doctest"
        with open(file, "a", encoding="utf-8") as collected:
            collected.write(block.body + "\n")
        assert doctest.DocTestParser().get_examples(block.body), f"{block}: a Python block is a doctest, or a file with a title"

    def finish(self) -> None:
        """Run the doctests that were collected, each page's in one process."""
        for file in self.folder.glob("*.doctest"):
            code = f"import doctest, sys; sys.path.insert(0, ''); sys.exit(doctest.testfile({str(file)!r}, False)[0])"
            said = self.run([sys.executable, "-c", code])
            assert said.returncode == 0, f"{file.name}:\n{said.stdout}{said.stderr}"

    def type(self, block: Block) -> None:
        status = 0
        for number, (command, expected) in enumerate(commands(block)):
            if not_to_run(command):
                continue
            if command == "echo $?":
                assert [str(status)] == expected.split(), f"{block}: exit code {status}, not {expected.strip()}"
                continue
            said = self.run(["bash", "-c", command])
            status = said.returncode
            shown = matches(expected, said.stdout)
            assert shown, f"{block}: `{command}` was to print\n{expected}\nbut printed\n{said.stdout}{said.stderr}"
            asked = [later for later, _ in commands(block)][number + 1 : number + 2] == ["echo $?"]
            assert status == 0 or asked, f"{block}: `{command}` ended with exit code {status}:\n{said.stdout}{said.stderr}"

    def run(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=self.folder, env=self.environment, check=False, text=True, capture_output=True)


def commands(block: Block) -> list[tuple[str, str]]:
    """(command, expected output) of a console block."""
    assert block.body.startswith("$ "), f"{block}: a console block begins with a command"
    parts = re.split(r"^\$ ", block.body, flags=re.MULTILINE)[1:]
    return [(command.strip(), expected) for command, _, expected in (part.partition("\n") for part in parts)]


def matches(expected: str, said: str) -> bool:
    """Whether output is as expected, but for spaces at the ends of lines and within them; `...` is anything, also lines."""

    def plain(text: str) -> str:
        return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())

    parts = [re.escape(part) for part in plain(expected).split("...")]
    return not expected.strip() or re.fullmatch(".*".join(parts), plain(said), flags=re.DOTALL) is not None


def not_to_run(command: str) -> bool:
    """Whether a command installs or runs whole sessions; it is then looked at instead: what it names must exist."""
    parts = command.split(" && ")
    words = [shlex.split(part) for part in parts]
    if words[0][0] == "pip":
        check_installs(words[0])
    elif words[0][0] != "nox":
        return False
    for part in words:
        if part[0] == "nox":
            check_session(part)
    return True


def check_installs(words: list[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert words[:2] == ["pip", "install"], words
    for word in words[2:]:
        if word in ("-e", ".") or word.startswith("-"):
            continue
        if word.startswith(".["):
            word = "specref" + word[1:]
        needed = Requirement(word)
        assert needed.name != "specref" or needed.extras <= extras.keys(), f"no extra is called {needed.extras - extras.keys()}"


def check_session(words: list[str]) -> None:
    """A nox command names sessions that exist, and options that they take."""
    own, _, passed = " ".join(words[1:]).partition(" -- ")
    names = [word for word in own.split() if not word.startswith("-")]
    known = sessions()
    assert all(name in known for name in names), f"{names} in {' '.join(words)}; there are {', '.join(known)}"
    if passed and any(name.startswith(("conformance", "audit")) for name in names):
        check_parses(f"specref audit {passed}")


def sessions() -> dict[str, str]:
    """Every nox session with its description."""
    listed = subprocess.run(
        [sys.executable, "-m", "nox", "-l", "-f", str(ROOT / "noxfile.py")], check=True, text=True, capture_output=True
    ).stdout
    return dict(_described(listed))


def _described(listed: str) -> Iterator[tuple[str, str]]:
    for line in listed.splitlines():
        found = re.match(r"[*-] (\S+)(?: -> (.*))?$", line)
        if found:
            yield found[1], (found[2] or "").strip()


def check_parses(command: str) -> dict[str, object]:
    """The values of a `specref` command line. Raises if there is no such command, option or value."""
    words = shlex.split(re.sub(r"^(\w+=\S+ )+", "", command))
    assert words[0] == "specref", command
    group = typer.main.get_command(cli.app)
    assert isinstance(group, click.Group) or hasattr(group, "commands")
    found = group.commands.get(words[1])
    assert found is not None, f"specref has no command {words[1]!r}"
    return dict(found.make_context(words[1], words[2:]).params)
