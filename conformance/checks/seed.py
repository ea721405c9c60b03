"""SEED: the same seed gives the same output (where promised), and different requests are independent (always).

SEED-1 repeated alone, SEED-2 repeated in other company: deterministic. SEED-3 statistical: requests of one batch share no
random number, and other seeds do not give the same output again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from conformance.checks.law import NOTHING
from conformance.checks.outputs import differences
from conformance.checks.places import Place, judged, nonsense, not_promised
from conformance.components import Floats
from conformance.findings import Finding, Statistic, Verdict
from conformance.protocols import Output, Tokens
from conformance.statistics import Ledger, ModePlan, Plan, TokenBlock
from conformance.statistics.evidence import log_mean_exp
from conformance.statistics.trios import smallest_detectable_dependence

REPEAT_STAKE = 0.01
"""What is bet on two outputs being equal: enough for one long repetition to convict, too little to matter where none comes."""


def repeat_findings(
    mode: str, first: Sequence[Output], again: Sequence[Output], in_company: Sequence[Output], planned: int, *, promised: bool
) -> list[Finding]:
    """SEED-1 and SEED-2, from the outputs of the same requests: run twice, and run in another batch.

    >>> one, other = Output((1, 2)), Output((1, 3))
    >>> repeat_findings("m", [one], again=[one], in_company=[other], planned=1, promised=True)[1].violations
    ('request 0, position 1: expected token 2, found token 3',)
    """
    if not promised:
        return [not_promised(requirement, mode, "equal outputs for equal seeds") for requirement in ("SEED-1", "SEED-2")]
    findings = []
    for requirement, others, claim in (
        ("SEED-1", again, "the same seed gives the same output"),
        ("SEED-2", in_company, "the same seed gives the same output whatever shares the batch"),
    ):
        if len(others) != len(first):
            findings.append(nonsense(requirement, mode, f"{len(others)} outputs for {len(first)} requests"))
            continue
        places = differences([one.tokens for one in first], [one.tokens for one in others])
        findings.append(judged(requirement, mode, places, n=len(first), planned=planned, unit="requests", claim=claim))
    return findings


def independence_finding(
    mode: str,
    outputs: Sequence[Tokens],
    laws: Sequence[Floats],
    planned: int,
    *,
    prompts: Sequence[Tokens],
    rows: int,
    alpha: float = 1e-6,
    seed: int = 0,
) -> Finding:
    """SEED-3, from sampled outputs with different seeds (or none), in the order of submission, `rows` of them in each batch.

    laws: the target's, `[len(output), V]` each. Two accounts of equal weight: tokens at the same place of a batch's requests
    (and at lags within one), by their PIT; and whole outputs that come again after the same prompt, which under independence
    happens with the probability that the target gives the output.
    """
    if not len(outputs) == len(laws) == len(prompts):
        problem = f"{len(outputs)} outputs, {len(laws)} laws and {len(prompts)} prompts do not belong together"
        return nonsense("SEED-3", mode, problem)
    lengths = [len(output) for output in outputs]
    tokens = sum(lengths)
    block = TokenBlock(
        np.array([token for output in outputs for token in output], dtype=np.int64),
        np.concatenate([law[:length] for law, length in zip(laws, lengths)]),
        request=np.repeat(np.arange(len(outputs)), lengths),
        silent=tuple(i for i, length in enumerate(lengths) if not length),
    )
    checks = {"cross-row": 0.6, "lag": 0.4}
    plan = ModePlan(mode, 1.0, checks, max(1, planned), has_q=False, rows=rows)
    ledger = Ledger(Plan((plan,), alpha), f"{mode} seed {seed}", seed)
    ledger.observe(mode, block)
    log_repeats, repeated = _repeats(prompts, outputs, laws)
    log_stream = ledger.look().log10_e * math.log(10)
    log_e = log_mean_exp(np.array([log_stream, log_repeats]))
    failed = log_e >= -math.log(alpha)
    places = []
    if failed and log_repeats > log_stream:
        places = [
            Place(f"requests {i} and {j}", "independent outputs", f"the same {lengths[j]} tokens") for i, j in repeated[:5]
        ]
    elif failed:
        worst = max(ledger.evidence(mode), key=lambda one: one.log_e)
        where = f"requests of one batch of {rows}" if worst.check == "cross-row" else "tokens of one request"
        found = f"dependence ({worst.holder}, log10 evidence {worst.log10_e:.1f})"
        places = [Place(where, "independent random numbers", found)]
    verdict = Verdict.VIOLATES if failed else Verdict.CONFORMS if tokens >= planned else Verdict.INCONCLUSIVE
    words = {
        Verdict.VIOLATES: f"requests are not independent: {places[0] if places else ''}",
        Verdict.CONFORMS: f"no dependence between the requests of a batch in {tokens} tokens",
        Verdict.INCONCLUSIVE: f"only {tokens} of {planned} tokens were judged; no dependence so far",
    }
    pairs = max(1, (tokens - tokens // max(rows, 1)) // max(rows - 1, 1))  # of each two rows of a batch
    smallest = smallest_detectable_dependence(pairs, 0.3 * alpha, 1e-3)
    return Finding(
        "SEED-3",
        mode,
        verdict,
        words[verdict],
        n=tokens,
        planned=planned,
        alpha=alpha,
        log10_evidence=log_e / math.log(10),
        statistics=tuple(Statistic(e.check, e.n, log10_evidence=e.log10_e, holder=e.holder) for e in ledger.evidence(mode)),
        detects=f"a correlation of about {smallest:.2g} between two rows" if math.isfinite(smallest) else NOTHING,
        violations=tuple(map(str, places)),
    )


def _repeats(
    prompts: Sequence[Tokens], outputs: Sequence[Tokens], laws: Sequence[Floats]
) -> tuple[float, list[tuple[int, int]]]:
    """Log wealth of bets that an output equals the one before it after the same prompt, and which do.

    Given the earlier output y, an independent one equals it with probability P(y); so 1 - s + s [equal] / P(y) has mean 1. (P
    is the probability of beginning with y: an output that ended there is counted too rarely, which only lowers the evidence.)
    """
    log_wealth, found = 0.0, []
    last: dict[Tokens, int] = {}
    for number, (prompt, output, law) in enumerate(zip(prompts, outputs, laws)):
        before = last.get(prompt)
        if before is not None and output:
            equal = output == outputs[before]
            log_p = float(np.log(np.maximum(law[np.arange(len(output)), list(output)], 1e-300)).sum())
            payoff = math.exp(min(-log_p, 690.0)) if equal else 0.0
            log_wealth += math.log(1 - REPEAT_STAKE + REPEAT_STAKE * payoff)
            if equal:
                found.append((before, number))
        last[prompt] = number
    return log_wealth, found
