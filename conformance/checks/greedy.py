"""GREEDY: is every token the target's most probable one, given the engine's own history?

Teacher-forced: the target reads the engine's own output once, so one lawful near-tie does not make all that follows look wrong.
In float32 a token may differ from the argmax only where its logit lies within the measured margin of the top one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from conformance.findings import Finding, Verdict
from conformance.protocols import Tokens
from conformance.scoring import Logits
from conformance.statistics.greedy import Margin, gaps_to_top


@dataclass(frozen=True)
class Divergence:
    """An emitted token that is not the target's argmax. gap: how far its logit lies below the top one."""

    prompt: int
    position: int
    token: int
    best: int
    gap: float

    def __str__(self) -> str:
        where = f"prompt {self.prompt}, output position {self.position}"
        return f"{where}: emitted {self.token} where the target's best is {self.best}, {self.gap:.3g} logits above it"


def divergences(outputs: Sequence[Tokens], logits: Sequence[Logits]) -> list[Divergence]:
    """Where outputs differ from the argmax of their teacher-forced `logits` (one `[len(output), V]` each).

    >>> divergences([(1, 0)], [np.array([[0.0, 2.0], [0.0, 2.0]])])
    [Divergence(prompt=0, position=1, token=0, best=1, gap=2.0)]
    """
    found = []
    for prompt, (output, rows) in enumerate(zip(outputs, logits, strict=True)):
        if not output:
            continue
        gaps = gaps_to_top(output, rows)
        for position in np.flatnonzero(rows.argmax(axis=1) != np.array(output)):
            best = int(rows[position].argmax())
            found.append(Divergence(prompt, int(position), output[position], best, float(gaps[position])))
    return found


def greedy_finding(mode: str, outputs: Sequence[Tokens], logits: Sequence[Logits], margin: Margin, planned: int) -> Finding:
    """GREEDY-1 in one mode. n counts prompts."""
    found = divergences(outputs, logits)
    wrong = [one for one in found if one.gap > margin.value]
    tokens = sum(map(len, outputs))
    ties = len(found) - len(wrong)
    explained = f"; {ties} differ by a near-tie within the numerical margin of {margin.value:.2g} logits" if ties else ""
    if wrong:
        verdict = Verdict.VIOLATES
        prompts = len({one.prompt for one in wrong})
        summary = (
            f"{len(wrong)} of {tokens} tokens, in {prompts} of {len(outputs)} prompts, are not the target's argmax{explained}"
        )
    else:
        verdict = Verdict.CONFORMS if len(outputs) >= planned else Verdict.INCONCLUSIVE
        summary = f"all {tokens} tokens after {len(outputs)} prompts are the target's argmax{explained}"
    return Finding(
        "GREEDY-1",
        mode,
        verdict,
        summary,
        n=len(outputs),
        planned=planned,
        unit="prompts",
        detects=f"a token {margin.value:.2g} logits below the top, at a rate of {_rate(tokens):.2g}",
        violations=tuple(map(str, wrong[:5])),
    )


def _rate(tokens: int) -> float:
    """The rate of wrong tokens at which `tokens` tokens hold one with probability 99.9%."""
    return float(1 - 1e-3 ** (1 / max(tokens, 1)))
