"""Speed of the batched path and of the plain reference on a CPU, as ratios to functions that people use, in one run.

Every verifier gets the same random inputs (k = 5) and draws its own random numbers; the column "given" says what was made
before the clock started: logits, as transformers' function takes them, or laws, as a verifier inside an engine may get them.
All run on one thread and are measured in processor time, which other programs on the machine lengthen less than time on the
clock. Then the yardstick and what is promised run again on all cores, by the clock, which is what a user sees. A round times
every contender once, one after the other; a ratio is the median over rounds. vLLM's functions are timed beside ours in vLLM's
own environment, where there is one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers
from transformers.generation.utils import _speculative_sampling

from conformance.studies.bench_inputs import SIZES, Contender, Inputs, K, Timed, heads, rounds
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

REPORTS = Path("reports/studies")
YARDSTICK = "transformers, row by row"
PROMISED_OF = "batched ratio, float32, from logits"
PROMISED = {(1000, 1024): 10.0, (32_000, 16): 3.0}
"""How many times the yardstick's rows per second, by the clock on all cores, the batched path promises from the same float32
logits, by V and batch. The yardstick takes one row at a time, which is too little work for a second core."""
CORES = os.cpu_count() or 1
VLLM_PYTHON = Path(".nox/audit-vllm/bin/python")
"""The environment that `nox -s conformance -- --engine vllm` makes."""


def contenders(inputs: Inputs) -> list[Contender]:
    """What is timed. The first one is the yardstick."""
    p32, q32, _ = inputs.laws(torch.float32)
    p64, q64, u64 = inputs.laws(torch.float64)
    rows_p, rows_q = p64.numpy(), q64.numpy()
    B = len(inputs.tokens)

    def numbers(dtype: torch.dtype) -> torch.Tensor:
        return torch.rand(B, K + 1, dtype=dtype)

    def transformers_rows() -> None:
        for b in range(B):
            row = slice(b, b + 1)
            _speculative_sampling(inputs.tokens[row], inputs.draft[row], K, inputs.target[row])

    def reference_rows(u: torch.Tensor) -> list[Verified]:
        decided = []
        for b, (tokens, row) in enumerate(zip(inputs.tokens.tolist(), u.tolist())):
            uniforms: dict[Slot, float] = {("accept", i): row[i] for i in range(K)} | {("emit",): row[K]}
            decided.append(plain_ratio(list(rows_p[b]), Draft(tokens, list(rows_q[b]), None), ReplayedChance(uniforms)))
        return decided

    if verify(batched_chain.ratio, p64, Drafts(inputs.tokens, q64), u64).rows() != reference_rows(u64):
        raise AssertionError("the batched path and the reference decide differently: there is nothing to time")

    def from_logits() -> VerifiedRows:
        result = ratio_from_logits(inputs.target, inputs.draft, Drafts(inputs.tokens), numbers(torch.float32))
        require_good(result.status)
        return result

    f32, f64 = torch.float32, torch.float64
    chosen, drawn = Drafts(inputs.tokens), Drafts(inputs.tokens, q64)
    logits, laws = "logits of target and draft", "laws of target and draft"
    return [
        Contender(YARDSTICK, logits, transformers_rows),
        Contender(PROMISED_OF, logits, from_logits),
        Contender(
            "batched ratio, float32", laws, lambda: verify(batched_chain.ratio, p32, Drafts(inputs.tokens, q32), numbers(f32))
        ),
        Contender("batched ratio, float64", laws, lambda: verify(batched_chain.ratio, p64, drawn, numbers(f64))),
        Contender("batched block, float64", laws, lambda: verify(batched_block.block, p64, drawn, numbers(f64))),
        Contender(
            "batched one-hot ratio, float64",
            "laws of the target",
            lambda: verify(batched_chain.one_hot_ratio, p64, chosen, numbers(f64)),
        ),
        Contender(
            "batched token matching, float64",
            "laws of the target",
            lambda: verify(batched_chain.token_matching, p64, chosen, numbers(f64)),
        ),
        Contender(
            "batched greedy, float32",
            "logits of the target",
            lambda: verify(batched_chain.greedy, inputs.target, chosen, numbers(f32)),
        ),
        Contender("plain reference, float64, row by row", laws, lambda: reference_rows(numbers(f64))),
    ]


def on_all_cores(contenders: Sequence[Contender], count: int) -> list[Timed]:
    """The yardstick and what is promised, by the clock, on as many threads as this process may use."""
    torch.set_num_threads(CORES)
    timed = rounds([one for one in contenders if one.name in (YARDSTICK, PROMISED_OF)], count, time.perf_counter)
    torch.set_num_threads(1)
    return timed


def beside_vllm(python: Path, count: int, seed: int) -> list[str]:
    """Tables of vLLM's functions beside ours, timed in vLLM's environment; one line that says so where there is none."""
    if not python.exists():
        return [f"vLLM's CPU kernels: not timed, {python} is not here."]
    command = [str(python), "-m", "conformance.studies.bench_vllm", "--rounds", str(count), "--seed", str(seed)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    answer = next((line for line in done.stdout.splitlines() if line.startswith("{")), None)
    if answer is None:
        raise RuntimeError(f"{' '.join(command)} failed ({done.returncode}):\n{done.stderr[-2000:]}")
    told = json.loads(answer)
    parts = []
    for (V, B), found in zip(SIZES, told["timed"]):
        timed = [Timed(one["name"], one["given"], tuple(one["seconds"])) for one in found]
        lines = [one.line(timed[0], B) for one in timed]
        title = f"## Beside vLLM {told['vllm']}, V = {V:,}, k = {K}, {B:,} rows (torch {told['torch']})"
        parts += [title, table(heads(f"`{timed[0].name}`"), lines)]
    return parts


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns 1 where a promised ratio is not reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--vllm-python", type=Path, default=VLLM_PYTHON, help="the interpreter of an environment with vLLM")
    parser.add_argument("--out", type=Path, default=REPORTS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    parts, missed = [], []
    for V, B in SIZES:
        some = contenders(Inputs.random(B, V, options.seed))
        timed = rounds(some, options.rounds)
        parts += [f"## V = {V:,}, k = {K}, {B:,} rows", table(heads("transformers'"), [one.line(timed[0], B) for one in timed])]
        print("\n\n".join(parts[-2:]), flush=True)
        if (V, B) not in PROMISED:
            continue
        yardstick, ours = on_all_cores(some, options.rounds)
        title = f"## By the clock on {CORES} cores, V = {V:,}, k = {K}, {B:,} rows"
        parts += [title, table(heads("transformers'", "second"), [one.line(yardstick, B) for one in (yardstick, ours)])]
        print("\n\n".join(parts[-2:]), flush=True)
        reached = ours.against(yardstick)[0]
        if reached < PROMISED[V, B]:
            missed.append(f"V = {V:,}: {reached:.3g} of the promised {PROMISED[V, B]:g}")
    beside = beside_vllm(options.vllm_python, options.rounds, options.seed)
    print("\n\n".join(beside), flush=True)
    promised = " and ".join(f"{least:g} times at V = {V:,} in batches of {B:,}" for (V, B), least in PROMISED.items())
    verdict = (
        f"`{PROMISED_OF}` reaches by the clock what is promised, {promised}."
        if not missed
        else f"NOT REACHED: {'; '.join(missed)}."
    )
    busy = f"load average {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}, one thread unless said, {busy}."
    given = (
        "Each verifier is handed what the column 'given' says and makes the rest itself, its random numbers included. The "
        "plain reference and transformers' function take one row at a time; the others take the whole batch, and lose more to "
        "other programs that use the same caches and memory."
    )
    command = f"python -m conformance.studies.bench --rounds {options.rounds} --seed {options.seed}"
    write(
        options.out / "bench-cpu.md", "Speed of the batched path on a CPU", command, [versions, given, verdict, *parts, *beside]
    )
    print(verdict)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
