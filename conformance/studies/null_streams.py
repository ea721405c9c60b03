"""Null streams: do correct engines with noisy logits ever raise an alarm, and what is still seen through the tolerance?

    python -m conformance.studies.null_streams [--long] [--seed N]

prints the tables and writes reports/studies/null_streams.md. Engines are simulated: our logits plus Gaussian noise of
deviation sigma, then truncated by a plain implementation of the filters that shares nothing with `kept_sets`. Every stream
is looked at after every token.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import softmax

from conformance.statistics.evidence import Floats, Ints
from conformance.statistics.kept_sets import Filter, Mask, MinP, Temperature, TopK, TopP, outside
from conformance.statistics.truncation import OUTLIER_RATE, TruncationBets
from conformance.studies.report import table, write

V = 128
ALPHA = 1e-6
FILTERS: dict[str, list[Filter]] = {"top-p .9": [TopP(0.9)], "top-k 50": [TopK(50)], "min-p .05": [MinP(0.05)]}


def contexts(n: int, vocabulary: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """n contexts: the target's logits and a draft's law at distance 1 in logits, both `[n, V]`."""
    logits = rng.normal(0, 0.88 * np.sqrt(2 * np.log(vocabulary)), (n, vocabulary))
    return logits, softmax(logits + rng.standard_normal(logits.shape), axis=1)


def drawn(laws: Floats, rng: np.random.Generator, rows: Ints | None = None) -> Ints:
    """One token per row of `laws [n, V]`, or per entry of `rows [m]`, by inverse CDF."""
    total = np.cumsum(laws, axis=1)
    total = total if rows is None else total[rows]
    return np.asarray((total > rng.random((len(total), 1)) * total[:, -1:]).argmax(axis=1))


def plainly_kept(logits: Floats, chain: Sequence[Filter], joint: bool = False) -> Mask:
    """What an engine keeps, written the plain way: sort, cut, go on with the rest renormalised (or intersect, if joint)."""
    kept = np.isfinite(logits)
    for step in chain:
        if isinstance(step, Temperature):
            logits = logits / step.t
            continue
        before = np.isfinite(logits) if joint else kept
        law = softmax(np.where(before, logits, -np.inf), axis=1)
        order = np.argsort(-law, axis=1)
        ranked = np.take_along_axis(law, order, axis=1)
        if isinstance(step, TopK):
            good = np.arange(ranked.shape[1]) < np.full((len(ranked), 1), step.k)
        elif isinstance(step, TopP):
            good = np.cumsum(ranked, axis=1) - ranked < step.mass
        elif isinstance(step, MinP):
            good = ranked >= step.share * ranked[:, :1]
        else:
            raise TypeError(f"no plain form of {step}")
        mask = np.zeros_like(kept)
        np.put_along_axis(mask, order, good, axis=1)
        kept = kept & mask
    return kept


def truncated(logits: Floats, chain: Sequence[Filter]) -> Floats:
    """The law of a correct engine with these logits, `[n, V]`."""
    scale = float(np.prod([step.t for step in chain if isinstance(step, Temperature)]))
    return np.asarray(softmax(np.where(plainly_kept(logits, chain), logits / scale, -np.inf), axis=1))


def one_token_off(logits: Floats, chain: Sequence[Filter], extra: int) -> Floats:
    """A fault: the kept set holds `extra` tokens more (or fewer, but never none) in the order of probability."""
    size = np.maximum(plainly_kept(logits, chain).sum(axis=1) + extra, 1)
    rank = np.argsort(np.argsort(-logits, axis=1), axis=1)
    return np.asarray(softmax(np.where(rank < size[:, None], logits, -np.inf), axis=1))


@dataclass(frozen=True)
class Cell:
    """What a batch of streams showed under one filter and one noise."""

    filter: str
    sigma: float
    streams: int
    beyond_nominal: float
    ring: float
    outside: int
    largest: float
    alarms: int


def null_cells(
    streams: int, tokens: int, rng: np.random.Generator | None = None, say: Callable[[str], None] = lambda line: None
) -> Iterator[Cell]:
    """Streams of correct engines: three filters at three noises, and no filter at two. Each stream has noise of its own.

    A pool of tokens / 5 contexts serves 20 streams, five tokens per context: many contexts with few samples, as in an audit.
    """
    rng = rng or np.random.default_rng()
    plan = [(name, chain, sigma) for name, chain in FILTERS.items() for sigma in (1e-6, 1e-5, 0.02)]
    plan += [("none", [], sigma) for sigma in (0.02, 0.05)]
    rows = np.tile(np.arange(tokens // 5), 5)
    for name, chain, sigma in plan:
        began = time.monotonic()
        beyond, ring, out, largest = 0, 0, 0, []
        for stream in range(streams):
            if stream % 20 == 0:
                logits, q = contexts(tokens // 5, V, rng)
                bets = TruncationBets(logits, q, chain, 6 * sigma, tokens_planned=tokens)
            engine = truncated(logits + sigma * rng.standard_normal(logits.shape), chain)
            x = drawn(engine, rng, rows)
            largest.append(float(bets.mixture().path(bets.log_factors(x, rows)).max()))
            beyond += int((~bets.nominal[rows, x]).sum())
            ring += int((bets.sets.possible & ~bets.sets.core)[rows, x].sum())
            out += int(outside(x, bets.sets, rows).sum())
        alarms = int((np.array(largest) >= -np.log(ALPHA)).sum())
        say(f"null {name} sigma {sigma}: {alarms} alarms in {streams}, {time.monotonic() - began:.0f} s")
        yield Cell(name, sigma, streams, beyond / streams, ring / streams, out, max(largest), alarms)


def fault_row(fault: str, sigma: float, repeats: int, tokens: int, rng: np.random.Generator) -> list[float]:
    """Tokens until an alarm at 1e-6, per repeat (inf: never), top-p .9; fault is '+1', '-1' or 'leak .1'."""
    found = []
    chain: list[Filter] = [TopP(0.9)]
    for _ in range(repeats):
        account, n = None, 0
        while n < tokens and (account is None or np.isfinite(account.log_e)):
            logits, q = contexts(min(5000, tokens - n), V, rng)
            bets = TruncationBets(logits, q, chain, 6 * sigma, tokens_planned=tokens)
            account = account or bets.mixture()
            noisy = logits + sigma * rng.standard_normal(logits.shape)
            if fault.startswith("leak"):
                engine = (1 - float(fault[5:])) * truncated(noisy, chain) + float(fault[5:]) * q
            else:
                engine = one_token_off(noisy, chain, int(fault))
            factors = bets.log_factors(drawn(engine, rng))
            path = account.path(factors)
            if path.max() >= -np.log(ALPHA):
                found.append(float(n + np.argmax(path >= -np.log(ALPHA)) + 1))
                break
            account.add(factors)
            n += len(factors)
        else:
            found.append(np.inf)
    return found


def short(n: float) -> str:
    """A count of samples for a table: three digits, or a dash for never."""
    return f"{n:,.0f}" if np.isfinite(n) else "-"


def main() -> None:
    """Run the study and write its report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--long", action="store_true", help="200 streams of 1e5 tokens instead of 10 of 2e4")
    arguments.add_argument("--seed", type=int, default=None, help="by default fresh, and printed in the report")
    arguments.add_argument("--folder", type=Path, default=Path("reports/studies"))
    given = arguments.parse_args()
    seed = given.seed if given.seed is not None else int(np.random.SeedSequence().entropy) % 2**32  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    streams, tokens = (200, 100_000) if given.long else (10, 20_000)

    def say(line: str) -> None:
        print(line, flush=True)

    cells = [
        (c.filter, c.sigma, c.streams, f"{c.beyond_nominal:.1f}", f"{c.ring:.1f}", c.outside, f"{c.largest:.1f}", c.alarms)
        for c in null_cells(streams, tokens, rng, say)
    ]
    head = ["filter", "sigma", "streams", "tokens beyond our own kept set, per stream", "ring tokens per stream"]
    nulls = table([*head, "tokens outside, all streams", "largest ln e at any look", "alarms"], cells)
    say(nulls)
    faults = ("+1", "-1", "leak .3", "leak .1", "leak .03")
    rows = []
    for fault in faults:
        medians = [np.median(fault_row(fault, s, 15 if given.long else 3, 100_000, rng)) for s in (1e-6, 1e-5, 0.02)]
        rows.append([fault, *(short(float(m)) for m in medians)])
        say(f"fault {rows[-1]}")
    seen = table(["fault under top-p .9", "sigma 1e-6", "sigma 1e-5", "sigma .02"], rows)
    say(seen)
    command = "python -m conformance.studies.null_streams" + " --long" * given.long + f" --seed {seed}"
    sections = [
        f"Correct engines: V = {V}, streams of {tokens:,} tokens looked at after every token, alarm at e >= 1e6 "
        f"(ln e >= 13.8), eta = 6 sigma, outlier rate {OUTLIER_RATE:g}.",
        nulls,
        "Faults through the same tolerance: median tokens to an alarm at 1e-6 (a dash: not within 100,000).",
        seen,
    ]
    path = given.folder / "null_streams.md"
    write(path, "Null streams", command, sections)
    say(f"written: {path}")


if __name__ == "__main__":
    main()
