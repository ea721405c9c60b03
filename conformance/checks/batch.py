"""BATCH: what a request gets does not depend on who shares its batch, on padding, order, pre-emption or skipped rounds.

BATCH-1 the law of each batch row, statistical. BATCH-2 at temperature 0 the same tokens alone and in company, near-ties aside.
BATCH-3 the same bits, only where promised.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from conformance.checks.law import detectable
from conformance.checks.outputs import differences, same_logits
from conformance.checks.places import Place, judged, nonsense, not_promised
from conformance.components import Floats, Ints, Logits
from conformance.findings import Finding, Statistic, Verdict
from conformance.protocols import Tokens
from conformance.statistics import Ledger, ModePlan, Plan, TokenBlock
from conformance.statistics.bets import seals
from conformance.statistics.greedy import Margin


def row_law_finding(
    mode: str,
    outputs: Sequence[Tokens],
    laws: Sequence[tuple[Floats, Floats]],
    rows: Ints,
    planned: int,
    *,
    alpha: float = 1e-6,
    seed: int = 0,
    without: Collection[str] = (),
) -> Finding:
    """BATCH-1, from sampled outputs in the order of submission. laws: the target's and what a leak would lean towards, each
    `[len(output), V]`; rows: the batch row of each request, or the number of the schedule that it ran under (mixed settings,
    pre-empted, skipped rounds). planned: tokens. without: laws that are not bet on. The bank is judged in each row alone.
    """
    if not len(outputs) == len(laws) == len(rows):
        problem = f"{len(outputs)} outputs, {len(laws)} laws and {len(rows)} rows do not belong together"
        return nonsense("BATCH-1", mode, problem)
    lengths = [len(output) for output in outputs]
    p, q = (np.concatenate([law[side] for law in laws]) for side in (0, 1))
    block = TokenBlock(
        np.array([token for output in outputs for token in output], dtype=np.int64),
        p,
        q,
        request=np.repeat(np.arange(len(outputs)), lengths),
        row=np.repeat(np.asarray(rows, dtype=np.int64), lengths),
        silent=tuple(i for i, length in enumerate(lengths) if not length),
    )
    tokens, width = len(block), int(np.max(rows)) + 1
    plan = ModePlan(mode, 1.0, {"bank": 0.3, "row": 0.7}, max(1, planned), rows=width, bets=seals(without))
    ledger = Ledger(Plan((plan,), alpha), f"{mode} seed {seed}", seed)
    ledger.observe(mode, block)
    look, evidence = ledger.look(), {one.check: one for one in ledger.evidence(mode)}
    places = []
    if look.failed:
        each = evidence["row"].detail["log10_e"]
        places = [
            Place(
                f"batch row {row}", "the target's law", f"log10 evidence {each[row]:.1f} against it ({evidence['row'].holder})"
            )
            for row in np.argsort(each)[::-1]
            if each[row] > 2
        ] or [
            Place("all rows", "the target's law", f"log10 evidence {evidence['bank'].log10_e:.1f} ({evidence['bank'].holder})")
        ]
    verdict = Verdict.VIOLATES if places else Verdict.CONFORMS if tokens >= planned else Verdict.INCONCLUSIVE
    words = {
        Verdict.VIOLATES: f"in batch rows tokens do not follow the target's law: {places[0] if places else ''}",
        Verdict.CONFORMS: f"in each of {width} batch rows tokens follow the target's law ({tokens} tokens)",
        Verdict.INCONCLUSIVE: f"only {tokens} of {planned} tokens were judged; no alarm so far",
    }
    sample = slice(0, None, max(1, tokens // 256))
    # A single row has its share of the tokens, and its bank a share of the weight.
    one_row = ModePlan(mode, 0.7 / width, {"bank": 1.0}, max(1, planned))
    return Finding(
        "BATCH-1",
        mode,
        verdict,
        words[verdict],
        n=tokens,
        planned=planned,
        alpha=alpha,
        log10_evidence=look.log10_e if math.isfinite(look.log10_e) else None,
        statistics=tuple(Statistic(e.check, e.n, log10_evidence=e.log10_e, holder=e.holder) for e in evidence.values()),
        detects="in one row: "
        + detectable(ledger.judges[mode].bank, one_row, alpha, (p[sample], q[sample]), max(1, tokens // width)),
        violations=tuple(map(str, places[:5])),
    )


def company_finding(
    mode: str,
    alone: Sequence[Tokens],
    schedules: dict[str, Sequence[Tokens]],
    planned: int,
    *,
    logits: Sequence[npt.NDArray[np.float64]] | None = None,
    margin: Margin | None = None,
) -> Finding:
    """BATCH-2 at temperature 0: outputs of the same requests under each schedule ("batch of 8", "pre-empted", ...) as alone.

    >>> company_finding("m", [(1, 2)], {"pre-empted": [(1,)]}, planned=1).violations
    ("'pre-empted', request 0, position 1: expected token 2, found the end of the output",)
    """
    places = []
    for name, outputs in schedules.items():
        if len(outputs) != len(alone):
            return nonsense("BATCH-2", mode, f"{len(outputs)} outputs for {len(alone)} requests under '{name}'")
        places += differences(alone, outputs, f"'{name}', request", logits=logits, margin=margin)
    n = len(alone) * len(schedules)
    claim = f"outputs are those of each request alone ({', '.join(schedules)})"
    return judged("BATCH-2", mode, places, n=n, planned=planned, unit="outputs", claim=claim)


def bits_finding(mode: str, rows: Logits, planned: int, *, promised: bool, names: Sequence[str] = ()) -> Finding:
    """BATCH-3: every logit `[n, V]` is bit for bit that of the request alone, if the engine promises batch invariance.

    names: of the rows, as "request 3, position 7".

    >>> rows = Logits(np.array([[1.0, 2.0]]), alone=np.array([[1.0, 2.5]]))
    >>> bits_finding("m", rows, planned=1, promised=True).violations
    ('row 0, token 1: expected logit 2.5, found 2',)
    """
    if not promised:
        return not_promised("BATCH-3", mode, "the same bits in every batch")
    return same_logits("BATCH-3", mode, rows, Margin(0.0, "exact", len(rows.alone)), planned, names)
