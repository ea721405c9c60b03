"""GREEDY: is every token the target's most probable one, given the engine's own history?

Teacher-forced: the target reads the engine's own output once, so one lawful near-tie does not make all that follows look wrong.
In float32 a token may differ from the argmax only where its logit lies within the measured margin of the top one (GREEDY-1).
In bfloat16 and float16 no margin convicts: the same prompts run with speculation and without decide (GREEDY-2).

Two probes say where a difference comes from: the same row of logits alone and inside the window (GREEDY-3), and the same
prompts with another drafter (GREEDY-4), where the first place that differs is shown with the target's top-2 margin there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from conformance.checks.outputs import same_logits
from conformance.checks.places import Place, judged, nonsense, not_exposed, rate_caught
from conformance.checks.seen import partings
from conformance.components import Logits as RowsOfLogits
from conformance.findings import Finding, Statistic, Verdict
from conformance.protocols import Tokens
from conformance.scoring import Logits
from conformance.statistics import WrongUse
from conformance.statistics.evidence import Floats
from conformance.statistics.greedy import (
    GAPS,
    MARGIN_CAPS,
    Margin,
    earlier,
    first_gaps,
    gaps_to_top,
    paired_greedy,
    smallest_detectable_wrong_token_rate,
)
from conformance.statistics.wealth import log_threshold


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


def greedy_finding(
    mode: str,
    outputs: Sequence[Tokens],
    logits: Sequence[Logits],
    margin: Margin,
    planned: int,
    texts: Sequence[str] = (),
) -> Finding:
    """GREEDY-1 in one mode. n counts prompts. texts: of the tokens, for what a report shows.

    Raises WrongUse for a margin above the cap, or in a precision that has none.
    """
    refuse_wide(margin)
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
        detects=f"a token {margin.value:.2g} logits below the top, at a rate of {rate_caught(tokens):.2g}",
        violations=tuple(map(str, wrong[:5])),
        pictures=partings([(one.prompt, one.position) for one in wrong], outputs, logits, margin.value, texts),
    )


def refuse_wide(margin: Margin) -> None:
    """Raise WrongUse for a margin by which no single token can be judged.

    >>> refuse_wide(Margin(0.01, "float32", 10_000))
    Traceback (most recent call last):
    conformance.statistics.evidence.WrongUse: a margin of 0.01 is above the cap of 0.001 for float32: compare paired prompts
    """
    if margin.dtype not in MARGIN_CAPS:
        raise WrongUse(f"no margin convicts in {margin.dtype}: compare paired prompts")
    if not margin.value <= MARGIN_CAPS[margin.dtype]:
        cap = MARGIN_CAPS[margin.dtype]
        raise WrongUse(f"a margin of {margin.value:g} is above the cap of {cap:g} for {margin.dtype}: compare paired prompts")


@dataclass(frozen=True)
class Arm:
    """Greedy outputs of the same prompts under one setting, and the reference's logits along each, `[len(output), V]`."""

    outputs: Sequence[Tokens]
    logits: Sequence[Logits]

    def gaps(self) -> tuple[Floats, Floats]:
        """How far each token lies below the reference's top, `[n]`, and each prompt's first token above every gap, `[P, 5]`."""
        parts = [gaps_to_top(output, rows) for output, rows in zip(self.outputs, self.logits, strict=True) if output]
        gaps = np.concatenate(parts) if parts else np.zeros(0)
        prompts = np.repeat(np.arange(len(self.outputs)), [len(output) for output in self.outputs])
        return gaps, first_gaps(gaps, prompts, len(self.outputs))


def paired_greedy_finding(
    mode: str, on: Arm, off: Arm, planned: int, *, alpha: float = 1e-6, texts: Sequence[str] = ()
) -> Finding:
    """GREEDY-2: in low precision, tokens far below the top do not come earlier with speculation on than with it off.

    Row i of both arms is the same prompt. Speculation may lawfully double the odds of a flip (its windows have other shapes);
    above that, each prompt in which it is first to emit a token more than c logits below the top is evidence. planned: prompts.

    >>> rows = np.zeros((1, 2))
    >>> paired_greedy_finding("m", Arm([(0,)], [rows]), Arm([(1,)], [rows]), planned=1).verdict
    <Verdict.CONFORMS: 'conforms'>
    """
    if len(on.outputs) != len(off.outputs):
        return nonsense("GREEDY-2", mode, f"{len(on.outputs)} prompts with speculation on and {len(off.outputs)} with it off")
    (gaps_on, first_on), (gaps_off, first_off) = on.gaps(), off.gaps()
    account, prompts = paired_greedy(), len(on.outputs)
    account.add(*earlier(first_on, first_off))
    evidence = account.evidence("paired prompts")
    kind = account.names.index(evidence.holder)
    wins = f"{account.on_only[kind]} prompts against {account.off_only[kind]} for a {evidence.holder}"
    if account.log_e >= log_threshold(alpha):
        verdict, summary = Verdict.VIOLATES, f"tokens far below the target's top come earlier with speculation on: {wins}"
    elif prompts < planned:
        verdict, summary = Verdict.INCONCLUSIVE, f"only {prompts} of {planned} pairs of prompts; no alarm so far ({wins})"
    else:
        verdict, summary = Verdict.CONFORMS, f"tokens below the target's top come no earlier with speculation on ({wins})"
    ahead = np.flatnonzero(first_on[:, kind] < first_off[:, kind]).tolist() if verdict is Verdict.VIOLATES else []
    first = [(prompt, int(first_on[prompt, kind])) for prompt in ahead]
    flips = [(gaps_off > gap).mean() if len(gaps_off) else 0.0 for gap in GAPS]
    length = max(1, len(gaps_on) // max(1, prompts))
    rate = smallest_detectable_wrong_token_rate(max(1, prompts), length, flips, alpha, 1e-3)
    return Finding(
        "GREEDY-2",
        mode,
        verdict,
        summary,
        n=prompts,
        planned=planned,
        unit="prompts",
        alpha=alpha,
        log10_evidence=evidence.log10_e,
        statistics=(Statistic("paired prompts", prompts, log10_evidence=evidence.log10_e, holder=evidence.holder),),
        detects=f"wrong tokens at a rate of {rate:.2g}" if np.isfinite(rate) else "no rate of wrong tokens",
        violations=tuple(_shown(on, *place) for place in first[:5]),
        pictures=partings(first, on.outputs, on.logits, GAPS[kind], texts),
    )


def _shown(arm: Arm, prompt: int, at: int) -> str:
    """Where speculation was first: a stratum to look at with fresh prompts, no proof."""
    row, token = arm.logits[prompt][at], arm.outputs[prompt][at]
    found = f"token {token}, {row.max() - row[token]:.3g} logits below it"
    return str(Place(f"prompt {prompt}, output position {at}", f"token {row.argmax()}, the target's top", found))


def row_variance_finding(
    mode: str, rows: RowsOfLogits | None, margin: Margin, planned: int, names: Sequence[str] = ()
) -> Finding:
    """GREEDY-3: a row of logits `[n, V]` computed inside a verification window equals the same row computed alone.

    Within the margin; the summary says how many argmaxes turned all the same, which is what one-ulp noise does to near-ties.

    >>> rows = RowsOfLogits(np.array([[1.0, 1.0 + 1e-7]]), alone=np.array([[1.0 + 1e-7, 1.0]]))
    >>> row_variance_finding("m", rows, Margin(1e-6, "float32", 10_000), planned=1).summary.rpartition("; ")[2]
    '1 argmax turns, at a top-2 margin of at most 1e-07'
    """
    refuse_wide(margin)
    if rows is None:
        return not_exposed("GREEDY-3", mode, "the logits of its verification windows")
    finding = same_logits("GREEDY-3", mode, rows, margin, planned, names)
    if finding.verdict is Verdict.ERROR:
        return finding
    turned = np.flatnonzero(rows.together.argmax(axis=1) != rows.alone.argmax(axis=1))
    widest = max((top2_margin(rows.alone[row]) for row in turned), default=0.0)
    noise = f"; {len(turned)} argmax{'es' * (len(turned) != 1)} turn{'s' * (len(turned) == 1)}"
    noise += f", at a top-2 margin of at most {widest:.2g}" if len(turned) else ""
    return replace(finding, summary=finding.summary + noise)


def top2_margin(row: Floats) -> float:
    """How far the second logit of a row `[V]` lies below the first.

    >>> top2_margin(np.array([1.0, 4.0, 3.5]))
    0.5
    """
    second, first = np.partition(row, -2)[-2:]
    return float(first - second)


@dataclass(frozen=True)
class FirstDivergence:
    """Where two greedy outputs of one prompt part. row `[V]`: the target's logits there."""

    position: int
    tokens: tuple[int | None, int | None]
    row: Floats

    @classmethod
    def of(cls, one: Tokens, other: Tokens, logits: Logits) -> FirstDivergence | None:
        """None if they are equal. logits: along the output `one`; where that has ended the row is of NaN."""
        length = max(len(one), len(other))
        at = next((i for i in range(length) if one[i : i + 1] != other[i : i + 1]), None)
        if at is None:
            return None
        tokens = (one[at] if at < len(one) else None, other[at] if at < len(other) else None)
        return cls(at, tokens, logits[at] if at < len(one) else np.full(logits.shape[1], np.nan))

    def explained(self, margin: Margin) -> bool:
        """Whether it is a near-tie: both tokens lie within the margin of the top. What follows had another history."""
        gaps = [np.nan if token is None else self.row.max() - self.row[token] for token in self.tokens]
        return all(gap <= margin.value for gap in gaps)

    def place(self, where: str) -> Place:
        """As a report shows it."""
        one, other = ("the end of the output" if token is None else f"token {token}" for token in self.tokens)
        tie = "" if np.isnan(self.row).any() else f" (top-2 margin {top2_margin(self.row):.3g})"
        return Place(f"{where}, position {self.position}", one + tie, other)


def drafter_swap_finding(
    mode: str, outputs: Mapping[str, Sequence[Tokens]], logits: Sequence[Logits], margin: Margin, planned: int
) -> Finding:
    """GREEDY-4: the same prompts give the same output whoever drafts, but for explained near-ties.

    outputs: by drafter, two or more; logits: the target's along those of the first. Of each pair of outputs the first
    divergence counts.

    >>> rows = [np.array([[0.0, 2.0, 1.5]])]
    >>> swapped = {"draft model": [(1,)], "prompt lookup": [(2,)]}
    >>> drafter_swap_finding("m", swapped, rows, Margin(1e-4, "float32", 10_000), planned=1).violations
    ("drafter 'prompt lookup', prompt 0, position 0: expected token 1 (top-2 margin 0.5), found token 2",)
    """
    refuse_wide(margin)
    (first, usual), *others = outputs.items()
    if not others:
        return not_exposed("GREEDY-4", mode, "a second drafter")
    places, ties = [], 0
    for name, swapped in others:
        if not len(swapped) == len(usual) == len(logits):
            problem = f"{len(usual)} outputs with '{first}', {len(swapped)} with '{name}', {len(logits)} arrays of logits"
            return nonsense("GREEDY-4", mode, problem)
        for prompt, (one, other, rows) in enumerate(zip(usual, swapped, logits)):
            parted = FirstDivergence.of(one, other, rows)
            if parted is not None and parted.explained(margin):
                ties += 1
            elif parted is not None:
                places.append(parted.place(f"drafter '{name}', prompt {prompt}"))
    claim = f"the output is the same with the drafters {', '.join(outputs)}"
    finding = judged("GREEDY-4", mode, places, n=len(usual) * len(others), planned=planned, unit="outputs", claim=claim)
    return replace(finding, summary=finding.summary + (f"; {ties} part at an explained near-tie" if ties else ""))
