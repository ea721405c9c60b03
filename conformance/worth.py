"""`specref speedup`: the theory's table and figure, beside the published points."""

from __future__ import annotations

from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from conformance.problems import UsageProblem
from specref.speedup import (
    H100,
    LLAMA3_8B,
    LLAMA3_70B,
    best_k_on,
    break_even,
    chain,
    compare,
    expected_tokens,
    figure,
    heads,
    medusa_heads,
    plain,
    table,
)

BATCHES = (1, 8, 32, 128, 512)


def run_speedup(acceptance: float, k: int, gpus: int, context: int, plot: Path | None, console: Console) -> None:
    """Print what each method is worth over batch sizes, and draw it where asked."""
    hardware = H100.times(gpus)
    all_heads = medusa_heads(LLAMA3_70B, width=8192, vocabulary=128256, count=k)
    tokens = float(expected_tokens(acceptance, k))
    methods = (
        plain(),
        chain("8B draft model", acceptance, k, LLAMA3_8B),
        heads(f"Medusa, {k} heads", tokens, k + 1, all_heads),
        chain("prompt lookup", acceptance, k),
    )
    rows = table(LLAMA3_70B, hardware, methods, BATCHES, context)
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("method")
    for heading in ("batch", "tokens a round", "ms a token", "tokens a second", "speed-up", "memory"):
        shown.add_column(heading, justify="right")
    for row in rows:
        memory = f"{row.memory / 1e9:,.0f} GB" + ("" if row.fits else " (too much)")
        shown.add_row(
            row.method if row.batch == BATCHES[0] else "",
            str(row.batch),
            f"{row.tokens_per_round:.2f}",
            f"{1e3 * row.seconds_per_token:.1f}",
            f"{row.tokens_per_second:,.0f}",
            f"{row.speed_up:.2f}",
            memory,
        )
    console.print(f"Llama-3 70B on {gpus} H100, acceptance {acceptance:g}, k = {k}, {context:,} tokens of context.")
    console.print(shown)
    best = ", ".join(f"{best_k_on(LLAMA3_70B, hardware, acceptance, LLAMA3_8B, b, context)} at batch {b}" for b in BATCHES)
    console.print(f"Best k for the 8B draft: {best} (0 is no speculation).")
    draft_cost = LLAMA3_8B.parameters / LLAMA3_70B.parameters
    console.print(f"Break-even acceptance of the 8B draft at k = {k}, batch 1: {break_even(k, draft_cost):.0%}.")
    console.print("Published points beside the formula, read as acceptance and as the share of drafts kept:")
    for one in compare():
        console.print(
            f"  {one.point.name}, k = {one.k}: published {one.point.speed_up}, "
            f"as acceptance {one.as_acceptance:.2f}, as share {one.as_share:.2f}"
        )
    if plot is not None:
        try:
            figure(rows, f"Llama-3 70B, acceptance {acceptance:g}, k = {k}").savefig(plot)
        except (OSError, ValueError) as error:  # no such folder, or a kind of file that there is not
            raise UsageProblem(f"cannot draw {plot}: {error}; give a file that ends with .svg, .png or .pdf") from error
        console.print(f"Figure: {plot}")
