"""The `specref` command: audit engines, list them, prove the rules."""

from __future__ import annotations

import os
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from conformance.engines import REGISTRY
from conformance.levels import LEVELS, AuditSettings, level_named
from conformance.problems import UsageProblem
from conformance.workers import AT_ONCE, Workers

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Is an engine's speculative output really the target model's, and how sure are we?\n\n"
    "Example: [bold]specref audit transformers --level smoke[/bold]",
)
console = Console(width=None if sys.stdout.isatty() else 160)
"""Where output goes to a file or a CI log, there is no terminal to be narrow."""

LEVELS_SAID = f"Tokens in a mode at most: {', '.join(f'{one.name} {one.tokens:,}' for one in LEVELS.values())}. Default: quick."


def main() -> None:
    """Run the command; a `UsageProblem` becomes one line and exit code 2, a fault of our own its traceback and exit code 3."""
    try:
        app(prog_name="specref")
    except UsageProblem as problem:
        line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(str(problem).split()))
        print(f"specref: {line}", file=sys.stderr)
        sys.exit(2)
    except Exception:  # Python itself would exit with 1, which says "a violation"
        traceback.print_exc()
        sys.exit(3)


@app.command(epilog=LEVELS_SAID)
def audit(
    engines: Annotated[
        list[str] | None, typer.Argument(metavar="[ENGINE]...", help="Or module:callable, or a URL. Default: all.")
    ] = None,
    engine: Annotated[list[str] | None, typer.Option("--engine", help="The same as an argument.", hidden=True)] = None,
    level: Annotated[str, typer.Option(help="How much is judged: see below.", show_default=False)] = "quick",
    tokens: Annotated[int | None, typer.Option(help="In a sampled mode, not the level's.")] = None,
    seed: Annotated[int, typer.Option(help="Another is another run.")] = 0,
    alpha: Annotated[float, typer.Option(help="False alarms per engine. Default: 1e-6.", show_default=False)] = 1e-6,
    k: Annotated[int, typer.Option("--k", "-k", help="Drafts per round.")] = 4,
    temperature: Annotated[float, typer.Option(help="0: greedy modes only.")] = 1.0,
    target: Annotated[Path | None, typer.Option(help="Folder of the target. Default: our own.")] = None,
    draft: Annotated[Path | None, typer.Option(help="Folder of the draft. Default: our own.")] = None,
    expected: Annotated[Path | None, typer.Option(help="TOML file of known violations.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run. Default: in audits/.")] = None,
    evidence: Annotated[Path | None, typer.Option(help="Samples to go on with. Default: in OUT.")] = None,
    no_evidence: Annotated[bool, typer.Option("--no-evidence", help="Keep no samples.")] = False,
    control: Annotated[str | None, typer.Option(help="URL of the server without speculation.")] = None,
    served_model: Annotated[str | None, typer.Option(help="The server's. Default: the first listed.")] = None,
    workers: Annotated[int, typer.Option(help="Engine processes at once.")] = AT_ONCE,
    ray: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Run on Ray: auto, local, or an address.")] = None,
    gpus_per_worker: Annotated[float, typer.Option(help="Each process's, on Ray.")] = 0.0,
) -> None:
    """Audit engines with and without speculation: judge every token, write reports.

    Exit code: 0 all that was judged conforms; 1 a violation that is not known, or
    a known one that was not seen; 2 wrong settings, or files that cannot be read;
    3 an error, something inconclusive, or nothing judged.

    Examples (a server's key is read from SPECREF_API_KEY):
      specref audit transformers --level smoke --seed 7
      specref audit my_engine_adapter:make --target ./my-model --draft ./my-draft
      specref audit http://127.0.0.1:8000/v1 --target ./my-model
    """
    from conformance.evidence.recording import own_folder
    from conformance.interruption import ending_at_once
    from conformance.run import run_audits

    chosen = level_named(level) if tokens is None else level_named(level).of_tokens(tokens)
    settings = AuditSettings(chosen, alpha, seed, k, temperature)
    where = Workers(workers, ray, gpus_per_worker)
    names = [*(engines or []), *(engine or [])]
    server = sum(name.startswith(("http://", "https://")) for name in names)
    if server > 1:
        raise UsageProblem(f"{server} servers are named; audit one at a time: specref audit URL --target DIR")
    if server and target is None:
        raise UsageProblem("a server is judged by the model that it serves; give that model's folder with --target")
    for option, variable, value in (
        ("--control", "SPECREF_CONTROL", control),
        ("--served-model", "SPECREF_MODEL", served_model),
    ):
        if value is not None and not server:
            raise UsageProblem(f"{option} belongs to a server, and none is named; name it by its URL, or leave {option} out")
        if value is not None:
            os.environ[variable] = value
    called = "-".join("server" if "//" in name else name.partition(":")[0] for name in names) or "all"
    folder = out or Path("audits") / f"{called}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    if evidence is not None and no_evidence:
        raise UsageProblem(f"--evidence {evidence} and --no-evidence contradict each other; give one of them")
    kept = None if no_evidence else evidence or own_folder(folder)
    with ending_at_once(console, kept):
        code = run_audits(names, settings, target, draft, expected, folder, console, kept, where)
    raise typer.Exit(code)


@app.command()
def judge(
    samples: Annotated[Path | None, typer.Argument(help="JSON Lines, Parquet, or an evidence folder.")] = None,
    target: Annotated[Path | None, typer.Option(help="Folder of the target. Default: our own.")] = None,
    draft: Annotated[Path | None, typer.Option(help="Model whose very law drafts follow. Default: none.")] = None,
    temperature: Annotated[float, typer.Option(help="Where lines are silent.")] = 1.0,
    max_tokens: Annotated[int | None, typer.Option(help="Limit, where lines are silent.")] = None,
    logprobs: Annotated[str, typer.Option(help="Of which law: raw, or processed.")] = "raw",
    at_random: Annotated[bool, typer.Option("--omitted-at-random", help="Judge past omitted ones.")] = False,
    engine: Annotated[str | None, typer.Option(help="Name in reports. Default: the file's.")] = None,
    engine_version: Annotated[str, typer.Option(help="And its version.")] = "(samples)",
    seed: Annotated[int, typer.Option(help="The judge's own.")] = 0,
    alpha: Annotated[float, typer.Option(help="False-alarm rate.")] = 1e-6,
    expected: Annotated[Path | None, typer.Option(help="TOML file of known violations.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for reports. Default: in audits/.")] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print a sample's JSON Schema.")] = False,
) -> None:
    """Judge samples gathered elsewhere, one request on each line, as an audit would.

    {"request": 0, "prompt": [5, 6], "output": [7, 8], "settings": {"top_k": 9}}

    "mode": "off" marks the control: samples without speculation.
    "finished": false marks an output that was cut off (a time-out, say): its
    tokens are judged, its end is not. Exit codes are those of specref audit.

    Example: specref judge samples.jsonl --target ./my-model --draft ./my-draft
    """
    from conformance.samples.reading import schema as format_of_samples

    if schema:
        print(format_of_samples(), end="")
        return
    if samples is None:
        raise UsageProblem("no samples were named; give a file, for instance: specref judge samples.jsonl --target ./my-model")
    if logprobs not in ("raw", "processed"):
        raise UsageProblem(f"logprobs is {logprobs!r}; give raw or processed: of which law they are")
    if max_tokens is not None and max_tokens < 1:
        raise UsageProblem(f"max-tokens is {max_tokens}; give 1 or more")
    from conformance.samples.command import engine_of_file, run_judge
    from conformance.samples.judging import Judging
    from conformance.samples.modes import Defaults

    name = engine or engine_of_file(samples)
    defaults = Defaults(temperature, max_tokens, at_random)
    judging = Judging(name, engine_version, alpha, seed, draft is not None, logprobs, defaults)
    folder = out or Path("audits") / f"{name}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    raise typer.Exit(run_judge(samples, judging, target, draft, expected, folder, console))


@app.command()
def diff(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="A report.json, or the folder of a run.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="Another one.")],
    out: Annotated[Path | None, typer.Option(help="Folder for diff.html and diff.md.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show also what did not change.")] = False,
) -> None:
    """Compare two runs, or two versions of an engine: changes of verdict come first.

    Exit code: 0 no new violation, and all that was judged before is judged again;
    1 a violation that was not there before and is not known; 2 no report, or no
    engine in common; 3 something that was judged before is not judged now.

    Example: specref diff audits/vllm-0.31 audits/vllm-0.32 --out changes
    """
    from conformance.reporting.diff import run_diff

    raise typer.Exit(run_diff(before, after, out, console, everything=everything))


@app.command()
def engines() -> None:
    """List the engines that can be audited here, and how to install the others.

    Example: specref engines
    """
    from rich.table import Table

    table = Table("engine", "here", "what it is", "how to install it")
    for entry in REGISTRY:
        table.add_row(entry.name, "no" if entry.missing else "yes", entry.about, entry.install)
    console.print(table)


@app.command()
def prove(
    scale: Annotated[float, typer.Option(help="Share of the models: 1 is 216 for a chain rule, 72 for a tree rule.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Another seed, other models.")] = 0,
    workers: Annotated[int, typer.Option(help="Processes.")] = 2,
) -> None:
    """Prove the verification rules: each one's exact output law on random models.

    Every branch is followed in rational arithmetic, over one round after every
    context and over whole generations, and the law is compared with the target's
    by ==. A lossy rule is shown with its exact total variation. Exit code 1 if a
    rule that is claimed lossless is not, with the smallest counterexample.

    Example: specref prove --scale 0.1
    """
    from conformance.proofs import run_proofs

    if not 0 < scale <= 100:
        raise UsageProblem(f"scale is {scale:g}; give a share of the models above 0, for instance 0.1")
    if workers < 1:
        raise UsageProblem(f"workers is {workers}; give 1 or more")
    raise typer.Exit(run_proofs(scale, seed, workers, console))


@app.command()
def speedup(
    acceptance: Annotated[float, typer.Option(help="Chance that a drafted token is kept: sum(min(p, q)).")] = 0.7,
    k: Annotated[int, typer.Option("--k", "-k", help="Drafts per round.")] = 4,
    gpus: Annotated[int, typer.Option(help="How many H100 the target is spread over.")] = 4,
    context: Annotated[int, typer.Option(help="Tokens behind every request.")] = 1024,
    plot: Annotated[Path | None, typer.Option(help="Write the figure here (.svg, .png, .pdf).")] = None,
) -> None:
    """What speculation is worth, over batch sizes, for Llama-3 70B on H100s.

    Tokens per round, latency, throughput and memory, from a model of the hardware.

    Example: specref speedup --acceptance 0.6 -k 3 --plot speedup.svg
    """
    from conformance.worth import run_speedup

    if not 0 <= acceptance <= 1:
        raise UsageProblem(f"acceptance is {acceptance:g}; give a probability, between 0 and 1")
    if k < 1 or gpus < 1 or context < 0:
        raise UsageProblem(f"k is {k}, gpus {gpus} and context {context}; give at least 1, 1 and 0")
    run_speedup(acceptance, k, gpus, context, plot, console)


@app.command("new-engine")
def new_engine(
    name: Annotated[str, typer.Argument(help="Of the engine; the file is called NAME_adapter.py.")],
    component: Annotated[
        bool, typer.Option("--component", help="Only its verification function, not the whole engine.")
    ] = False,
) -> None:
    """Write a commented adapter for an engine of your own into the current folder.

    Examples:

      specref new-engine my-engine

      specref new-engine my-engine --component
    """
    from conformance.new_engine import write_skeleton

    path = write_skeleton(name, Path(), "component" if component else "engine")
    console.print(
        f"Wrote {path}. Fill in the places marked FILL IN, then: specref audit {path.stem}:make --level smoke", markup=False
    )


@app.command()
def requirements() -> None:
    """Print the catalogue of requirements as a Markdown table.

    Example: specref requirements > REQUIREMENTS.md
    """
    from conformance.requirements import catalogue

    print(catalogue(), end="")


if __name__ == "__main__":
    main()
