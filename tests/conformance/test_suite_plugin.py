from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from conformance import run
from conformance.expected import mark_expected, read_expected
from conformance.findings import EngineReport, Finding, Verdict, from_json, to_json
from conformance.levels import LEVELS, AuditSettings, Level
from conformance.problems import UsageProblem

pytest_plugins = ["pytester"]

SUITE = ("--pyargs", "conformance.suite")
INSTALLED = any(entry.value == "specref.pytest_entry" for entry in entry_points(group="pytest11"))
PLUGIN = () if INSTALLED else ("-p", "specref.pytest_entry")
"""Where the package is not installed, pytest does not find the plugin by itself."""

ENTRY = """
[[violation]]
engine = "toy"
version = "1"
requirement = "LAW-1"
mode = "draft model"
reason = "known upstream"
n = 2000
"""


def toy(*verdicts: Verdict, n: int = 5_000) -> EngineReport:
    """A report with these verdicts of LAW-1, LAW-2 and so on."""
    found = [
        Finding(f"LAW-{number}", "draft model", verdict, f"it {verdict} <here>", n=n, planned=n)
        for number, verdict in enumerate(verdicts, start=1)
    ]
    return EngineReport("toy", "1", "smoke", 1e-6, 0, "", 1.0, "t", "d", tuple(found))


Audits = Callable[[EngineReport], list[tuple[object, ...]]]


@pytest.fixture
def audits(monkeypatch: pytest.MonkeyPatch) -> Audits:
    """Makes every audit end in a given report, in no time; gives the list of what is then asked for."""

    def ends_in(report: EngineReport) -> list[tuple[object, ...]]:
        asked: list[tuple[object, ...]] = []

        def audit(
            names: list[str], settings: AuditSettings, target: Path, draft: Path, expected: Path, folder: Path, _: object
        ) -> int:
            asked.append((names, settings, target, draft, folder))
            folder.mkdir(parents=True)
            known = read_expected(expected) if expected else []
            (folder / "report.json").write_text(to_json(mark_expected([report], known)))
            return 0

        monkeypatch.setattr(run, "run_audits", audit)
        return asked

    return ends_in


def suite(pytester: pytest.Pytester, *words: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess(*PLUGIN, *SUITE, "--engine", "toy:make", "-rA", *words)


def test_each_verdict_has_its_outcome_and_its_words(pytester: pytest.Pytester, audits: Audits) -> None:
    asked = audits(toy(*Verdict))
    words = ("--level", "smoke", "--alpha", "1e-4", "--seed", "7", "--target", "t", "--draft", "d", "--specref-out", "out")
    result = suite(pytester, *words)
    result.assert_outcomes(passed=2, failed=3, skipped=3)
    result.stdout.fnmatch_lines(["_* LAW-2*draft model* _*", "violates: it violates <here>", "The engine does not write what*"])
    result.stdout.fnmatch_lines(["FAILED *LAW-2*draft model* - violates: it vi*"])
    result.stdout.fnmatch_lines(["SKIPPED*not promised: it not promised <here>"])
    result.stdout.no_fnmatch_line("*Traceback*")
    failed = [line.split(" - ")[0].split("::")[1] for line in result.outlines if line.startswith("FAILED")]
    numbers = {f"LAW-{list(Verdict).index(one) + 1}" for one in (Verdict.VIOLATES, Verdict.INCONCLUSIVE, Verdict.ERROR)}
    assert {name.partition("[")[0] for name in failed} == numbers
    assert asked == [(["toy:make"], AuditSettings(LEVELS["smoke"], 1e-4, 7), Path("t"), Path("d"), Path("out"))]


def test_two_workers_share_one_audit_and_have_the_same_tests(pytester: pytest.Pytester, audits: Audits) -> None:
    asked = audits(toy(*Verdict))
    outcomes = []
    for number, words in enumerate(([], ["-n", "2"])):
        result = suite(pytester, "--specref-out", f"out{number}", *words)
        result.assert_outcomes(passed=2, failed=3, skipped=3)
        outcomes.append({line.split(" - ")[0] for line in result.outlines if line.startswith(("PASSED", "FAILED"))})
    assert outcomes[0] == outcomes[1]
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("verdict", "n", "expires", "outcome", "says"),
    [
        (Verdict.VIOLATES, 5_000, "", "xfailed", "known upstream"),
        (Verdict.VIOLATES, 5_000, "2999-01-31", "xfailed", "known upstream"),
        (Verdict.VIOLATES, 5_000, "2020-01-31", "failed", "its entry expired on 2020-01-31"),
        (Verdict.CONFORMS, 5_000, "", "failed", "a known violation was not seen in 5,000 samples (known upstream)"),
        (Verdict.CONFORMS, 100, "", "xpassed", "not tested at this level"),
        (Verdict.ERROR, 100, "", "failed", "it error"),
        (Verdict.NOT_RUN, 100, "", "skipped", "not run"),
    ],
)
def test_known_violations(
    pytester: pytest.Pytester, audits: Audits, verdict: Verdict, n: int, expires: str, outcome: str, says: str
) -> None:
    report = toy(verdict, Verdict.CONFORMS, n=n)
    audits(report)
    pytester.path.joinpath("known.toml").write_text(ENTRY + (f"expires = {expires}\n" if expires else ""))
    result = suite(pytester, "--expected", "known.toml")
    result.assert_outcomes(**{"passed": 1, outcome: 1})
    assert says in result.stdout.str()


def test_an_expiry_is_a_date(tmp_path: Path) -> None:
    for wrong in ("'2027-01-31'", "2027-01-31T10:00:00", "20270131"):
        (tmp_path / "known.toml").write_text(f"{ENTRY}expires = {wrong}\n")
        with pytest.raises(UsageProblem, match=r"violation 1 .* expires is .*; write a date, as 2027-01-31"):
            read_expected(tmp_path / "known.toml")


def test_an_engine_of_which_nothing_is_judged_does_not_look_right(pytester: pytest.Pytester, audits: Audits) -> None:
    audits(toy(Verdict.NOT_RUN, Verdict.NOT_EXPOSED))
    result = suite(pytester)
    result.assert_outcomes(skipped=2, failed=1)
    assert "nothing of toy 1 was judged" in result.stdout.str()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "which engine? Give --engine, for instance: pytest --pyargs conformance.suite --engine my_package"),
        (["--engine", "nowhere:make"], "cannot load nowhere:make"),
        (["--engine", "toy:make", "--level", "fast"], "no level is called 'fast'"),
        (["--engine", "http://127.0.0.1:1/v1"], "specref audit http://127.0.0.1:1/v1 --target MODEL"),
    ],
)
def test_wrong_usage_is_one_line(pytester: pytest.Pytester, words: list[str], says: str) -> None:
    result = pytester.runpytest_inprocess(*PLUGIN, *SUITE, *words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert says in result.stderr.str()
    assert "Traceback" not in result.stderr.str()


def test_it_is_in_no_other_test_runs_way(pytester: pytest.Pytester) -> None:
    """Another project may have options of the same names, and pays for no import."""
    pytester.makeconftest(
        "def pytest_addoption(parser):\n    for name in ('--engine', '--level', '--seed'):\n        parser.addoption(name)"
    )
    pytester.makepyfile("def test_theirs(request): assert request.config.getoption('--engine') == 'diesel'")
    result = pytester.runpytest_inprocess(*PLUGIN, "--engine", "diesel")
    result.assert_outcomes(passed=1)
    heavy = {"torch", "numpy", "rich", "conformance"}
    asks = f"import sys, specref.pytest_entry; print({{name.partition('.')[0] for name in sys.modules}} & {heavy})"
    said = subprocess.run([sys.executable, "-c", asks], check=True, text=True, capture_output=True)
    assert said.stdout.strip() == "set()"


def beside_their_own(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """pytest in a project that has a package of its own called conformance."""
    (folder / "conformance").mkdir()
    (folder / "conformance" / "__init__.py").write_text("WHOSE = 'theirs'")
    (folder / "test_theirs.py").write_text("import conformance\ndef test_theirs(): assert conformance.WHOSE == 'theirs'")
    command = [sys.executable, "-m", "pytest", "-q", *PLUGIN, *words]
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (folder, Path(__file__).parents[2])))}
    return subprocess.run(command, cwd=folder, env=paths, check=False, text=True, capture_output=True)


def test_a_project_with_a_package_of_that_name_is_tested_as_ever(tmp_path: Path) -> None:
    done = beside_their_own(tmp_path, "test_theirs.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_where_such_a_package_hides_the_suite_it_says_so(tmp_path: Path) -> None:
    done = beside_their_own(tmp_path, *SUITE, "--engine", "toy:make")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"another package called conformance ({(tmp_path / 'conformance').resolve()}) hides that of specref" in done.stderr
    assert "run pytest (rather than python -m pytest)" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
@pytest.mark.parametrize(("engine", "violated"), [("conformance.engines.own", 0), ("tests.conformance.wrong_engine", 1)])
def test_a_real_audit(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, engine: str, violated: int) -> None:
    monkeypatch.setitem(LEVELS, "tiny", Level("tiny", 400, 5, "for tests"))
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    result = pytester.runpytest_inprocess(*PLUGIN, *SUITE, "--engine", f"{engine}:make", "--level", "tiny")
    outcomes = result.parseoutcomes()
    assert bool(outcomes.get("failed", 0)) == bool(violated)
    assert outcomes["passed"] > 3
    (report,) = pytester.path.glob("audits/*/report.json")
    (judged,) = from_json(report.read_text())
    assert sum(outcomes.values()) - outcomes.get("warnings", 0) == len(judged.findings)
    assert (report.parent / "report.html").exists()
    assert "100%" in result.stderr.str()
