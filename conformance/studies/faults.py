"""The kill matrix: is every planted fault killed by what it names, within its stated n, and no lawful variation flagged?

    python -m conformance.studies.faults [--short | --long] [--runs N] [--seed N] [--workers N] [--only TEXT]

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
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from conformance.checks.places import nonsense
from conformance.controls.composed import composed
from conformance.controls.control import Control, Outcome, as_stated, run
from conformance.controls.faults import FAULTS
from conformance.controls.lawful import LAWFUL
from conformance.controls.lossy import LOSSY
from conformance.controls.table import HEADS, cells, shown
from conformance.findings import Finding, Statistic, Verdict
from conformance.requirements import BY_ID
from conformance.sampling import request_seed
from conformance.studies.report import table, write

REPORT = Path("reports/studies/faults.md")
SEEDS = 20
COMPOSED = 20
TIMES = 8
"""How many times the largest kill of 20 runs a stated n must be. If a fault shows at a constant rate, a further run exceeds 8
times the largest of 20 with probability 1 / C(28, 8) = 3.2e-7; evidence that grows steadily spreads less."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the study; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m conformance.studies.faults", description=__doc__.split("\n")[0])
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--short", action="store_true", help="every control once (the default)")
    form.add_argument("--long", action="store_true", help=f"{SEEDS} fresh seeds each; writes {REPORT}")
    parser.add_argument("--runs", type=int, default=0, help="fresh seeds for each control (default: by the form)")
    parser.add_argument("--seed", type=int, default=None, help="what all seeds follow from (default: fresh)")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="processes (default: 2)")
    parser.add_argument("--only", default="", help="only controls whose id holds this text")
    asked = parser.parse_args(words)
    seed = secrets.randbelow(2**31) if asked.seed is None else asked.seed
    study = Study(seed, asked.runs or (SEEDS if asked.long else 1), asked.workers, asked.only)
    study.run()
    print(study.summary())
    if asked.long and not asked.only:
        write(
            REPORT,
            "Planted faults and lawful variations: the kill matrix",
            f"python -m conformance.studies.faults --long --runs {study.runs} --seed {seed}",
            study.parts(),
        )
    return 1 if study.problems() else 0


def quiet() -> None:
    """What a worker process begins with."""
    os.environ["OMP_NUM_THREADS"] = "1"
    warnings.filterwarnings("ignore", category=RuntimeWarning)


def work(asked: tuple[str, int, int]) -> Outcome:
    """One run of a control, found by its id; `asked` holds the study's seed and the number of the run."""
    id, seed, number = asked
    own = request_seed("faults", seed, id, number)
    try:
        return run(controls(seed)[id], own)
    except Exception as error:  # of one control; the others go on, and this one is not as stated
        return Outcome(id, own, 0, 0.0, (nonsense("ENGINE", id, f"{type(error).__name__}: {error}"),))


def controls(seed: int) -> dict[str, Control]:
    """Every control by its id, those composed from the study's seed among them."""
    return {one.id: one for one in (*FAULTS, *composed(seed, COMPOSED), *LAWFUL)}


class Study:
    """Runs every control some times, and says what came of it."""

    def __init__(self, seed: int, runs: int, workers: int, only: str) -> None:
        self.seed, self.runs, self.workers = seed, runs, workers
        self.controls = {id: one for id, one in controls(seed).items() if only in id}
        self.outcomes: dict[str, list[Outcome]] = {id: [] for id in self.controls}
        self.seconds = 0.0

    def run(self) -> None:
        """All runs, in parallel processes; prints what is not as stated at once."""
        started = time.monotonic()
        jobs = [(id, self.seed, number) for number in range(self.runs) for id in sorted(self.controls, key=self._cost)]
        with ProcessPoolExecutor(self.workers, initializer=quiet) as pool:
            for done, outcome in enumerate(pool.map(work, jobs, chunksize=1), start=1):
                self.outcomes[outcome.control].append(outcome)
                if done % 50 == 0:
                    print(f"{done} of {len(jobs)} runs", flush=True)
                if not as_stated(self.controls[outcome.control], outcome):
                    print(f"NOT AS STATED: {self._told(outcome)}", flush=True)
        self.seconds = time.monotonic() - started

    def _cost(self, id: str) -> tuple[bool, int]:
        one = self.controls[id]
        return bool(one.requirements) and one.kind != "composed", -one.audit.n  # the long ones first

    def _told(self, outcome: Outcome) -> str:
        control = self.controls[outcome.control]
        words = f"must fail {', '.join(control.requirements)}" if control.requirements else "must pass"
        within = f"{words} within {control.audit.n} {control.audit.unit}"
        errors = "; ".join(one.summary for one in outcome.findings if one.verdict is Verdict.ERROR)
        found = f"violated: {list(outcome.violated)}" + (f", {errors}" if errors else "")
        return f"{outcome.control} ({within}), {found}, seed {outcome.seed}"

    def problems(self) -> list[str]:
        """Runs that did not come as stated, and lossy modes whose neutral setting is not the strict rule."""
        wrong = [
            self._told(one)
            for id, outcomes in self.outcomes.items()
            for one in outcomes
            if not as_stated(self.controls[id], one)
        ]
        wrong += [f"{id}: its n should be {n} at least" for id, n in self.too_small().items()]
        for mode in LOSSY:
            neutral, strict = mode.neutral_laws()
            if neutral != strict:
                wrong.append(f"{mode.id}: its neutral setting is not the strict rule")
        return wrong

    def too_small(self) -> dict[str, int]:
        """Faults whose stated n is less than 8 times the largest kill, where runs were enough to tell; and what it takes."""
        found = {}
        for id, outcomes in self.outcomes.items():
            control, needed = self.controls[id], TIMES * max((one.n for one in outcomes), default=0)
            enough = len(outcomes) >= SEEDS and control.requirements and not control.audit.finite
            if enough and control.kind != "composed" and control.audit.n < needed:
                found[id] = needed
        return found

    def summary(self) -> str:
        """A few lines."""
        faults = [one for one in self.controls.values() if one.requirements]
        made = sum(one.kind == "composed" for one in faults)
        runs = sum(map(len, self.outcomes.values()))
        lines = [
            f"{len(faults) - made} faults, {made} composed at random, {len(self.controls) - len(faults)} lawful variations, "
            f"{len(LOSSY)} lossy modes; {runs} runs in {self.seconds:.0f} s; seed {self.seed}"
        ]
        wrong = self.problems()
        lines += [f"not as stated: {one}" for one in wrong]
        lines.append(
            f"{len(wrong)} not as stated"
            if wrong
            else "every fault killed by what it names within its n; no lawful variation flagged"
        )
        return "\n".join(lines)

    def parts(self) -> list[str]:
        """The report's parts."""
        return [
            self.summary(),
            promise(self.runs),
            "## Exact laws\n\n" + table(HEADS, cells()),
            "## Faults\n\n" + self._matrix(lambda one: bool(one.requirements) and one.kind != "composed"),
            "## Faults composed at random\n\n" + self._matrix(lambda one: one.kind == "composed"),
            "## Lawful variations\n\n" + self._passed(),
            "## Lossy by choice\n\n" + _lossy(),
            "## What only one requirement kills\n\n" + self._only(),
        ]

    def _matrix(self, wanted: object) -> str:
        heads = (
            "control",
            "kind",
            "must fail",
            "killed by",
            "after (median)",
            "stated n",
            "killed",
            "TV",
            "acceptance alone",
            "also",
        )
        rows = []
        for id, one in self.controls.items():
            if not wanted(one):  # type: ignore[operator]
                continue
            outcomes = self.outcomes[id]
            killed = [outcome for outcome in outcomes if as_stated(one, outcome)]
            needed = sorted(outcome.n for outcome in killed)
            median = f"{needed[len(killed) // 2]}, {needed[-1]}" if killed else "-"
            also = sorted({name for outcome in outcomes for name in outcome.violated} - set(one.requirements))
            by = _holder(killed[0], one) if killed else "-"
            variation = shown(one.exact.variation()) if one.exact else "-"
            seen = "sees it" if one.acceptance_sees else "blind"
            share = f"{len(killed)} of {len(outcomes)}"
            rows.append(
                (
                    id,
                    one.kind,
                    ", ".join(one.requirements),
                    by,
                    median,
                    f"{one.audit.n} {one.audit.unit}",
                    share,
                    variation,
                    seen,
                    ", ".join(also),
                )
            )
        return table(heads, rows)

    def _passed(self) -> str:
        rows = []
        for id, one in self.controls.items():
            if not one.requirements:
                outcomes = self.outcomes[id]
                conforming = sorted(
                    {f.requirement for outcome in outcomes for f in outcome.findings if f.verdict == "conforms"}
                )
                passed = sum(as_stated(one, outcome) for outcome in outcomes)
                rows.append((id, f"{one.audit.n} {one.audit.unit}", f"{passed} of {len(outcomes)}", ", ".join(conforming)))
        return table(("variation", "judged", "passed", "conforms to"), rows)

    def _only(self) -> str:
        """For each requirement the faults that no other requirement saw in any run; others stay for the reason given."""
        rows = []
        for requirement in BY_ID.values():
            killed, alone = [], []
            for id, one in self.controls.items():
                seen = {name for outcome in self.outcomes[id] for name in outcome.violated}
                killed += [id] * (requirement.id in seen)
                alone += [id] * (seen == {requirement.id} and bool(one.requirements))
            rows.append((requirement.id, len(killed), len(alone), "; ".join(alone[:4]) + ("; ..." if len(alone) > 4 else "")))
        note = "An audit ends once all that a control names has failed, so what a later look would have seen is not counted."
        return note + "\n\n" + table(("requirement", "faults killed", "killed by it alone", "for instance"), rows)


def promise(runs: int) -> str:
    """What the runs of this report show about the stated n."""
    first = "Every control is audited as a real engine is, at a false-alarm rate of 1e-6 for the whole of it. "
    if runs < SEEDS:
        return (
            first + f"Each ran {runs} time{'s' * (runs > 1)} here; {SEEDS} fresh seeds each say whether the stated n is enough."
        )
    return first + (
        f"A fault's stated n is at least {TIMES} times the largest number of samples that any of {SEEDS} runs needed: a fault "
        "that shows at a constant rate outlasts that with probability 1 / C(28, 8) = 3.2e-7, and evidence that grows steadily "
        "spreads less. Where there is a fixed number of things to look at, they are all looked at."
    )


def _holder(outcome: Outcome, control: Control) -> str:
    return "; ".join(f"{name}: {_strongest(outcome.finding(name))}" for name in control.requirements)


def _strongest(found: Finding | None) -> str:
    """What convicted: the check and the bet that hold the evidence, or the first place."""
    assert found is not None
    held: Iterator[Statistic] = (one for one in found.statistics if one.log10_evidence is not None)
    best = max(held, key=lambda one: one.log10_evidence or 0.0, default=None)
    if best is None or (best.log10_evidence or 0.0) < 3:
        return "a single place"
    return best.name + (f" ({best.holder})" if best.holder else "")


def _lossy() -> str:
    rows = []
    for mode in LOSSY:
        law = mode.law()
        told = ", ".join(f"{token}: {law.law.get(token, 0)}" for token in range(len(mode.shown)))
        neutral, strict = mode.neutral_laws()
        rows.append((mode.id, told, shown(law.variation(mode.shown)), "equal" if neutral == strict else "NOT EQUAL"))
    return table(("mode", "law of the first token", "TV to the target", "neutral setting and strict rule"), rows)


if __name__ == "__main__":
    sys.exit(main())
