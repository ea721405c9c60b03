"""Leave one out: is a fault still killed where nobody has thought of it, so that no bet is on its own law?

    python -m conformance.studies.leave_one_out [--runs N] [--seed N] [--workers N] [--only TEXT]

The fault bank bets on the laws of known faults, so killing these might only prove that the registry was copied. Here every
fault that a bet kills is audited twice: as it is, which names its own bets (of all tokens, of some, of steps and of drafts the
one that holds the most), and without these, in all their sizes, with three times the samples. What is then not killed within
three times the stated n is listed. reports/studies/leave_one_out.md is written unless --only is given.
"""

from __future__ import annotations

import argparse
import re
import secrets
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

from conformance.controls.control import Control, Outcome, as_stated, run
from conformance.controls.faults import FAULTS
from conformance.findings import Statistic, Verdict
from conformance.sampling import request_seed
from conformance.statistics.bets import law_of
from conformance.studies.faults import quiet
from conformance.studies.faults_results import ALONE, strongest
from conformance.studies.report import table, write

REPORT = Path("reports/studies/leave_one_out.md")
TIMES = 3
"""How many times the stated n a fault may take without its own bets."""
RUNS = 3
BANKS: Mapping[str, tuple[str, ...]] = {
    "all tokens": ("bank",),
    "some tokens": ("slot", "context", "row", "shard", "bonus", "after a rejection", "likelihood"),
    "steps": ("acceptance", "accept flags"),
    "drafts": ("draft law",),
}
"""Where bets on the laws of known faults hold wealth: that of tokens also in parts of the tokens and of the bets."""
LAWS = ("LAW-1", "LAW-2", "LAW-3", "ACCEPT-1", "DRAFT-1", "BATCH-1", "GRAMMAR-4")
"""Requirements on a law."""
SUBJECTS: Mapping[str, Control] = {one.id: one for one in FAULTS if one.audit.without and set(LAWS) & set(one.requirements)}
"""Faults that change a law, at a stage that has a bank."""


@dataclass(frozen=True)
class Left:
    """A run of a fault with all bets and, where a bet killed it, one without.

    left: the laws that were not bet on; none where no bet would have killed it alone. n: samples with all bets; further:
    without. killed: within three times the stated n; by: what then convicted; missed: requirements that did not fail.
    """

    control: str
    left: tuple[str, ...]
    n: int
    further: int = 0
    killed: bool = True
    by: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()


def own_bets(control: Control, outcome: Outcome) -> tuple[str, ...]:
    """The laws whose bets killed a fault: in each of `BANKS` the one that holds the most, if it would have convicted alone."""
    most: dict[str, Statistic] = {}
    for name in (*control.requirements, *control.instead):
        found = outcome.finding(name)
        for one in found.statistics if found is not None and found.verdict is Verdict.VIOLATES else ():
            for bank, checks in BANKS.items():
                evidence = (one.log10_evidence or 0.0) if one.name in checks else 0.0
                if evidence >= max(ALONE, (most[bank].log10_evidence or 0.0) if bank in most else 0.0):
                    most[bank] = one
    return tuple(sorted({law_of(re.sub(r"^[a-z ]+ \d+: ", "", one.holder)) for one in most.values()}))


def without(control: Control, laws: Sequence[str]) -> Control:
    """The control audited by a judge that does not bet on these laws, with three times the samples."""
    looks = control.audit.without
    assert looks is not None
    audit = replace(control.audit, n=TIMES * control.audit.n, looks=lambda seed, n: looks(seed, n, laws))
    return replace(control, audit=audit, bound=None)


def work(asked: tuple[str, int, int]) -> Left:
    """One run of a fault, found by its id; `asked` holds the study's seed and the number of the run."""
    id, seed, number = asked
    control = SUBJECTS[id]
    first = run(control, request_seed("with its bets", seed, id, number))
    left = own_bets(control, first)
    if not left:
        return Left(id, (), first.n)
    again = without(control, left)
    second = run(again, request_seed("without them", seed, id, number))
    killed = as_stated(again, second) and second.n <= TIMES * control.stated
    found = [second.finding(name) for name in (*control.requirements, *control.instead)]
    by = [f"{one.requirement}: {strongest(one)}" for one in found if one is not None and one.verdict is Verdict.VIOLATES]
    missed = () if killed else tuple(name for name in control.requirements if name not in second.violated)
    return Left(id, left, first.n, second.n, killed, tuple(by), missed)


def main(words: Sequence[str] | None = None) -> int:
    """Run the study; the exit code (1 if a fault is listed)."""
    parser = argparse.ArgumentParser(prog="python -m conformance.studies.leave_one_out", description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=RUNS, help=f"fresh seeds for each fault (default: {RUNS})")
    parser.add_argument("--seed", type=int, default=None, help="what all seeds follow from (default: fresh)")
    parser.add_argument("--workers", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--only", default="", help="only faults whose id holds this text; writes no report")
    asked = parser.parse_args(words)
    seed = secrets.randbelow(2**31) if asked.seed is None else asked.seed
    jobs = [(id, seed, number) for number in range(asked.runs) for id in SUBJECTS if asked.only in id]
    results, started = list[Left](), time.monotonic()
    with ProcessPoolExecutor(asked.workers, initializer=quiet) as pool:
        for done, finished in enumerate(as_completed([pool.submit(work, job) for job in jobs]), start=1):
            one = finished.result()
            results.append(one)
            how = f"{one.n}, then {one.further} without {', '.join(one.left)}" if one.left else f"{one.n}, by no bet"
            told = "" if one.killed else "NOT KILLED: "
            print(f"{done} of {len(jobs)} in {time.monotonic() - started:.0f} s: {told}{one.control}: {how}", flush=True)
    command = f"python -m conformance.studies.leave_one_out --runs {asked.runs} --seed {seed}"
    print(f"{summary(results)}; seed {seed}")
    if not asked.only:
        write(REPORT, "Leave one out: faults killed without a bet on their own law", command, parts(results))
    return 0 if all(one.killed for one in results) else 1


def summary(results: Sequence[Left]) -> str:
    """In a line."""
    bet = {one.control for one in results if one.left}
    listed = sorted({one.control for one in results if not one.killed})
    told = f"not killed within {TIMES} times their n: {', '.join(listed)}" if listed else "none is missed"
    return f"{len(bet)} faults were killed by bets; {told} without their own, in {sum(bool(one.left) for one in results)} runs"


def parts(results: Sequence[Left]) -> list[str]:
    """The report's parts."""
    how = (
        "Every fault that changes a law, at a stage whose judge bets on the laws of known faults, ran twice for each seed: "
        "with all bets, and without its own ones: of all tokens, of some, of steps and of drafts the bet that held the most "
        "of a wealth that convicts, in all its sizes and everywhere. What is left are bets on other faults, the omnibus, the "
        "checks of dependence and the deterministic rules. The second run may take three times the stated n, at the same "
        f"false-alarm rate of 1e-6. {summary(results)}."
    )
    heads = ("fault", "must fail", "left out", "n with it", "n without it (median, most)", "3 x stated n", "killed", "then by")
    rows, unbet = [], []
    for id, control in SUBJECTS.items():
        some = [one for one in results if one.control == id]
        left = [one for one in some if one.left]
        if not left:
            unbet += [id] * bool(some)
            continue
        further, n = sorted(one.further for one in left), sorted(one.n for one in left)
        names = Counter(name for one in left for name in one.left)
        by = Counter(name for one in left for name in one.by)
        missed = sorted({name for one in left for name in one.missed})
        rows.append((
            id,
            " or ".join([", ".join(control.requirements), *control.instead]),
            ", ".join(names),
            n[len(n) // 2],
            f"{further[len(further) // 2]}, {further[-1]}",
            f"{TIMES * control.stated} {control.audit.unit}",
            f"{sum(one.killed for one in left)} of {len(left)}" + (f" ({', '.join(missed)} did not fail)" if missed else ""),
            "; ".join(name for name, _ in by.most_common(2)),
        ))  # fmt: skip
    others = "These change a law too, and no bet on a law would have convicted alone: " + "; ".join(unbet) + "."
    return [how, table(heads, rows), *([others] if unbet else [])]


if __name__ == "__main__":
    sys.exit(main())
