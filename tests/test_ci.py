from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from doc_blocks import ROOT, blocks, check_installs, check_parses, check_session, sessions

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTION = ROOT / "action.yml"
STEP_VARIABLES = {
    "ENGINE": "transformers",
    "VERSION": "5.24.0",
    "LEVEL": "smoke",
    "ALPHA": "1e-6",
    "SEED": "3",
    "OUT": "reports of a run",
    "TARGET": "",
    "DRAFT": "",
    "EXPECTED": "",
    "ACTION": ".",
    "RUNNER_TEMP": "temporary",
    "GITHUB_PATH": "paths",
    "GITHUB_STEP_SUMMARY": "summary.md",
}
PLUMBING = ("python3 -m venv ", "echo ", "cat ", "hf download ")
"""What a step may run beside our own commands and pip: a place to work in, and where the runner reads."""


def load(path: Path) -> dict[str, Any]:
    # YAML 1.1 reads the key `on` as True
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))


def steps(path: Path) -> list[dict[str, Any]]:
    document = load(path)
    if path == ACTION:
        return list(document["runs"]["steps"])
    return [step for job in document["jobs"].values() for step in job["steps"]]


def run_lines(path: Path) -> Iterator[str]:
    for step in steps(path):
        for line in step.get("run", "").splitlines():
            if line.strip():
                yield line.strip()


def schema(kind: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{kind}", *map(str, paths)]
    return subprocess.run(words, check=False, text=True, capture_output=True)


def test_workflows_and_the_action_follow_githubs_schemas(tmp_path: Path) -> None:
    shown = []
    for block in blocks(ROOT / "docs" / "gpu_ci.md"):
        if block.language == "yaml":
            shown.append(tmp_path / block.title)
            shown[-1].write_text(block.body)
    assert len(WORKFLOWS) == 2
    assert len(shown) == 2
    for checked in (schema("github-workflows", *WORKFLOWS, *shown), schema("github-actions", ACTION)):
        assert checked.returncode == 0, checked.stdout
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS[0].read_text().replace("runs-on", "run-on"))
    assert schema("github-workflows", wrong).returncode != 0


def test_every_workflow_says_what_it_may_do_and_for_how_long() -> None:
    for path in WORKFLOWS:
        document = load(path)
        assert document["permissions"] == {"contents": "read"}
        assert all("timeout-minutes" in job for job in document["jobs"].values())
    for path in (*WORKFLOWS, ACTION):
        for step in steps(path):
            assert "${{" not in step.get("run", ""), "values reach the shell as variables only: no text is run as code"
            assert "run" in step or "@" in step["uses"]
            assert path != ACTION or "uses" in step or step["shell"] == "bash"


@pytest.mark.parametrize("path", [*WORKFLOWS, ACTION, ROOT / ".ci" / "run"], ids=lambda path: path.name)
def test_every_line_that_a_job_runs_is_a_command_of_ours_that_exists(path: Path) -> None:
    lines = run_lines(path) if path.suffix == ".yml" else ci_lines(path)
    seen = 0
    for line in lines:
        words = expanded(line)
        seen += 1
        if words[0] == "nox":
            check_session(words)
        elif words[0] == "specref":
            check_parses(shlex.join(words))
        elif words[:3] == ["python", "-m", "pip"] or words[0] == "pip":
            check_installs(words[words.index("pip") :])
        elif words[0] == "bash":
            assert (ROOT / words[1]).exists()
        else:
            assert line.startswith(PLUMBING), f"{path.name}: nothing tests {line!r}"
    assert seen >= 2


def ci_lines(path: Path) -> list[str]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith(("#", "set ", "cd ", "export "))]
    assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0
    return [line for line in lines if line.startswith("nox ")]


def expanded(line: str, **values: str) -> list[str]:
    """The words that bash makes of a line's first command, with a step's variables set."""
    command = re.split(r" (?:\|\||&&|>>) ", line)[0]
    script = f"printf '%s\\n' {command}"
    environment = {**os.environ, **STEP_VARIABLES, **values}
    said = subprocess.run(["bash", "-c", script], check=True, text=True, capture_output=True, env=environment)
    return said.stdout.splitlines()


def test_the_action_hands_its_inputs_over_and_leaves_out_what_is_empty() -> None:
    line = next(line for line in map(" ".join, map(str.split, run_lines_joined(ACTION))) if line.startswith("specref audit"))
    plain = check_parses(shlex.join(expanded(line)))
    assert (plain["engines"], plain["level"], plain["alpha"], plain["seed"]) == (["transformers"], "smoke", 1e-6, 3)
    assert plain["out"] == Path("reports of a run")
    assert plain["target"] is plain["draft"] is plain["expected"] is None
    full = check_parses(shlex.join(expanded(line, TARGET="my target", EXPECTED="known.toml", ENGINE="mine:make")))
    assert (full["engines"], full["target"], full["draft"]) == (["mine:make"], Path("my target"), None)
    assert full["expected"] == Path("known.toml")


def run_lines_joined(path: Path) -> list[str]:
    return [step["run"] for step in steps(path) if "run" in step]


def test_the_actions_inputs_are_those_that_its_documentation_names() -> None:
    inputs = load(ACTION)["inputs"]
    page = (ROOT / "docs" / "gpu_ci.md").read_text()
    rows = re.findall(r"^\| (`[^|]*`) \|", page.partition("Inputs:")[2].partition("##")[0], flags=re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == set(inputs)
    used = set(re.findall(r"inputs\.(\w+)", ACTION.read_text()))
    assert used == set(inputs)


def test_the_summary_of_a_job_is_the_report(tmp_path: Path) -> None:
    line = next(line for line in run_lines(ACTION) if "GITHUB_STEP_SUMMARY" in line)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.md").write_text("## Speculative decoding\n")
    environment = {**os.environ, "OUT": "out", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    subprocess.run(["bash", "-c", line], check=True, cwd=tmp_path, env=environment)
    assert (tmp_path / "summary.md").read_text() == "## Speculative decoding\n"
    summaries = [step for path in (*WORKFLOWS, ACTION) for step in steps(path) if "GITHUB_STEP_SUMMARY" in step.get("run", "")]
    assert len(summaries) == 3
    assert all(step["if"] == "always()" for step in summaries), "a red run needs its summary most"


def test_nox_explains_every_session_in_a_line() -> None:
    described = sessions()
    assert {"tests", "lint", "conformance"} <= described.keys()
    for name, what in described.items():
        assert what, f"nox -l says nothing about {name}"


def test_pre_commit_runs_the_versions_that_are_pinned() -> None:
    repositories = load(ROOT / ".pre-commit-config.yaml")["repos"]
    revisions = {entry["repo"].rpartition("/")[2]: entry.get("rev", "").removeprefix("v") for entry in repositories}
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    assert revisions["ruff-pre-commit"] == pins["ruff"]
    assert revisions["check-jsonschema"] == pins["check-jsonschema"]
    assert "actionlint" in revisions
