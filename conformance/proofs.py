"""`specref prove`: the rules enumerated, with progress, as one table."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from conformance.progress import watching
from specref.proof import ProofResult, prove_all


def run_proofs(scale: float, seed: int, workers: int, console: Console) -> int:
    """Prove every rule, print the table and any counterexample; 1 if a rule broke its claim, else 0."""
    with watching(console) as watcher:

        def show(rule: str, done: int, whole: int) -> None:
            if done == 1:
                watcher.begin("proofs", whole)
            watcher.advance("proofs", 1, rule)

        results = prove_all(show, scale=scale, seed=seed, workers=workers)
        watcher.end("proofs")
    console.print(proof_table(results))
    broken = [result for result in results if not result.as_claimed]
    for result in broken:
        console.print(f"[bold red]{result.rule} is not lossless.[/] The smallest counterexample found:")
        console.print(str(result.counterexample), markup=False)
    lossless = [result for result in results if result.claim == "lossless"]
    console.print(
        f"{len(lossless) - len(broken)} of {len(lossless)} rules proven lossless on {sum(r.models for r in lossless):,} random "
        f"models ({sum(r.rounds for r in lossless):,} rounds, {sum(r.generations for r in lossless):,} whole generations)."
    )
    return 1 if broken else 0


def proof_table(results: Sequence[ProofResult]) -> Table:
    """One row per rule."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("rule")
    table.add_column("on")
    table.add_column("claim")
    for heading in ("models", "rounds", "generations"):
        table.add_column(heading, justify="right")
    table.add_column("law equal to the target's")
    table.add_column("total variation")
    table.add_column("seconds", justify="right")
    for result in results:
        equal = "exactly, always" if result.equal else f"no: up to {float(result.total_variation):.3f}"
        example = "" if result.on_example is None else f"{result.on_example} on the example"
        counts = (f"{number:,}" for number in (result.models, result.rounds, result.generations))
        table.add_row(
            result.rule,
            result.kind,
            result.claim,
            *counts,
            equal,
            example,
            f"{result.seconds:.0f}",
            style="" if result.as_claimed else "bold red",
        )
    return table
