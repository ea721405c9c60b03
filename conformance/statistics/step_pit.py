"""A step log's omnibus: what no bet foresaw in the drafts or in the tokens after a rejection.

The randomised probability integral transform of a token under its own law (the draft's q, or the residual after a rejection) is
uniform, in any order of the vocabulary. Its counts in 16 cells, in token order and by falling law, are set against uniform by a
Dirichlet mixture, valid at any look. For injected laws only: a tolerance in logits moves the cells of a repeated context.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from conformance.statistics.bounds import smallest_caught
from conformance.statistics.dirichlet import log_dirichlet
from conformance.statistics.evidence import Evidence, Floats, Ints, WrongUse, false_alarm_rate, log_mean_exp
from conformance.statistics.step_bets import StepBets, mass_before
from conformance.statistics.step_log import NOTHING, Steps
from conformance.statistics.wealth import log_threshold

CELLS = 16
UNIFORM = np.full(CELLS, 1 / CELLS)
ORDERS = ("token order", "falling law")


@dataclass
class PitCells:
    """Counts of PIT cells `[2, 16]` of tokens against laws `[m, V]`; counts add over shards.

    rng draws the randomisation and is the judge's own, never the engine's.
    """

    law: Floats
    rng: np.random.Generator
    counts: Ints = field(default_factory=lambda: np.zeros((len(ORDERS), CELLS), np.int64))

    def __post_init__(self) -> None:
        ranking = np.argsort(-self.law, axis=1, kind="stable")
        self.starts = [mass_before(self.law), mass_before(self.law, ranking)]

    def cells(self, rows: npt.ArrayLike, tokens: npt.ArrayLike) -> Ints:
        """The cell of each token in each order, `[2, n]`; a token of law 0 (a violation elsewhere) is thrown at random."""
        i, x = np.asarray(rows), np.asarray(tokens)
        v, width = self.rng.random((len(ORDERS), len(x))), self.law[i, x]
        u = np.stack([start[i, x] for start in self.starts]) + v * width
        return np.minimum((np.where(width > 0, u, v) * CELLS).astype(np.int64), CELLS - 1)

    def add(self, rows: npt.ArrayLike, tokens: npt.ArrayLike) -> None:
        """Count tokens `[n]` in contexts `rows [n]`."""
        for order, cells in enumerate(self.cells(rows, tokens)):
            self.counts[order] += np.bincount(cells, minlength=CELLS)

    def merge(self, other: PitCells) -> None:
        """Take in another shard's counts."""
        self.counts = self.counts + other.counts

    @property
    def log_e(self) -> float:
        """The logarithm of the e-value: a mean over both orders and all concentrations."""
        return log_mean_exp(log_dirichlet(self.counts, UNIFORM))

    def evidence(self, check: str) -> Evidence:
        """What the ledger takes in."""
        each = log_dirichlet(self.counts, UNIFORM).max(axis=1)
        return Evidence(check, int(self.counts[0].sum()), self.log_e, holder=ORDERS[int(each.argmax())])


def step_cells(bets: StepBets, rng: np.random.Generator) -> dict[str, PitCells]:
    """Fresh counts for a step log: the drafts against q and, under a ratio rule, replacements against the residual."""
    found = {"draft PIT": PitCells(bets.q, rng)}
    if bets.residual is not None:
        found["residual PIT"] = PitCells(bets.left, rng)
    return found


def add_steps(cells: dict[str, PitCells], steps: Steps) -> None:
    """Count the tokens of a step log."""
    cells["draft PIT"].add(steps.rows, steps.drafts)
    if "residual PIT" in cells:
        chosen = ~steps.accepted & (steps.emitted != NOTHING)
        cells["residual PIT"].add(steps.rows[chosen], steps.emitted[chosen])


def assert_cells(cells: PitCells, false_fail_rate: float) -> float:
    """Raise AssertionError if the counts prove another law; else return log e."""
    if cells.log_e >= log_threshold(false_fail_rate):
        raise AssertionError(
            f"tokens do not follow their law: log10 e = {cells.log_e / np.log(10):.1f} over {int(cells.counts[0].sum())} "
            f"tokens; cells in token order {cells.counts[0].tolist()}, by falling law {cells.counts[1].tolist()}"
        )
    return cells.log_e


def cell_laws(law: npt.ArrayLike, fault: npt.ArrayLike) -> Floats:
    """How a token of law `fault [V]` falls into the cells of `law [V]`: exactly, `[2, 16]`."""
    p, r = np.asarray(law, float)[None], np.asarray(fault, float)
    if p.shape[1:] != r.shape or np.any((p[0] == 0) & (r > 0)):
        raise WrongUse("the fault's law must have the shape of the law and stay within its support")
    edges = np.arange(CELLS + 1) / CELLS
    found = []
    for start in (mass_before(p)[0], mass_before(p, np.argsort(-p, axis=1, kind="stable"))[0]):
        common = np.minimum(start[:, None] + p[0][:, None], edges[1:]) - np.maximum(start[:, None], edges[:-1])
        share = np.maximum(common, 0) / np.where(p[0] > 0, p[0], 1)[:, None]
        found.append(r @ share)
    laws: Floats = np.array(found) / np.sum(found, axis=1, keepdims=True)
    return laws


def samples_needed_by_cells(
    law: npt.ArrayLike,
    fault: npt.ArrayLike,
    false_fail_rate: float,
    false_pass_rate: float,
    rng: np.random.Generator,
    runs: int = 2000,
) -> float:
    """Tokens after which `fault [V]` is missed in at most this share of simulated runs, to a factor 2^(1/4); inf beyond 1e8.

    No bet is held, so no bound is known: the figure is found by simulation of the better order alone.
    """
    false_alarm_rate(false_pass_rate)
    laws = cell_laws(law, fault)
    best = laws[int(((laws - 1 / CELLS) ** 2).sum(axis=1).argmax())]
    threshold = log_threshold(false_fail_rate / len(ORDERS))
    for n in np.unique(np.geomspace(16, 1e8, 91).astype(int)):
        each = log_dirichlet(rng.multinomial(n, best, runs), UNIFORM)
        log_e = np.logaddexp.reduce(each, axis=1) - np.log(each.shape[1])
        if (log_e < threshold).mean() <= false_pass_rate:
            return float(n)
    return np.inf


def smallest_detectable_by_cells(
    n: int,
    law: npt.ArrayLike,
    fault: npt.ArrayLike,
    false_fail_rate: float,
    false_pass_rate: float,
    rng: np.random.Generator,
    runs: int = 200,
) -> float:
    """The smallest share of tokens from `fault [V]` instead of `law [V]` that n tokens catch, by simulation; inf if none."""
    p, r = np.asarray(law, float), np.asarray(fault, float)

    def caught(share: float) -> bool:
        return n >= samples_needed_by_cells(p, (1 - share) * p + share * r, false_fail_rate, false_pass_rate, rng, runs)

    return smallest_caught(caught)
