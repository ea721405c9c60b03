"""The fault bank: one e-process for a whole run.

Every bet is a product over contexts and tokens; the bank is a mixture over bets of these products,

    E = sum_j pi_j prod_t b_{j,t}(x_t),      b_{j,t}(x) = 1 + s_j (r_{j,t}(x) / p_t(x) - 1),

so it pays ln(1 / pi_j) once, not once per context. Under a correct engine E is a nonnegative martingale with mean 1
whatever the bets are, so P(E >= 1/alpha at any time) <= alpha (Ville). What is kept is each bet's **log** wealth: it
adds over tokens, contexts and shards. The mixture is taken afterwards; e-values are never added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from conformance.statistics.bets import STANDARD_BETS, Bet, law_of
from conformance.statistics.evidence import Evidence, Floats, Ints, WrongUse, law_rows, log_mean_exp
from conformance.statistics.rows import Emitted, Rows

Deflator = Callable[[Floats, Floats], Floats]
"""``(p [n, V], b [n, V]) -> M [n]``: the exact worst mean of a bet over the laws that count as correct."""
TOLD_APART = float(np.log(1_000))
"""Log wealth by which one bet must exceed another, before tokens are said to tell their laws apart."""


@dataclass(frozen=True)
class FaultBank:
    """The bets of a run with their prior weights, sealed before the data.

    ``bets``       alternatives; each (law, size) is one bet, of prior weight in proportion to `Bet.weight`.
    ``has_q``      False where neither draft nor proxy law is known: bets that need q are left out.

    >>> bank = FaultBank()
    >>> p, q = np.array([[0.1, 0.6, 0.25, 0.05]]), np.array([[0.3, 0.35, 0.1, 0.25]])
    >>> wealth = bank.from_counts(p[0], q[0], np.array([300, 350, 100, 250]))    # the draft's own law came out
    >>> bank.evidence(wealth, 1000).holder, bank.evidence(wealth, 1000).log10_e > 6
    ('leak to the draft, size 0.999', True)
    >>> bank.evidence(wealth, 1000).others                                       # with these p and q nearly the same law
    ('ratio upside down, size 0.97',)
    """

    bets: Sequence[Bet] = STANDARD_BETS
    has_q: bool = True
    names: tuple[str, ...] = field(init=False)
    families: tuple[str, ...] = field(init=False)
    log_prior: Floats = field(init=False)

    def __post_init__(self) -> None:
        held = tuple(bet for bet in self.bets if self.has_q or not bet.needs_q)
        names = tuple(f"{bet.name}, size {size:g}" for bet in held for size in bet.sizes)
        if not names:
            raise WrongUse("the bank holds no bet; pass at least one law (without q: one with needs_q=False)")
        if len(set(names)) != len(names):
            raise WrongUse("two bets of the bank share a name; reports name the fault by it")
        prior = np.array([bet.weight for bet in held for _ in bet.sizes])
        for name, value in (
            ("bets", held),
            ("names", names),
            ("families", tuple(bet.family for bet in held for _ in bet.sizes)),
            ("log_prior", np.log(prior / prior.sum())),
        ):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.names)

    def log_bets(self, rows: Rows, tokens: Ints, deflate: Deflator | None = None) -> Floats:
        """``ln b_j(x_t)``, ``[n, J]``, for tokens ``[n]`` with laws ``rows``.

        A token with p = 0 multiplies every wealth by 1 here: where p is exact it is a violation outright (`judge`),
        where p was rescored it may be the edge of a truncation. ``deflate`` divides each bet by its exact worst mean
        under a composite null; it costs a whole table per bet.
        """
        emitted = Emitted(tokens, rows)
        possible = emitted.p[:, 0] > 0
        safe = np.where(possible, emitted.p[:, 0], 1.0)
        out = np.empty((len(tokens), len(self)))
        column = 0
        for bet in self.bets:
            if deflate is None:
                ratio = bet.at_tokens(emitted, rows) / safe
                for size in bet.sizes:
                    out[:, column] = (1 - size) + size * ratio
                    column += 1
                continue
            table = bet.table(rows) / np.where(rows.p > 0, rows.p, np.inf)
            for size in bet.sizes:
                values = (1 - size) + size * table
                out[:, column] = emitted.of(values)[:, 0] / deflate(rows.p, values)
                column += 1
        np.log(out, out=out)
        if not possible.all():
            out[~possible] = 0.0
        return out

    def log_table(self, p: Floats, q: Floats | None) -> Floats:
        """``ln b_j(x)`` for every token x of one fixed pair of laws, ``[J, V]`` (0 where p = 0)."""
        p_row = law_rows("p", np.asarray(p)[None])
        q_row = p_row if q is None else law_rows("q", np.asarray(q)[None], 1)
        rows = Rows(p_row, q_row)
        with np.errstate(divide="ignore", invalid="ignore"):
            columns = [
                np.where(p_row[0] > 0, np.log((1 - size) + size * law / p_row[0]), 0.0)
                for bet in self.bets
                for law in [bet.table(rows)[0]]
                for size in bet.sizes
            ]
        return np.array(columns)

    def from_counts(self, p: Floats, q: Floats | None, counts: Ints) -> Floats:
        """Log wealth ``[J]`` after tokens with these counts ``[V]`` from one fixed (p, q)."""
        counts = token_counts(counts, len(p))
        return self.log_table(p, q) @ counts

    def evidence(self, log_wealth: Floats, n: int, check: str = "bank") -> Evidence:
        """The mixture over bets, with the bet that holds most of the wealth and those that are not told apart from it."""
        holder = int(np.argmax(self.log_prior + log_wealth))
        log_e = log_mean_exp(log_wealth, np.exp(self.log_prior))
        return Evidence(check, n, log_e, holder=self.names[holder], others=self._like(holder, log_wealth))

    def _like(self, holder: int, log_wealth: Floats) -> tuple[str, ...]:
        """The best bets on other laws than the holder's under which the tokens are less than `TOLD_APART` times less likely."""
        if log_wealth[holder] < TOLD_APART:  # against the target's own law there is no such evidence either
            return ()
        laws, found = {self._law(holder)}, []
        for j in np.argsort(-log_wealth, kind="stable"):
            if log_wealth[j] <= log_wealth[holder] - TOLD_APART:
                break
            if self._law(int(j)) not in laws:
                laws.add(self._law(int(j)))
                found.append(self.names[j])
        return tuple(found)

    def _law(self, j: int) -> str:
        """What a bet supposes, whatever its size or its degree."""
        return self.families[j] if self.families[j] == "temperature" else law_of(self.names[j])

    def family(self, name: str) -> Ints:
        """Indices of the bets of one family, as "temperature"."""
        return np.flatnonzero([family == name for family in self.families])


def token_counts(counts: Ints, vocabulary: int) -> Ints:
    """Return counts ``[V]`` as int64; raises if they are not counts over this vocabulary."""
    array = np.asarray(counts)
    if array.shape != (vocabulary,):
        raise WrongUse(
            f"counts have shape {array.shape} for a vocabulary of {vocabulary}; a token outside V is a fault "
            "of its own, or the law belongs to another model"
        )
    if array.size and (array.min() < 0 or np.any(array != np.floor(array))):
        raise WrongUse("counts must be nonnegative whole numbers")
    return array.astype(np.int64)
