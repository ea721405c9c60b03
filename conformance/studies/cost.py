"""What judging costs beside sampling: processor time, and ratios that hold on other machines.

    python -m conformance.studies.cost

prints the table and writes it to reports/studies/cost.md.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from conformance.statistics.blocks import Segment, TokenBlock
from conformance.statistics.evidence import Floats
from conformance.statistics.judge import ModeJudge
from conformance.statistics.plan import ModePlan
from conformance.studies.instances import instance
from conformance.studies.report import table, write

TOKENS, V = 131_072, 256
ROUNDS = 5
COUNTED = {"bank": 0.8, "omnibus": 0.15, "likelihood": 0.02, "chi-square": 0.015, "ks": 0.015}


def seconds(work: Callable[[], object]) -> float:
    """Least processor time over a few rounds: other processes can only add to it."""
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def from_counts(vocabulary: int) -> list[object]:
    """A look at 1e6 tokens of one fixed pair of laws."""
    given = instance(vocabulary)
    counts = np.random.default_rng(0).multinomial(1_000_000, given.p)
    judge = ModeJudge(ModePlan("cost", 1.0, COUNTED, registered_n=900_000), 1)
    start = time.process_time()
    laws = judge.fixed_laws(given.p, given.q)
    judge.observe_counts(laws, counts)
    judge.evidence()  # null tables are drawn here, once
    first = time.process_time() - start

    def look_once() -> None:
        judge.observe_counts(laws, counts)
        judge.evidence()

    look = seconds(look_once)
    tokens = np.repeat(np.arange(vocabulary), counts)
    counting = seconds(lambda: np.bincount(tokens, minlength=vocabulary))
    return [
        f"1e6 tokens as counts, V={vocabulary}",
        f"{1e3 * look:.1f} ms",
        f"{look / counting:.1f} bincounts",
        f"{1e3 * first:.0f} ms",
    ]


def laws_of_a_stream(rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Laws of varied contexts, ``[TOKENS, V]`` each."""
    logits = 2.93 * rng.normal(size=(TOKENS, V))
    tables = []
    for noise in (0.0, 1.0):
        weights = np.exp(logits + noise * rng.normal(size=logits.shape))
        tables.append(weights / weights.sum(axis=1, keepdims=True))
    return tables[0], tables[1]


def stream() -> list[list[object]]:
    """A stream in which every token has its own law, with all checks of a standard mode."""
    rng = np.random.default_rng(0)
    p, q = laws_of_a_stream(rng)
    tokens = np.minimum((np.cumsum(p, axis=1) < rng.random((TOKENS, 1))).sum(axis=1), V - 1)
    request = np.arange(TOKENS) // 64
    position = np.arange(TOKENS) % 64
    out = np.empty((256, V))

    def one_pass() -> None:
        for start in range(0, TOKENS, 256):
            np.exp(p[start : start + 256], out=out)

    rows: list[list[object]] = []
    for rule in (False, True):
        plan = ModePlan.standard("cost", TOKENS // 2, ratio_rule=rule)
        segment = np.where(position % 5 == 4, Segment.BONUS, np.where(tokens % 3 > 0, Segment.ACCEPTED, Segment.RESIDUAL))
        block = TokenBlock(tokens, p, q, request=request, segment=segment, slot=position % 5, row=request % 8)
        took = seconds(lambda plan=plan, block=block: ModeJudge(plan, 1).observe(block))  # type: ignore[misc]
        what = "stream of 131,072 tokens, V=256" + (", accepted and replaced tokens under their own laws" if rule else "")
        rows.append([what, f"{took:.2f} s", f"{took / seconds(one_pass):.0f} passes of exp over the laws", "-"])
    return rows


def state_sizes() -> list[int]:
    """Bytes of the stored state after 1, 2 and 4 blocks: the same but for digits."""
    rng = np.random.default_rng(0)
    judge = ModeJudge(ModePlan.standard("cost", 500, segments=False, slots=False, batch=False), 1)
    p = np.tile(rng.dirichlet(np.ones(16)), (1_000, 1))
    sizes = []
    for number in range(4):
        request = number * 50 + np.arange(1_000) // 20
        judge.observe(TokenBlock(rng.integers(0, 16, 1_000), p, p, request=request))
        sizes.append(len(json.dumps(judge.state())))
    return [sizes[0], sizes[1], sizes[3]]


def main() -> int:
    """Run the study."""
    heads = ("what", "processor time", "ratio", "set-up, null tables included")
    rows = [from_counts(256), from_counts(32_000), *stream()]
    sizes = state_sizes()
    note = f"Stored state after 1,000, 2,000 and 4,000 tokens: {sizes[0]}, {sizes[1]} and {sizes[2]} bytes."
    parts = [table(heads, rows), note]
    print("\n\n".join(parts))
    write(Path("reports/studies/cost.md"), "Cost of judging", "python -m conformance.studies.cost", parts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
