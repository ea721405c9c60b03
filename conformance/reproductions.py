"""Every published reproduction, run again in the environment of its engine: `python -m conformance.reproductions`.

A reproduction is a script of under 40 lines in reports/ENGINE-VERSION/reproductions that needs its engine alone, says what it
sees, and exits with 1 where the fault is. The command ends with 0 only if every one still shows what its report says.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from conformance.engines import BY_NAME, REGISTRY
from conformance.systems import REPORTS

PATIENCE = 900
"""Seconds that a reproduction has: on a busy machine it takes long to import an engine."""
CRASH = "Traceback (most recent call last)"
"""How what Python says of a crash begins."""


class NotShown(Exception):
    """A reproduction did not show what its report says. The message says what it did instead."""


def reproductions_of(engine: str, folder: Path = REPORTS) -> list[Path]:
    """The scripts about one engine, at any version.

    >>> [path.stem for path in reproductions_of("sequential-speculative-decoding")]
    ['capped_hsd_at_temperature_0', 'capped_hsd_is_not_the_target']
    """
    return sorted(folder.glob(f"{engine}-[0-9]*/reproductions/*.py"))


def show_again(python: str, script: Path) -> str:
    """Run a reproduction; what it says. Raises NotShown."""
    alone = {"OMP_NUM_THREADS": "1", **os.environ}  # beside another job, threads on every core wait for each other without end
    try:
        done = subprocess.run([python, str(script)], check=False, capture_output=True, text=True, timeout=PATIENCE, env=alone)
    except subprocess.TimeoutExpired as expired:
        raise NotShown(f"it had not ended after {PATIENCE} s") from expired
    if done.returncode == 1 and done.stdout and not crashed(done.stderr):
        return done.stdout
    said = (done.stdout + done.stderr).strip().splitlines()
    raise NotShown(f"exit code {done.returncode}, where the fault has 1; it says: {said[-1] if said else 'nothing'}")


def crashed(errors: str) -> bool:
    """Whether a program that wrote `errors` was ended by an exception: Python has exit code 1 for that too. Others' tracebacks,
    in a log, are followed by more.

    >>> crashed("Traceback (most recent call last):\\n  File 'a', line 1\\nImportError: no b\\n"), crashed("Traceback is fine")
    (True, False)
    """
    _, found, rest = errors.rpartition(CRASH)
    return bool(found) and all(line.startswith(" ") for line in rest.strip().splitlines()[1:-1])


def show_all(engines: Sequence[str]) -> int:
    """Run the reproductions about some engines, saying how far it is; how many did not show their fault."""
    asked = [(BY_NAME[engine], script) for engine in engines for script in reproductions_of(engine)]
    failed = 0
    for number, (engine, script) in enumerate(asked, start=1):
        started = time.monotonic()
        try:
            if not engine.importable:
                raise NotShown(f"{engine.name} is not installed: {engine.install}")
            show_again(engine.python, script)
            verdict = "shown"
        except NotShown as problem:
            failed += 1
            verdict = f"NOT SHOWN: {problem}"
        where = f"{script.parents[1].name}/{script.name}"
        print(f"[{number}/{len(asked)}] {where}: {verdict} ({time.monotonic() - started:.0f} s)", flush=True)
    print(f"{len(asked) - failed} of {len(asked)} reproductions show what their report says.")
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 0 if every reproduction shows its fault, else 1."""
    reported = [entry.name for entry in REGISTRY if reproductions_of(entry.name)]
    parser = argparse.ArgumentParser(prog="python -m conformance.reproductions", description=__doc__)
    parser.add_argument("--engine", action="append", choices=reported, help="of this engine only (may be repeated)")
    return int(show_all(parser.parse_args(arguments).engine or reported) > 0)


if __name__ == "__main__":
    sys.exit(main())
