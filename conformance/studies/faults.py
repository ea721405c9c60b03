"""The kill matrix: is every planted fault killed by what it names, within its stated n, and no lawful variation flagged?

    python -m conformance.studies.faults [--short | --long] [--runs N] [--seed N] [--workers N] [--only TEXT] [--keep FILE]

Short (the default): every control once, with a fresh seed. Long: 20 fresh seeds each, and reports/studies/faults.md is written.
Exit code 1 if anything is not as stated, or if the long form finds a fault whose stated n is not large enough.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from conformance.controls.composed import composed
from conformance.controls.control import RUNS, Control, run
from conformance.controls.faults import FAULTS
from conformance.controls.lawful import LAWFUL
from conformance.controls.lossy import LOSSY
from conformance.sampling import request_seed
from conformance.studies.faults_report import parts
from conformance.studies.faults_results import Journal, Result, result
from conformance.studies.report import write

REPORT = Path("reports/studies/faults.md")
COMPOSED = 20
SHOW_EVERY = 25.0
"""Seconds between two lines of progress."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the study; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m conformance.studies.faults", description=__doc__.split("\n")[0])
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--short", action="store_true", help="every control once (the default)")
    form.add_argument("--long", action="store_true", help=f"{RUNS} fresh seeds each; writes {REPORT}")
    parser.add_argument("--runs", type=int, default=0, help="fresh seeds for each control (default: by the form)")
    parser.add_argument("--seed", type=int, default=None, help="what all seeds follow from (default: fresh)")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="processes (default: 2)")
    parser.add_argument("--only", default="", help="only controls whose id holds this text")
    parser.add_argument("--keep", type=Path, default=None, help="a file for every result; the study goes on where it ended")
    asked = parser.parse_args(words)
    journal = Journal(asked.keep, secrets.randbelow(2**31) if asked.seed is None else asked.seed)
    study = Study(journal, asked.runs or (RUNS if asked.long else 1), asked.workers, asked.only)
    study.run()
    print(study.summary())
    if asked.long and not asked.only:
        command = f"python -m conformance.studies.faults --long --runs {study.runs} --seed {journal.seed}"
        title = "Planted faults and lawful variations: the kill matrix"
        write(REPORT, title, command, parts(study.summary(), study.controls, study.results, study.runs))
    return 1 if study.problems() else 0


def quiet() -> None:
    """What a worker process begins with."""
    os.environ["OMP_NUM_THREADS"] = "1"
    warnings.filterwarnings("ignore", category=RuntimeWarning)


def work(asked: tuple[str, int, int]) -> Result:
    """One run of a control, found by its id; `asked` holds the study's seed and the number of the run."""
    id, seed, number = asked
    own, control = request_seed("faults", seed, id, number), controls(seed)[id]
    try:
        return result(control, number, run(control, own))
    except Exception as error:  # of one control; the others go on, and this one is not as stated
        return Result(id, number, own, 0, 0, 0.0, False, error=f"{type(error).__name__}: {error}")


def controls(seed: int) -> dict[str, Control]:
    """Every control by its id, those composed from the study's seed among them."""
    return {one.id: one for one in (*FAULTS, *composed(seed, COMPOSED), *LAWFUL)}


class Study:
    """Runs every control some times, and says what came of it."""

    def __init__(self, journal: Journal, runs: int, workers: int, only: str) -> None:
        self.journal, self.runs, self.workers = journal, runs, workers
        self.controls = {id: one for id, one in controls(journal.seed).items() if only in id}

    @property
    def results(self) -> dict[str, list[Result]]:
        """The results of every control."""
        found: dict[str, list[Result]] = {id: [] for id in self.controls}
        for one in self.journal.known:
            if one.control in found and one.number < self.runs:
                found[one.control].append(one)
        return found

    def run(self) -> None:
        """All runs that are not known yet, in parallel processes: the first of every control, then the second."""
        known = {(one.control, one.number) for one in self.journal.known}
        jobs = [(id, number) for number in range(self.runs) for id in self.controls if (id, number) not in known]
        started = shown = time.monotonic()
        with ProcessPoolExecutor(self.workers, initializer=quiet) as pool:
            running = [pool.submit(work, (id, self.journal.seed, number)) for id, number in jobs]
            for done, finished in enumerate(as_completed(running), start=1):
                one = finished.result()
                self.journal.add(one)
                if not one.as_stated or (self.controls[one.control].requirements and one.audits > 1):
                    print(self.told(one), flush=True)
                if time.monotonic() - shown > SHOW_EVERY:
                    shown = time.monotonic()
                    print(f"{done} of {len(jobs)} runs in {shown - started:.0f} s, {one.control}: {one.n}", flush=True)

    def told(self, one: Result) -> str:
        """A result that is not as stated, or took more than one audit, in words."""
        control = self.controls[one.control]
        words = f"must fail {', '.join(control.requirements)}" if control.requirements else "must pass"
        asked = f"{one.control} ({words} within {control.stated if control.requirements else control.audit.n} "
        found = f"violated: {list(one.violated)} after {one.n}, {one.audits} audits" + (f", {one.error}" if one.error else "")
        return f"{'as stated' if one.as_stated else 'NOT AS STATED'}: {asked}{control.audit.unit}), {found}, seed {one.seed}"

    def problems(self) -> list[str]:
        """Runs that did not come as stated, faults whose n is too small, lossy modes whose neutral setting is not strict."""
        results = self.results
        wrong = [self.told(one) for some in results.values() for one in some if not one.as_stated]
        for id in self.too_small():
            often = sum(one.audits > 1 for one in results[id])
            wrong.append(f"{id}: {often} of {len(results[id])} runs took more than one audit, so its n is too small")
        for mode in LOSSY:
            neutral, strict = mode.neutral_laws()
            if neutral != strict:
                wrong.append(f"{mode.id}: its neutral setting is not the strict rule")
        return wrong

    def too_small(self) -> list[str]:
        """Faults that were run often enough for their n to be judged, and that an audit of n samples missed."""
        judged = {id: some for id, some in self.results.items() if len(some) >= RUNS and self.controls[id].requirements}
        return [id for id, some in judged.items() if any(one.as_stated and one.audits > 1 for one in some)]

    def summary(self) -> str:
        """A few lines."""
        faults = [one for one in self.controls.values() if one.requirements]
        made = sum(one.kind == "composed" for one in faults)
        known = [one for some in self.results.values() for one in some]
        lines = [
            f"{len(faults) - made} faults, {made} composed at random, {len(self.controls) - len(faults)} lawful variations, "
            f"{len(LOSSY)} lossy modes; {len(known)} runs in {sum(one.seconds for one in known):.0f} processor seconds; "
            f"seed {self.journal.seed}"
        ]
        wrong = self.problems()
        lines += [f"not as stated: {one}" for one in wrong]
        lines.append(
            f"{len(wrong)} not as stated"
            if wrong
            else "every fault killed by what it names within its n; no lawful variation flagged"
        )
        return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
