"""How the judge scales: time and memory over tokens, and time over workers.

    python -m conformance.studies.scale [--long] [--workers-only]

The engine is synthetic and exact: a Markov chain in float64, which speculates in name only. Each number of tokens is judged in
a process of its own, whose largest memory is read at its end. --long goes on to 1e8 tokens (ten minutes). For the workers the
same engine takes a millisecond for each token, in processes of its own, as an audit runs them.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from conformance.audit import audit_engine
from conformance.components import Floats
from conformance.findings import EngineReport
from conformance.harness import EngineProcess, InProcess, Runner
from conformance.levels import AuditSettings, Level
from conformance.protocols import Engine, Mode, Models, Output, Request, Tokens
from conformance.studies.report import table, write
from conformance.subject import RandomPrompts, Subject

V = 64
MODES = [Mode("synthetic", {"k": 4}, "ratio", "draft model")]
PER_TOKEN = 1e-3
"""Seconds of the slow engine for each token."""


def chain(seed: int) -> Floats:
    """The laws of the next token after each token, `[V, V]`."""
    weights = np.exp(1.5 * np.random.default_rng(seed).normal(size=(V, V)))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


class ChainScorer:
    """Reads a chain: the logits of each token follow from the one before it."""

    vocabulary = V

    def __init__(self, seed: int) -> None:
        self._logits = np.log(chain(seed))

    def logits(self, sequences: Sequence[tuple[Tokens, Tokens]]) -> list[Floats]:
        """See `Scorer.logits`."""
        return [self._logits[[prompt[-1], *output[:-1]]][: len(output)] for prompt, output in sequences]


class Synthetic(Engine):
    """Samples the target's chain, all requests of a call together. See `protocols.Engine`."""

    name, version = "synthetic", "1"

    def __init__(self, per_token: float = 0.0) -> None:
        self._edges, self._per_token = chain(0).cumsum(axis=1), per_token

    def modes(self, k: int) -> Sequence[Mode]:
        """See `Engine.modes`."""
        return MODES

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Engine.generate`."""
        limit = max(request.settings.max_tokens or 1 for request in requests)
        rng = np.random.default_rng([request.seed for request in requests])
        last = np.array([request.prompt[-1] for request in requests])
        greedy = np.array([request.settings.temperature == 0 for request in requests])
        best, drawn = np.diff(self._edges, prepend=0, axis=1).argmax(axis=1), []
        for _ in range(limit):
            edges = self._edges[last]
            sampled = (edges <= rng.random((len(last), 1)) * edges[:, -1:]).sum(axis=1)
            last = np.where(greedy, best[last], sampled)
            drawn.append(last)
        for request, tokens in zip(requests, np.stack(drawn, axis=1).tolist(), strict=True):
            answer = tuple(tokens[: request.settings.max_tokens])
            time.sleep(self._per_token * len(answer))
            yield Output(answer)

    def close(self) -> None:
        """See `Engine.close`."""


def slow(models: Models) -> Synthetic:
    """The factory of the engine that takes its time."""
    return Synthetic(PER_TOKEN)


def subject() -> Subject:
    """The chain, and another one as the draft's."""
    names = [str(token) for token in range(V)]
    return Subject(ChainScorer(0), ChainScorer(1), RandomPrompts(V), (), "chain 0", "chain 1", names)


def settings(tokens: int) -> AuditSettings:
    """Nothing but LAW, and a greedy prompt."""
    return AuditSettings(Level("scale", tokens, 1, "LAW alone"))


def judged(tokens: int) -> dict[str, float | str]:
    """Judge so many in this process: tokens, seconds, largest memory in MiB, verdict."""
    started, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report = audit_engine("synthetic", lambda: InProcess(Synthetic()), subject(), settings(tokens))
    spent, peak = time.process_time() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {**law(report), "seconds": spent, "before": before / 1024, "peak": peak / 1024}


def law(report: EngineReport) -> dict[str, float | str]:
    """What the report says of LAW."""
    found = next(one for one in report.findings if one.requirement == "LAW-1")
    return {"tokens": found.n, "verdict": found.verdict.value, "log10 evidence": report.log10_evidence or 0.0}


def by_tokens(powers: Sequence[int]) -> list[list[object]]:
    """Rows for so many powers of ten of tokens, each judged in a process of its own."""
    rows: list[list[object]] = []
    for power in powers:
        command = [sys.executable, "-m", "conformance.studies.scale", "--tokens", str(10**power)]
        said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
        each, grown = 1e6 * said["seconds"] / said["tokens"], said["peak"] - said["before"]
        row = [f"{said['tokens']:,}", f"{said['seconds']:,.0f}", f"{each:.1f}", f"{said['peak']:.0f}", f"{grown:.0f}"]
        rows.append([*row, said["verdict"]])
        print(rows[-1], flush=True)
    return rows


def by_workers(tokens: int) -> tuple[list[list[object]], bool]:
    """Rows for one engine at a time, and for two, that take a millisecond for each token; whether both say the same of LAW."""
    rows: list[list[object]] = []
    told: list[dict[str, float | str]] = []
    first = 0.0
    for lanes in (1, 2):

        def start() -> Runner:
            return EngineProcess("conformance.studies.scale:slow", Models(Path(), Path()), patience=60.0)

        began = time.monotonic()
        said = law(audit_engine("synthetic", start, subject(), settings(tokens), lanes=lanes))
        spent = time.monotonic() - began
        first, told = first or spent, [*told, said]
        figures = (f"{said['tokens']:,}", f"{spent:.1f}", first / spent, said["verdict"], f"{said['log10 evidence']:.6f}")
        rows.append([lanes, *figures])
    return rows, told[0] == told[1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study. Exit code 1 if the verdict, or the evidence, depends on the workers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help="up to 1e8 tokens")
    parser.add_argument("--workers-only", action="store_true")
    parser.add_argument("--tokens", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, default=Path("reports/studies"))
    chosen = parser.parse_args(arguments)
    if chosen.tokens:
        print(json.dumps(judged(chosen.tokens)))
        return 0
    parts = []
    if not chosen.workers_only:
        heads = ("tokens judged", "processor seconds", "microseconds a token, the engine's included", "largest memory, MiB")
        rows = by_tokens((5, 6, 7, 8) if chosen.long else (5, 6))
        parts += ["## Over tokens", table([*heads, "of it the audit's", "LAW-1"], rows)]
    rows, same = by_workers(200_000)
    named = ("workers", "tokens", "seconds", "times as fast as one", "LAW-1", "log10 evidence")
    parts += ["## Over workers, an engine that takes a millisecond for each token", table(named, rows)]
    print("\n\n".join(parts))
    if not chosen.workers_only:
        command = "python -m conformance.studies.scale" + (" --long" if chosen.long else "")
        write(chosen.folder / "scale.md", "How the judge scales", command, parts)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
