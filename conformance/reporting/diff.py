"""`specref diff`: two audits compared, on the terminal and as files."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from conformance.problems import UsageProblem
from conformance.reporting import diff_markdown, html
from conformance.reporting.compare import compare, exit_code
from conformance.reporting.diff_terminal import print_comparison
from conformance.reporting.read import read_report
from conformance.reporting.write import write_text


def run_diff(before: Path, after: Path, folder: Path | None, console: Console, *, everything: bool = False) -> int:
    """Print what changed from one report to the other, write diff.md and diff.html into `folder` if one is named, and return
    the exit code. Raises UsageProblem."""
    comparisons = compare(read_report(before), read_report(after))
    print_comparison(comparisons, console, everything=everything)
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_text(folder / "diff.md", diff_markdown.document(comparisons))
            write_text(folder / "diff.html", html.diff_page(comparisons))
        except OSError as error:
            raise UsageProblem(f"cannot write to {folder}: {error.strerror}; give another folder with --out") from error
        console.print(f"\nWritten: {folder / 'diff.html'}, and diff.md beside it", markup=False)
    return exit_code(comparisons)
