"""Statistics with one stated error rate: evidence that may be looked at at any time, and one verdict per run.

>>> import numpy as np
>>> from conformance.statistics import Ledger, ModePlan, Plan, TokenBlock
>>> rng = np.random.default_rng(0)
>>> p, q = np.array([0.1, 0.6, 0.25, 0.05]), np.array([0.3, 0.35, 0.1, 0.25])

The plan is sealed before the first token: modes, checks and their weights, and the number of tokens.

>>> mode = ModePlan.standard("sampling, k = 1", 4_000, segments=False, slots=False, batch=False, k=1)
>>> ledger = Ledger(Plan((mode,), alpha=1e-6), run="example", seed=7)

An engine that lets every tenth draft token through unverified is judged block by block:

>>> for block in range(10):
...     tokens = np.where(rng.random(2_000) < 0.1, rng.choice(4, 2_000, p=q), rng.choice(4, 2_000, p=p))
...     request = 20 * block + np.repeat(np.arange(20), 100)
...     laws = np.tile(p, (2_000, 1)), np.tile(q, (2_000, 1))
...     ledger.observe("sampling, k = 1", TokenBlock(tokens, *laws, request=request))
>>> verdict = ledger.look()
>>> verdict.failed, verdict.named[0].check
(True, 'bank')

What was the smallest leak that this many tokens would have shown with probability 99.9%?

>>> from conformance.statistics import BetTable, Threshold, leak
>>> table = BetTable(ledger.judges["sampling, k = 1"].bank, p[None], q[None])
>>> bank = Threshold(alpha=1e-6, weight=mode.weight * mode.checks["bank"])
>>> round(table.smallest_detectable(leak(p[None], q[None]), 20_000, bank), 2)
0.06
"""

from conformance.statistics.bank import FaultBank
from conformance.statistics.bets import STANDARD_BETS, Bet
from conformance.statistics.blocks import Segment, TokenBlock
from conformance.statistics.evidence import Evidence, WrongUse
from conformance.statistics.judge import ModeJudge
from conformance.statistics.ledger import Ledger, Verdict
from conformance.statistics.plan import ModePlan, Plan, standard_weights
from conformance.statistics.planning import BetTable, Threshold, blend, leak, temperature

__all__ = [
    "STANDARD_BETS",
    "Bet",
    "BetTable",
    "Evidence",
    "FaultBank",
    "Ledger",
    "ModeJudge",
    "ModePlan",
    "Plan",
    "Segment",
    "Threshold",
    "TokenBlock",
    "Verdict",
    "WrongUse",
    "blend",
    "leak",
    "standard_weights",
    "temperature",
]
