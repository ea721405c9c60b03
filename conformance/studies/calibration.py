"""Does the judge keep its error rate? Null runs of correct engines, looked at fourteen times at a nominal 1%.

    python -m conformance.studies.calibration [--long] [--seed N]

prints the tables and writes them to reports/studies/calibration.md (calibration-short.md for the short form). Exit
code 1 if any rate is above nominal with 99.9% confidence, or that of a p-value, which is the nominal one, with all but 1e-8.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path

import numpy as np

from conformance.studies import null_runs
from conformance.studies.null_runs import Rate
from conformance.studies.report import table, write

REPORTS = Path("reports/studies")
HEADS = ("what", "alarms", "runs", "rate", "lower bound (99.9%)", "nominal", "holds")


def rows(rates: list[Rate]) -> list[list[object]]:
    """Table rows of rates."""
    return [
        [r.what, r.alarms, r.runs, f"{r.alarms / r.runs:.4f}", f"{r.lower:.4f}", f"{r.nominal:g}", "yes" if r.holds else "NO"]
        for r in rates
    ]


def main(arguments: list[str] | None = None) -> int:
    """Run the study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help="as many runs as the published table")
    parser.add_argument("--seed", type=int, default=None, help="default: a fresh one")
    parser.add_argument("--out", type=Path, default=REPORTS)
    options = parser.parse_args(arguments)
    seed = secrets.randbits(32) if options.seed is None else options.seed
    rng = np.random.default_rng(seed)
    counts = {16: 20_000, 256: 20_000, 4096: 2_000} if options.long else {16: 2_000, 256: 1_000, 4096: 100}
    parts, rates = [], []
    for V, runs in counts.items():
        found = null_runs.from_counts(V, runs, rng)
        rates += found
        parts += [f"## Fixed laws, V = {V}: 14 looks at 50 to 20,000 tokens", table(HEADS, rows(found))]
        print("\n\n".join(parts[-2:]), flush=True)
    for title, found in (
        (
            "Streams: every check of a simulated engine, 160 requests of 8 tokens",
            null_runs.from_streams(600 if options.long else 40, rng),
        ),
        (
            "Rank p-value of chi-square, B = 199 fresh null tables",
            null_runs.rank_p_values(20_000 if options.long else 4_000, rng),
        ),
    ):
        rates += found
        parts += [f"## {title}", table(HEADS, rows(found))]
        print("\n\n".join(parts[-2:]), flush=True)
    text = table(
        ("textbook test", "null draws", "1e-2", "1e-3", "1e-4"), null_runs.textbook(1_600_000 if options.long else 100_000, rng)
    )
    parts += ["## Textbook tests: real rate / nominal (what the ledger does not rely on)", text]
    print("\n\n".join(parts[-2:]), flush=True)
    broken = [rate for rate in rates if not rate.holds]
    verdict = "No rate is above nominal." if not broken else f"ABOVE NOMINAL: {', '.join(rate.what for rate in broken)}."
    name = "calibration" if options.long else "calibration-short"
    command = f"python -m conformance.studies.calibration{' --long' if options.long else ''} --seed {seed}"
    write(options.out / f"{name}.md", "Calibration: alarms of correct engines", command, [verdict, *parts])
    print(verdict)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
