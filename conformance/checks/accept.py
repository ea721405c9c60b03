"""ACCEPT: the share of accepted drafts is what the declared rule gives, and reported numbers are those of the rounds.

ACCEPT-1 the flags given the drafts, as a martingale: wrong drafts cannot move it. ACCEPT-2 the target drafting for itself at
temperature 0 is accepted throughout, near-ties aside. ACCEPT-3 metrics are recomputed from the traces. Acceptance says nothing
about correctness: none of this replaces LAW.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conformance.checks.places import Place, judged, nonsense, not_exposed, not_promised
from conformance.components import Floats, Ints, Mask
from conformance.findings import Finding, Statistic, Verdict
from conformance.protocols import Output
from conformance.statistics.acceptance import (
    FLOAT32_ETA,
    RATIO_RULES,
    TARGET_RULES,
    AcceptanceBets,
    smallest_detectable_let_through,
)
from conformance.statistics.greedy import Margin
from conformance.statistics.wealth import log_threshold

CHUNK = 4096
SAMPLE = 64


def looked_at(outputs: Sequence[Output], p: Sequence[Floats], q: Sequence[Floats]) -> tuple[Floats, Floats, Ints, Mask]:
    """Every draft that a verifier of chains looked at, as `acceptance_finding` takes them: p, q `[n, V]`, drafts, flags `[n]`.

    p, q: laws `[len(output), V]` along each output. Of a round, places after its first rejection were not looked at, and places
    behind the end of the output are left out, which is settled before their flags are.

    >>> from conformance.protocols import RecordedRound
    >>> one = Output((1, 0), (RecordedRound(0, (1, 1), 1, (1, 0)),))
    >>> looked_at([one], [np.eye(2)], [np.eye(2)])[2:]
    (array([1, 1]), array([ True, False]))
    """
    rows_p, rows_q, drafts, flags = [], [], [], []
    for output, p_rows, q_rows in zip(outputs, p, q, strict=True):
        for one in output.rounds or ():
            for place, draft in enumerate(one.drafted[: one.accepted + 1]):
                at = one.start + place
                if at < len(output.tokens):
                    rows_p.append(p_rows[at])
                    rows_q.append(q_rows[at])
                    drafts.append(draft)
                    flags.append(place < one.accepted)
    return np.array(rows_p), np.array(rows_q), np.array(drafts, dtype=np.int64), np.array(flags, dtype=bool)


def acceptance_finding(
    mode: str,
    rule: str,
    p: Floats,
    q: Floats,
    drafts: Ints,
    accepted: Mask,
    planned: int,
    *,
    alpha: float = 1e-6,
    eta: float = FLOAT32_ETA,
    without: Collection[str] = (),
) -> Finding:
    """ACCEPT-1 of n drafts that the verifier looked at, in order: p, q `[n, V]` where each stood, the draft, and its flag.

    Under the ratio rule a draft x is accepted with probability min(1, p/q), so drafts from q with probability sum(min(p, q));
    under one-hot and matching rules with p(x). eta: error of the laws' logits, more where they were rescored.
    without: laws that are not bet on.
    """
    if rule not in (*RATIO_RULES, *TARGET_RULES):
        return not_promised("ACCEPT-1", mode, f"an acceptance probability (the rule is {rule!r})")
    if not len(p) == len(q) == len(drafts) == len(accepted) or not len(p):
        return nonsense("ACCEPT-1", mode, f"{len(p)}, {len(q)} laws, {len(drafts)} drafts and {len(accepted)} flags do not fit")
    account = None
    predicted = 0.0
    impossible: list[Place] = []
    for start in range(0, len(p), CHUNK):
        part = slice(start, start + CHUNK)
        bets = AcceptanceBets(p[part], q[part], rule, eta, eta, without)
        account = account or bets.verifier()
        rows, x, flags = np.arange(len(p[part])), drafts[part], np.asarray(accepted[part], bool)
        account.add(bets.verifier_log_factors(rows, x, flags))
        rho = bets.rho[rows, x]
        predicted += float(rho.sum())
        for row in np.flatnonzero((rho == 0) & flags)[:5]:
            law = f"p = {p[start + row, x[row]]:.3g}, q = {q[start + row, x[row]]:.3g}"
            impossible.append(Place(f"step {start + row}, draft {x[row]} ({law})", "a rejection", "accepted"))
    assert account is not None
    rate, expected = float(np.mean(accepted)), predicted / len(p)
    places = impossible
    if account.log_e >= log_threshold(alpha):
        found = f"{rate:.4f} ({account.strongest}, log10 evidence {account.log_e / math.log(10):.1f})"
        places = [Place(f"all {len(p)} steps", f"an acceptance of {expected:.4f} of these drafts", found), *impossible]
    verdict = Verdict.VIOLATES if places else Verdict.CONFORMS if len(p) >= planned else Verdict.INCONCLUSIVE
    words = {
        Verdict.VIOLATES: f"acceptance is not that of the rule {rule!r}: {places[0] if places else ''}",
        Verdict.CONFORMS: f"{rate:.4f} of {len(p)} drafts were accepted, and the rule {rule!r} gives {expected:.4f}",
        Verdict.INCONCLUSIVE: f"only {len(p)} of {planned} drafts were judged; no alarm so far",
    }
    sample = slice(0, None, max(1, len(p) // SAMPLE))
    small = AcceptanceBets(p[sample], q[sample], rule, eta, eta, without)
    share = smallest_detectable_let_through(len(p), small, 2 * alpha, 1e-3)
    return Finding(
        "ACCEPT-1",
        mode,
        verdict,
        words[verdict],
        n=len(p),
        planned=planned,
        unit="drafts",
        alpha=alpha,
        log10_evidence=account.log_e / math.log(10),
        statistics=(
            Statistic("accept flags", account.n, log10_evidence=account.log_e / math.log(10), holder=account.strongest),
        ),
        detects=f"a share of {share:.2g} of rejected drafts let through" if math.isfinite(share) else "no share let through",
        violations=tuple(map(str, places[:5])),
    )


def self_draft_finding(
    mode: str, outputs: Sequence[Output], logits: Sequence[npt.NDArray[np.float64]], margin: Margin, planned: int
) -> Finding:
    """ACCEPT-2: with the target as its own draft at temperature 0, a draft is rejected only where two logits nearly tie.

    logits `[len(output), V]` along each output. A rejection by an end of the output is none.

    >>> from conformance.protocols import RecordedRound
    >>> one = Output((1,), (RecordedRound(0, (0,), 0, (1,)),))
    >>> margin = Margin(1e-5, "float32", 10_000)
    >>> self_draft_finding("m", [one], [np.array([[0.0, 2.0]])], margin, planned=1).violations
    ("request 0, round 0, draft 0 (output position 0): expected the target's own token 1 as draft, found draft 0, rejected",)
    """
    if any(output.rounds is None for output in outputs):
        return not_exposed("ACCEPT-2", mode, "its rounds")
    places, n = [], 0
    for number, (output, rows) in enumerate(zip(outputs, logits, strict=True)):
        for index, one in enumerate(output.rounds or ()):
            n += len(one.drafted)
            if one.accepted == len(one.drafted) or len(one.emitted) <= one.accepted:
                continue
            at = one.start + one.accepted
            draft, emitted = one.drafted[one.accepted], one.emitted[one.accepted]
            if not 0 <= draft < rows.shape[1] or abs(rows[at][draft] - rows[at][emitted]) > margin.value:
                where = f"request {number}, round {index}, draft {one.accepted} (output position {at})"
                places.append(Place(where, f"the target's own token {emitted} as draft", f"draft {draft}, rejected"))
    claim = "the target accepts everything that it drafts for itself"
    return judged("ACCEPT-2", mode, places, n=n, planned=planned, unit="drafts", claim=claim)


@dataclass(frozen=True)
class Recomputed:
    """Sums over rounds, from which every reported number follows."""

    rounds: int
    drafts: int
    draft_tokens: int
    accepted: int
    emitted: int
    per_position: tuple[int, ...]

    @classmethod
    def of(cls, outputs: Sequence[Output]) -> Recomputed:
        """From traces. drafts: rounds with a draft. per_position[i]: rounds that accepted more than i drafts."""
        rounds = [one for output in outputs for one in output.rounds or ()]
        longest = max((one.accepted for one in rounds), default=0)
        return cls(
            len(rounds),
            sum(bool(one.drafted) for one in rounds),
            sum(len(one.drafted) for one in rounds),
            sum(one.accepted for one in rounds),
            sum(len(one.emitted) for one in rounds),
            tuple(sum(one.accepted > i for one in rounds) for i in range(longest)),
        )

    def numbers(self) -> dict[str, float]:
        """Every number by the name under which engines report it: sums, ratios of sums, and `accepted_per_position.i`."""
        found: dict[str, float] = {
            "rounds": self.rounds,
            "drafts": self.drafts,
            "draft_tokens": self.draft_tokens,
            "accepted": self.accepted,
            "emitted": self.emitted,
        }
        if self.draft_tokens:
            found["acceptance_rate"] = self.accepted / self.draft_tokens
        if self.rounds:
            found["tokens_per_round"] = self.emitted / self.rounds
        return found | {f"accepted_per_position.{i}": count for i, count in enumerate(self.per_position)}


def metrics_finding(
    mode: str, reported: Mapping[str, float] | None, outputs: Sequence[Output], planned: int, *, tolerance: float = 1e-9
) -> Finding:
    """ACCEPT-3: what the engine reports equals what its traces say; names as in `Recomputed.numbers`.

    `reported_accepted` of every round is checked too; a number that traces say nothing about is left out.

    >>> from conformance.protocols import RecordedRound
    >>> one = Output((1, 2), (RecordedRound(0, (1,), 1, (1, 2)),))
    >>> metrics_finding("m", {"accepted": 2, "acceptance_rate": 1.0}, [one], planned=1).violations
    ('metric accepted: expected 1, found 2',)
    """
    if any(output.rounds is None for output in outputs):
        return not_exposed("ACCEPT-3", mode, "its rounds")
    own = [
        (number, index, one)
        for number, output in enumerate(outputs)
        for index, one in enumerate(output.rounds or ())
        if one.reported_accepted is not None
    ]
    if reported is None and not own:
        return not_exposed("ACCEPT-3", mode, "any metrics")
    places = [
        Place(f"request {number}, round {index}", f"{one.accepted} accepted", f"{one.reported_accepted} reported")
        for number, index, one in own
        if one.reported_accepted != one.accepted
    ]
    true = Recomputed.of(outputs).numbers()
    for name, value in (reported or {}).items():
        wanted = true.get(name, 0.0) if name.startswith("accepted_per_position.") else true.get(name)
        if wanted is not None and not abs(value - wanted) <= tolerance * max(1.0, abs(wanted)):
            places.append(Place(f"metric {name}", f"{wanted:.6g}", f"{value:.6g}"))
    n = int(true["rounds"])
    return judged(
        "ACCEPT-3", mode, places, n=n, planned=planned, unit="rounds", claim="reported metrics are those of the rounds"
    )


def counts_finding(
    mode: str, reported: Mapping[str, float] | None, lengths: Sequence[int], k: int, *, chains: bool = True
) -> Finding:
    """ACCEPT-3 where rounds are not exposed: what the engine reports of these outputs agrees with itself and with their
    lengths.

    lengths: tokens of each output; k: drafts per round. chains: whether drafts are chains of at most k tokens. A round emits
    what it accepted and one token more; an output may begin with one token before any round, and its last round may be cut by
    up to k tokens.

    >>> counts_finding("m", {"drafts": 2, "draft_tokens": 8, "accepted": 9}, [12], k=4).violations
    ('metric accepted: expected at most 8 draft tokens, found 9',)
    """
    if not reported:
        return not_exposed("ACCEPT-3", mode, "any metrics")
    counts = dict(reported)
    places = [Place(f"metric {name}", "0 or more", f"{value:.6g}") for name, value in counts.items() if value < 0]
    drafts, drafted, accepted = (counts.get(name) for name in ("drafts", "draft_tokens", "accepted"))
    if accepted is not None and drafted is not None and accepted > drafted:
        places.append(Place("metric accepted", f"at most {drafted:.6g} draft tokens", f"{accepted:.6g}"))
    if drafted is not None and drafts is not None and not drafts <= drafted <= (k * drafts if chains else math.inf):
        most = f" to {k * drafts:.6g}" if chains else " or more"
        places.append(Place("metric draft_tokens", f"{drafts:.6g}{most} in {drafts:.6g} drafts", f"{drafted:.6g}"))
    by_place = [counts[name] for i in range(k) if (name := f"accepted_per_position.{i}") in counts]
    if accepted is not None and by_place and sum(by_place) != accepted:
        places.append(Place("metric accepted", f"{sum(by_place):.6g}, the sum over positions", f"{accepted:.6g}"))
    if by_place != sorted(by_place, reverse=True):
        places.append(Place("metric accepted_per_position", "falling counts", [f"{count:.6g}" for count in by_place]))
    rounds, tokens = counts.get("rounds", drafts), sum(lengths)
    if rounds is not None and accepted is not None and accepted + rounds > tokens + (k + 1) * len(lengths):
        most = f"at most {tokens + (k + 1) * len(lengths)}, for {tokens} emitted tokens of {len(lengths)} outputs"
        places.append(Place("accepted + rounds", most, f"{accepted + rounds:.6g}"))
    if "rounds" in counts and accepted is not None and accepted + counts["rounds"] < tokens - len(lengths):
        least = f"at least {tokens - len(lengths)}, for {tokens} emitted tokens of {len(lengths)} outputs"
        places.append(Place("accepted + rounds", least, f"{accepted + counts['rounds']:.6g}"))
    if "emitted" in counts and counts["emitted"] != tokens:
        places.append(Place("metric emitted", f"{tokens}, the tokens of the outputs", f"{counts['emitted']:.6g}"))
    claim = "reported metrics agree with each other and with the outputs"
    return judged("ACCEPT-3", mode, places, n=len(lengths), planned=1, unit="outputs", claim=claim)
