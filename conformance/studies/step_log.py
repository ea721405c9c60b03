"""Step log: how many steps does each check need to see each fault of a verifier or a drafter?

    python -m conformance.studies.step_log [--long] [--seed N]

prints the table and writes reports/studies/step_log.md. One context of V = 256 is repeated (p, q injected); each step draws a
draft, flips the accept coin and, after a rejection, draws the replacement by inverse CDF, with one fault planted. Every check
stands alone at 1e-6, looked at after every step.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.special import softmax

from conformance.statistics.evidence import Floats, Ints
from conformance.statistics.step_bets import StepBets
from conformance.statistics.step_log import Mask, Steps, support_violations
from conformance.statistics.step_pit import add_steps, step_cells
from conformance.studies.instances import Instance, instance
from conformance.studies.null_streams import short
from conformance.studies.report import table, write

ALPHA = 1e-6
STEPS = 1 << 17
LOOK = 64
"""How often the cells are looked at, in steps."""


@dataclass
class Engine:
    """A verifier and drafter on one instance, correct unless a part is replaced; parts are arrays of laws or coins."""

    given: Instance
    rng: np.random.Generator
    drawn_from: Floats = field(init=False)
    """The law `[V]` that drafts come from."""
    accept: Floats = field(init=False)
    """The acceptance probability `[V]` of each draft token."""
    left: Floats = field(init=False)
    """The law `[V]` of the replacement."""
    let_through: float = 0.0
    replacement_number: str = "fresh"
    accept_number: str = "fresh"
    only_draft_removed: bool = False

    def __post_init__(self) -> None:
        p, q = self.given.p, self.given.q
        self.drawn_from, self.accept = q, np.minimum(1, p / q)
        residual = np.maximum(p - q, 0)
        self.left = residual / residual.sum()

    def steps(self, n: int) -> Steps:
        """n steps of this engine."""
        draft_u, accept_u, emit_u = self.rng.random((3, n))
        drafts = picked(self.drawn_from, draft_u)
        accept_u = draft_u if self.accept_number == "draft" else accept_u
        emit_u = {"fresh": emit_u, "accept": accept_u, "draft": draft_u}[self.replacement_number]
        accepted = (accept_u < self.accept[drafts]) | (self.rng.random(n) < self.let_through)
        if self.only_draft_removed:
            without = np.maximum(self.given.p - np.diag(self.given.q), 0)
            emitted = picked_rows(without / without.sum(axis=1, keepdims=True), drafts, emit_u)
        else:
            emitted = picked(self.left, emit_u)
        return Steps(np.zeros(n, np.int64), drafts, accepted, np.where(accepted, drafts, emitted))


def picked(law: Floats, u: Floats) -> Ints:
    """Inverse CDF in token order."""
    total = np.cumsum(law)
    return np.asarray(np.minimum(np.searchsorted(total, u * total[-1], side="right"), len(law) - 1))


def picked_rows(laws: Floats, rows: Ints, u: Floats) -> Ints:
    """Inverse CDF from row `rows[i]` of `laws [m, V]`, without a table of all steps."""
    out = np.empty(len(rows), np.int64)
    for row in np.unique(rows):
        chosen = rows == row
        out[chosen] = picked(laws[row], u[chosen])
    return out


def bfloat16(values: Floats) -> Floats:
    """Rounded to bfloat16, to nearest even."""
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.asarray(rounded.view(np.float32), np.float64)


def head(law: Floats, mass: float) -> Floats:
    """`law [V]` cut to its most probable tokens, up to the one that reaches `mass` and one more."""
    order = np.argsort(-law)
    size = max(2, int(np.searchsorted(np.cumsum(law[order]), mass) + 1))
    cut = np.zeros_like(law)
    cut[order[:size]] = law[order[:size]]
    return np.asarray(cut / cut.sum())


def _verify_hot(engine: Engine, t: float) -> None:
    p, q = np.asarray(softmax(engine.given.logits / t)), engine.given.q
    left = np.maximum(p - q, 0)
    engine.accept, engine.left = np.minimum(1, p / q), left / left.sum()


def _set(**parts: object) -> Callable[[Engine], None]:
    def plant(engine: Engine) -> None:
        for name, value in parts.items():
            setattr(engine, name, value(engine) if callable(value) else value)

    return plant


@dataclass(frozen=True)
class Plant:
    """A fault (or lawful variation), and the best figure of the experiments that came before (None: not among them)."""

    name: str
    plant: Callable[[Engine], None]
    best: float | None = None
    lawful: bool = False


PLANTS = (
    Plant("correct", _set(), lawful=True),
    Plant(
        "bf16 ratio p/q (benign)",
        _set(accept=lambda e: np.minimum(1, bfloat16(bfloat16(e.given.p) / bfloat16(e.given.q)))),
        lawful=True,
    ),
    Plant("rejected drafts let through, 10%", _set(let_through=0.1), 4794),
    Plant("rejected drafts let through, 3%", _set(let_through=0.03), 50905),
    Plant("resample from p", _set(left=lambda e: e.given.p), 8),
    Plant("abs(p - q) residual", _set(left=lambda e: np.abs(e.given.p - e.given.q)), 5),
    Plant("accept min(1, q/p)", _set(accept=lambda e: np.minimum(1, e.given.q / e.given.p)), 5),
    Plant("accept coin reused for the residual", _set(replacement_number="accept"), 304),
    Plant("verified at T = 1.02", lambda e: _verify_hot(e, 1.02), 21408),
    Plant("whole q handed over, drafted from its head", _set(drawn_from=lambda e: head(e.given.q, 0.88)), 349),
    Plant("drafted at T = .9", _set(drawn_from=lambda e: e.given.q ** (1 / 0.9) / (e.given.q ** (1 / 0.9)).sum())),
    Plant("draft's number reused for the accept coin", _set(accept_number="draft")),
    Plant("draft's number reused for the residual", _set(replacement_number="draft")),
    Plant("residual subtracts q at the draft only", _set(only_draft_removed=True)),
)


def detected(engine: Engine, bets: StepBets, n: int = STEPS, chunk: int = 8192) -> dict[str, float]:
    """Steps until each check convicts at 1e-6 (inf: never within n)."""
    accounts, cells = bets.accounts(), step_cells(bets, engine.rng)
    found = dict.fromkeys(["support rules", *accounts, *cells], np.inf)

    def first(check: str, convicts: Mask, seen: int) -> None:
        if found[check] == np.inf and convicts.any():
            found[check] = float(seen + np.argmax(convicts) + 1)

    for seen in range(0, n, chunk):
        steps = engine.steps(min(chunk, n - seen))
        forbidden = support_violations(steps, bets.p, bets.q, "ratio")
        first("support rules", np.any(list(forbidden.values()), axis=0), seen)
        for check, factors in bets.log_factors(steps).items():
            first(check, accounts[check].path(factors) >= -np.log(ALPHA), seen)
            accounts[check].add(factors)
        for look in range(0, len(steps), LOOK):
            add_steps(cells, steps.part(slice(look, look + LOOK)))
            for check, account in cells.items():
                if found[check] == np.inf and account.log_e >= -np.log(ALPHA):
                    found[check] = float(seen + look + LOOK)
    return found


def medians(plant: Plant, given: Instance, repeats: int, rng: np.random.Generator) -> tuple[dict[str, float], int]:
    """The median steps per check, and in how many repeats any check convicted."""
    bets = StepBets(given.p, given.q)
    runs = []
    for _ in range(repeats):
        engine = Engine(given, rng)
        plant.plant(engine)
        runs.append(detected(engine, bets))
    convicted = sum(min(run.values()) < np.inf for run in runs)
    found = {check: float(np.median([run[check] for run in runs])) for check in runs[0]}
    forbidden = support_violations(engine.steps(STEPS), bets.p, bets.q, "ratio")
    broken = int(np.any(list(forbidden.values()), axis=0).sum())
    if broken >= 100:  # the first of a rate: its median is known far better than from the runs
        found["support rules"] = float(np.ceil(np.log(0.5) / np.log1p(-broken / STEPS)))
    return found, convicted


def main() -> None:
    """Run the study and write its report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--long", action="store_true", help="15 runs per fault instead of 5; 50 of what is lawful")
    arguments.add_argument("--seed", type=int, default=None, help="by default fresh, and printed in the report")
    arguments.add_argument("--folder", type=Path, default=Path("reports/studies"))
    given = arguments.parse_args()
    seed = given.seed if given.seed is not None else int(np.random.SeedSequence().entropy) % 2**32  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    laws = instance(256)
    rows, checks = [], ["support rules", *StepBets(laws.p, laws.q).names, "draft PIT", "residual PIT"]
    for plant in PLANTS:
        repeats = (50 if plant.lawful else 15) if given.long else 5
        median, convicted = medians(plant, laws, repeats, rng)
        ratio = f"{min(median.values()) / plant.best:.2f}" if plant.best else ""
        best = short(plant.best) if plant.best else ""
        rows.append([plant.name, *(short(median[c]) for c in checks), f"{convicted}/{repeats}", best, ratio])
        print(rows[-1], flush=True)
    shown = table(["fault", *checks, "runs convicted", "earlier best", "ours / earlier"], rows)
    print(shown)
    command = "python -m conformance.studies.step_log" + " --long" * given.long + f" --seed {seed}"
    sections = [
        f"Median steps until each check alone convicts at 1e-6, of {STEPS:,}: {laws.name}, acceptance {laws.acceptance:.2f}, "
        "ratio rule, p and q injected. A dash: not in the median run. The earlier best figures are of experiments on the "
        "same instance. Support rules: the median that their measured rate implies; the earlier figures (8, 5, 5) are "
        "medians of five runs of the same rules, whose exact medians are 5, 5 and 8.",
        shown,
    ]
    path = given.folder / "step_log.md"
    write(path, "Step log", command, sections)
    print(f"written: {path}")


if __name__ == "__main__":
    main()
