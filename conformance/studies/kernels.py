"""The judge's audit of our own fast paths, at length: the batched rules and the kernels under the emulator, at V = 64.

    python -m conformance.studies.kernels [--long] [--only batched|kernels] [--seed N]

--long: a million rows through every batched rule and 200,000 through every kernel, 10 minutes of an idle core; else some
thousands. One false-alarm rate of 1e-6 is shared by all components. The tables go to reports/studies/kernels.md, beside what
`python -m specref.cuda.check` shows: equality, sanitizers, barriers, faults, traffic, compilation.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from conformance.checks import component_law, tree
from conformance.checks.component_exact import exact_finding
from conformance.checks.component_law import CHAINS, PER_KIND, ROWS, TREES, Round, ask, component_findings, mixup_finding
from conformance.checks.edge import ask_edges, edge_findings
from conformance.checks.instances import draw_trial, make_laws
from conformance.components import ChainVerifier, TreeVerifier
from conformance.engines.own_components import BATCHED_CHAIN_RULES, BATCHED_TREE_RULES, BatchedChain, BatchedTree
from conformance.engines.own_kernels import CHAIN_KERNELS, TREE_KERNELS, KernelChain, KernelMasks, KernelTree, require_emulator
from conformance.findings import Finding, Verdict
from conformance.protocols import Unsupported
from conformance.sampling import request_seed
from conformance.studies.report import table

REPORT = Path("reports/studies/kernels.md")
V = 64
ALPHA = 1e-6
COMPONENTS = 15
"""Verifiers that share the rate."""
ABOUT = f"V = {V}. The false-alarm rate of all components together is {ALPHA:g}."
ABOUT_KERNELS = """They are run by the emulator. Of the kernel without replacement the rows count that it decided itself; the
others have a sibling that no draw without replacement gives, and were left to the batched rule."""
HEADS = ("component", "rows", "findings", "log10 evidence against it", "would have detected")


class WithReplacement(BatchedTree):
    """Recursive rejection of siblings that were drawn independently: the same rule, told each sibling's own law."""

    def __init__(self) -> None:
        super().__init__("without_replacement")
        self.name = "batched tree with_replacement"


def batched() -> list[ChainVerifier | TreeVerifier]:
    """Every batched rule that samples and keeps the target's law."""
    return [*map(BatchedChain, BATCHED_CHAIN_RULES), *map(BatchedTree, BATCHED_TREE_RULES), WithReplacement()]


def kernels() -> list[ChainVerifier | TreeVerifier]:
    """Every kernel that samples."""
    trees = [*map(KernelTree, TREE_KERNELS), KernelTree("without_replacement", with_replacement=True)]
    return [*map(KernelChain, CHAIN_KERNELS), *trees]


def rounds_of(verifier: ChainVerifier | TreeVerifier, rows: int, seed: int) -> Iterator[Round]:
    """As `component_law.rounds_of`; for rules of siblings drawn with replacement, these are."""
    if not verifier.name.endswith("with_replacement"):
        yield from component_law.rounds_of(verifier, rows, seed, V)
        return
    rng = np.random.default_rng([seed, 0])
    laws = make_laws(PER_KIND, max(map(len, TREES)), V, rng)
    for batch, done in enumerate(range(0, rows, ROWS)):
        trial = draw_trial(laws, TREES[batch % len(TREES)], min(ROWS, rows - done), rng)
        yield Round(trial, ask(verifier, trial, request_seed(seed, verifier.name, batch)))


def findings(verifier: ChainVerifier | TreeVerifier, rows: int, alpha: float, seed: int) -> tuple[list[Finding], int]:
    """LAW-3 to LAW-5 of a verifier, for chains LAW-6 and EDGE too; and the rows of LAW-3 and LAW-4 that it decided itself."""
    name, rule = verifier.name, verifier.rule
    found = component_findings(name, rule, rounds_of(verifier, rows, seed), planned=rows, alpha=alpha, seed=seed)
    decided = verifier.decided if isinstance(verifier, KernelTree) else rows
    found.append(mixup_finding(verifier, seed=seed))
    if not verifier.trees:
        found += [exact_finding(verifier, seed=seed), *edge_findings(name, ask_edges(verifier))]
    return found, decided


def tree_findings(rows: int, seed: int) -> list[Finding]:
    """TREE-1 and TREE-2 of `tree_build`, and TREE-6: a chain as a tree of width 1, from the same numbers."""
    number, masks = rows // 4, KernelMasks()
    found = tree.input_findings(masks.name, tree.build_all(masks, tree.trees(number, seed)), number)
    pairs: list[tuple[TreeVerifier, ChainVerifier]] = [
        (KernelTree("without_replacement"), KernelChain("ratio")),
        (KernelTree("one_hot"), KernelChain("one_hot")),
        (BatchedTree("without_replacement"), BatchedChain("ratio")),
        (BatchedTree("one_hot"), BatchedChain("one_hot")),
    ]
    rng = np.random.default_rng([seed, 6])
    laws = make_laws(PER_KIND, len(CHAINS[-1]), V, rng)
    for one, other in pairs:
        trial = draw_trial(laws, CHAINS[-1], rows, rng)
        found.append(tree.width_one_finding(one.name, ask(one, trial, seed), ask(other, trial, seed), rows))
    return found


def summarised(found: Sequence[Finding]) -> str:
    """Which requirements conform, then each other verdict in full.

    >>> summarised([Finding("LAW-3", "m", Verdict.CONFORMS, ""), Finding("LAW-4", "m", Verdict.VIOLATES, "it drew twice")])
    'LAW-3 conform; LAW-4 violates: it drew twice'
    """
    good = [one.requirement for one in found if one.verdict is Verdict.CONFORMS]
    rest = [f"{one.requirement} {one.verdict.value}: {one.summary}" for one in found if one.verdict is not Verdict.CONFORMS]
    return "; ".join([*([f"{', '.join(good)} conform"] if good else []), *rest])


def audit(verifiers: Sequence[ChainVerifier | TreeVerifier], rows: int, seed: int) -> Iterator[tuple[Sequence[object], bool]]:
    """Table rows under `HEADS`, each as soon as it is known, and whether it is well."""
    for verifier in verifiers:
        started = time.monotonic()
        # An eighth of the instances is beyond the kernel without replacement: those rows come on top.
        planned = rows * (8 if verifier.name == "kernel tree without_replacement" else 7) // 7
        found, decided = findings(verifier, planned, ALPHA / COMPONENTS, seed)
        good = all(one.verdict in (Verdict.CONFORMS, Verdict.NOT_EXPOSED) for one in found)
        evidence = found[0].log10_evidence
        shown = "-" if evidence is None else f"{evidence:.1f}"
        print(f"{verifier.name}: {summarised(found)} ({time.monotonic() - started:.0f} s)", file=sys.stderr, flush=True)
        yield (verifier.name, f"{decided:,}", summarised(found), shown, found[0].detects), good


def audit_kernels(rows: int, seed: int) -> Iterator[tuple[Sequence[object], bool]]:
    """`audit` of the kernels, and TREE findings. A row says so where they can't be run."""
    try:
        require_emulator("kernels")
    except Unsupported as missing:
        yield ("kernels", 0, str(missing), "", ""), True
        return
    yield from audit(kernels(), rows, seed)
    for one in tree_findings(2_000, seed):
        yield (one.mode, f"{one.n:,} {one.unit}", summarised([one]), "", one.detects), one.verdict is Verdict.CONFORMS


def put_section(path: Path, title: str, body: str) -> None:
    """Replace the section `title` of a report, or add it."""
    text = path.read_text(encoding="utf-8") if path.exists() else "# Our own fast paths: kernels and batched rules\n"
    section = f"## {title}\n\n{body.strip()}\n"
    pattern = re.compile(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)
    found = pattern.search(text)
    text = f"{text[: found.start()]}{section}\n{text[found.end() :]}" if found else f"{text.rstrip()}\n\n{section}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.rstrip() + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the audit and write its section; returns 1 where something violates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help="the published figures")
    parser.add_argument("--only", choices=("kernels", "batched"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=REPORT)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows, kernel_rows = (1_000_000, 200_000) if options.long else (6_144, 4_096)
    parts = {"kernels": audit_kernels(kernel_rows, options.seed), "batched": audit(batched(), rows, options.seed)}
    titles = {"kernels": "The judge's audit of the kernels", "batched": "The judge's audit of the batched rules"}
    abouts = {"kernels": f"{ABOUT} {ABOUT_KERNELS}", "batched": ABOUT}
    today, well = datetime.datetime.now(datetime.UTC).date().isoformat(), True
    for part in [options.only] if options.only else list(parts):
        lines: list[Sequence[object]] = []
        command = (
            f"python -m conformance.studies.kernels {'--long ' if options.long else ''}--only {part} --seed {options.seed}"
        )
        for line, good in parts[part]:
            lines.append(line)
            well &= good
            body = f"Made on {today} by `{command}`. {abouts[part]}\n\n{table(HEADS, lines)}"
            put_section(options.out, titles[part], body)
        print(table(HEADS, lines))
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
