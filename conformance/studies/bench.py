"""Speed of the batched path and of the plain reference on a CPU, as ratios to functions that people use, in one run.

    python -m conformance.studies.bench

Every contender verifies the same drafts of the same laws (k = 5): from logits, as transformers' function wants them, or from
laws, as a verifier inside an engine gets them. All run on one thread and are measured in processor time, which other programs
on the machine lengthen less than time on the clock. A round times every contender once, one after the other; a ratio is the
median over rounds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
import transformers
from torch import Tensor
from transformers.generation.utils import _speculative_sampling

from conformance.studies.report import table, write
from specref.batched import Drafts, VerifiedRows, verify
from specref.batched import block as batched_block
from specref.batched import chain as batched_chain
from specref.batched.logits import ratio_from_logits
from specref.batched.status import require_good
from specref.chance import ReplayedChance, Slot
from specref.draft import Draft
from specref.rules import Verified
from specref.rules.chain import ratio as plain_ratio

K = 5
REPORTS = Path("reports/studies")
YARDSTICK = "transformers, row by row, from logits"
PROMISED_OF = "batched ratio, float32, from logits"
HEADS = ("verifier", "rows per processor second / transformers'", "range over rounds", "microseconds a row")
PROMISED = {1000: 10.0, 32_000: 3.0}
"""V and how many times the yardstick's rows per second the batched path promises there, from the same float32 logits."""


@dataclass(frozen=True)
class Inputs:
    """A batch: target logits `[B, k+1, V]`, draft logits `[B, k, V]`, tokens drawn from the draft `[B, k]`, u `[B, k+1]`."""

    target: Tensor
    draft: Tensor
    tokens: Tensor
    u: Tensor

    @classmethod
    def random(cls, B: int, V: int, seed: int) -> Inputs:
        """A draft that the target agrees with for about seven tokens in ten, in float32."""
        generator = torch.Generator().manual_seed(seed)
        target = 2 * torch.randn(B, K + 1, V, generator=generator)
        draft = target[:, :K] + 0.75 * torch.randn(B, K, V, generator=generator)
        laws = draft.softmax(dim=-1)
        tokens = torch.multinomial(laws.flatten(0, 1), 1, generator=generator).view(B, K)
        u = torch.randint(0, 1 << 24, (B, K + 1), generator=generator) / float(1 << 24)
        return cls(target, draft, tokens, u)

    def laws(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        """p `[B, k+1, V]`, q `[B, k, V]` and u as `dtype`."""
        return self.target.to(dtype).softmax(dim=-1), self.draft.to(dtype).softmax(dim=-1), self.u.to(dtype)


Contender = Callable[[], object]


def contenders(inputs: Inputs) -> dict[str, Contender]:
    """What is timed, by name. Each call verifies the whole batch."""
    p32, q32, u32 = inputs.laws(torch.float32)
    p64, q64, u64 = inputs.laws(torch.float64)
    rows_p, rows_q, rows_u = p64.numpy(), q64.numpy(), u64.tolist()

    def transformers_rows() -> None:
        for b in range(len(inputs.tokens)):
            row = slice(b, b + 1)
            _speculative_sampling(inputs.tokens[row], inputs.draft[row], K, inputs.target[row])

    def reference_rows() -> list[Verified]:
        decided = []
        for b, tokens in enumerate(inputs.tokens.tolist()):
            uniforms: dict[Slot, float] = {("accept", i): rows_u[b][i] for i in range(K)} | {("emit",): rows_u[b][K]}
            decided.append(plain_ratio(list(rows_p[b]), Draft(tokens, list(rows_q[b]), None), ReplayedChance(uniforms)))
        return decided

    def batched_rows() -> VerifiedRows:
        return verify(batched_chain.ratio, p64, Drafts(inputs.tokens, q64), u64)

    if batched_rows().rows() != reference_rows():
        raise AssertionError("the batched path and the reference decide differently: there is nothing to time")

    def batched_from_logits() -> VerifiedRows:
        result = ratio_from_logits(inputs.target, inputs.draft, Drafts(inputs.tokens), u32)
        require_good(result.status)
        return result

    chosen = Drafts(inputs.tokens)
    return {
        YARDSTICK: transformers_rows,
        PROMISED_OF: batched_from_logits,
        "batched ratio, float32, from laws": lambda: verify(batched_chain.ratio, p32, Drafts(inputs.tokens, q32), u32),
        "batched ratio, float64, from laws": batched_rows,
        "batched block, float64, from laws": lambda: verify(batched_block.block, p64, Drafts(inputs.tokens, q64), u64),
        "batched one-hot ratio, float64, from laws": lambda: verify(batched_chain.one_hot_ratio, p64, chosen, u64),
        "batched token matching, float64, from laws": lambda: verify(batched_chain.token_matching, p64, chosen, u64),
        "batched greedy, float32, from logits": lambda: verify(batched_chain.greedy, inputs.target, chosen, u32),
        "plain reference, float64, row by row, from laws": reference_rows,
    }


def rounds(timed: dict[str, Contender], count: int) -> Iterator[dict[str, float]]:
    """Processor seconds of each contender, round after round."""
    for contender in timed.values():
        contender()
    for _ in range(count):
        seconds = {}
        for name, contender in timed.items():
            start = time.process_time()
            contender()
            seconds[name] = time.process_time() - start
        yield seconds


def measured(V: int, B: int, count: int, seed: int) -> list[list[object]]:
    """A table row per contender: its rows per second as a ratio to the yardstick's (median, range), microseconds a row."""
    inputs = Inputs.random(B, V, seed)
    timed = contenders(inputs)
    found = list(rounds(timed, count))
    lines: list[list[object]] = []
    for name in timed:
        ratios = [seconds[YARDSTICK] / seconds[name] for seconds in found]
        median = statistics.median(ratios)
        micros = statistics.median(seconds[name] for seconds in found) / B * 1e6
        lines.append([name, median, f"{min(ratios):.3g} to {max(ratios):.3g}", f"{micros:.3g}"])
    # Its kernel needs vLLM's own environment, where specref can be installed beside it.
    lines.append(["vLLM's CPU kernel", "not installed" if find_spec("vllm") is None else "installed, not timed here", "", ""])
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; returns 1 where a promised ratio is not reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=REPORTS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    parts, missed = [], []
    for V, B in ((1000, 512), (32_000, 16)):
        lines = measured(V, B, options.rounds, options.seed)
        parts += [f"## V = {V:,}, k = {K}, {B} rows", table(HEADS, lines)]
        print("\n\n".join(parts[-2:]), flush=True)
        reached = next(float(str(line[1])) for line in lines if line[0] == PROMISED_OF)
        if reached < PROMISED[V]:
            missed.append(f"V = {V:,}: {reached:.3g} of the promised {PROMISED[V]:g}")
    promised = " and ".join(f"{least:g} times at V = {V:,}" for V, least in PROMISED.items())
    verdict = f"`{PROMISED_OF}` reaches what is promised, {promised}." if not missed else f"NOT REACHED: {'; '.join(missed)}."
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}, one thread."
    command = f"python -m conformance.studies.bench --rounds {options.rounds} --seed {options.seed}"
    write(options.out / "bench-cpu.md", "Speed of the batched path on a CPU", command, [versions, verdict, *parts])
    print(verdict)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
