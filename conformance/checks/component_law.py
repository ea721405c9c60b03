"""LAW of a verification function alone: handed p, q and drafts of our making, does it emit the target's law (LAW-3), by the
rule that it declares (LAW-4), each row by its own laws (LAW-5)?

LAW-3 goes through a ledger with one false-alarm rate. LAW-4 is deterministic: one step that the declared rule forbids convicts
(and, for chains, the odds of acceptance and of the token after a rejection are bet on). LAW-5 is deterministic too: laws
without chance, where any other token names the row and position whose law was used.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from conformance.checks.component_rounds import STEP_RULES, complete, paths_of, step_log
from conformance.checks.instances import KINDS, ContextLaws, Trial, draw_trial, make_laws
from conformance.checks.law import detectable
from conformance.checks.places import Place, judged, nonsense
from conformance.components import NEEDS_LAWS, ChainVerifier, Ints, TreeVerifier, VerifiedBatch
from conformance.findings import Finding, Statistic, Verdict
from conformance.sampling import request_seed
from conformance.statistics import Evidence, Ledger, ModePlan, Plan
from conformance.statistics.bets import seals
from conformance.statistics.evidence import Floats
from conformance.statistics.one_hot_rows import one_hot_rows, row_mixups
from conformance.statistics.rows import ratio_to_one
from conformance.statistics.step_bets import StepBets, ledger_evidence
from conformance.statistics.step_log import NOTHING, block_violations, support_violations

VOCABULARY = 8
PER_KIND = 8
ROWS = 2048
"""Rows handed over at once."""
CHAINS = ((-1, 0), (-1, 0, 1), (-1, 0, 1, 2))
"""Chains of 1, 2 and 3 drafts: some faults need one, some need more."""
TREES = ((-1, 0, 0, 0), (-1, 0, 0, 1, 1, 2), (-1, 0, 1, 2))
"""Three siblings, two levels with uneven branches, and the tree of width 1."""
PLANNED = 120_000
"""Rows of a component's audit."""
ROUNDING = 1e-5
"""How near in ln(p/q) two probabilities may lie before nothing is forbidden: a verifier may compute in float32."""
BLOCKS = 1024
"""Rows of a batch whose block verification is checked step by step."""


@dataclass(frozen=True)
class Round:
    """One batch: what was asked and what was answered."""

    trial: Trial
    answer: VerifiedBatch


def ask(verifier: ChainVerifier | TreeVerifier, trial: Trial, seed: int) -> VerifiedBatch:
    """Hand one batch to a verifier, a chain as a chain."""
    q = trial.q if verifier.rule in NEEDS_LAWS else None
    N = len(trial.parents)
    uniforms = np.random.default_rng([seed, 1]).random((len(trial), N)) if verifier.takes_uniforms else None
    if verifier.trees:
        parents = np.tile(np.array(trial.parents), (len(trial), 1))
        return verifier.verify(trial.p, q, trial.tokens, parents, uniforms=uniforms, seed=seed)
    return verifier.verify(trial.p, None if q is None else q[:, 1:], trial.tokens[:, 1:], uniforms=uniforms, seed=seed)


def rounds_of(verifier: ChainVerifier | TreeVerifier, rows: int, seed: int, vocabulary: int = VOCABULARY) -> Iterator[Round]:
    """`rows` rows through a verifier, over all kinds of instances and shapes in turn."""
    shapes = TREES if verifier.trees else CHAINS
    rng = np.random.default_rng([seed, 0])
    laws = make_laws(PER_KIND, max(map(len, shapes)), vocabulary, rng)
    done = batch = 0
    while done < rows:
        size = min(ROWS, rows - done)
        shape = shapes[batch % len(shapes)]
        # Rules that read no laws are lossless for any draft: every other batch is the draft model's best tokens.
        greedy = verifier.rule not in NEEDS_LAWS and batch % 2 == 1
        trial = draw_trial(laws, shape, size, rng, distinct=verifier.rule != "traversal", greedy=greedy)
        yield Round(trial, ask(verifier, trial, request_seed(seed, verifier.name, batch)))
        done, batch = done + size, batch + 1


def component_findings(
    name: str,
    rule: str,
    rounds: Iterable[Round],
    *,
    planned: int = PLANNED,
    alpha: float = 1e-6,
    seed: int = 0,
    without: Collection[str] = (),
) -> list[Finding]:
    """LAW-3 and LAW-4 of a verifier, from what it answered. planned: rows. seed: the judge's own. without: laws that are not
    bet on.
    """
    judge = _Judge(name, rule, planned, alpha, seed, without)
    for done in rounds:
        problem = done.answer.nonsense(len(done.trial.parents) - 1, done.trial.laws.vocabulary)
        path, wrong = paths_of(done.trial, done.answer)
        if problem or wrong:
            return [nonsense("LAW-3", name, problem or wrong), nonsense("LAW-4", name, problem or wrong)]
        judge.add(done.trial, done.answer, path)
    return judge.findings()


def plan_of(name: str, rule: str, planned: int, without: Collection[str] = ()) -> ModePlan:
    """The plan of a verifier's audit. planned: rows; each gives two tokens or more. without: see `component_findings`."""
    return ModePlan.standard(
        name,
        planned,
        outside=("acceptance",) if rule == "ratio" else (),
        segments=rule == "ratio",
        batch=False,
        ratio_rule=rule == "ratio",
        exact_p=True,
        contexts=len(KINDS),
        k=3,
        requests_per_shard=max(1, planned // 8),
        bets=seals(without),
    )


class _Judge:
    """Collects rounds; a ledger decides on the law, and every step is held against the declared rule."""

    def __init__(self, name: str, rule: str, planned: int, alpha: float, seed: int, without: Collection[str]) -> None:
        self.name, self.rule, self.planned, self.without = name, rule, planned, without
        self.rng = np.random.default_rng([seed, 2])
        self.rows = self.steps = 0
        self.places: list[Place] = []
        self.sample: list[tuple[Floats, Floats]] = []
        self.bets: StepBets | None = None
        plan = plan_of(name, rule, planned, without)
        self.ledger = Ledger(Plan((plan,), alpha), f"{name} seed {seed}", seed)

    def add(self, trial: Trial, answer: VerifiedBatch, path: Ints) -> None:
        """Judge one batch."""
        whole = complete(trial, answer, path, self.rng)
        self.ledger.observe(self.name, whole.block(self.rows, segments=self.rule == "ratio"))
        if len(self.sample) < 4:
            V = trial.laws.vocabulary
            self.sample.append((whole.p[:64].reshape(-1, V), whole.q[:64].reshape(-1, V)))
        if self.rule in STEP_RULES:
            self._steps(trial, answer, path)
        elif self.rule == "block":
            self._blocks(trial, answer)
        self.rows += len(trial)

    def _steps(self, trial: Trial, answer: VerifiedBatch, path: Ints) -> None:
        log = step_log(trial, answer, path, self.rule)
        found = support_violations(log.steps, log.p, log.q, self.rule, ROUNDING)
        if self.rule != "without_replacement":  # there a zero may be the rounding of a residual; elsewhere it was handed over
            exact = support_violations(log.steps, log.p, log.q, self.rule)
            found |= {what: mask for what, mask in exact.items() if "zero" in what or "certain" in what}
        for what, mask in found.items():
            for step in np.flatnonzero(mask):
                row, node = int(log.rows[step]), int(log.nodes[step])
                place = "draft" if trial.chain else "node"
                x, y = int(log.steps.drafts[step]), int(log.steps.emitted[step])
                where = f"row {self.rows + row} ({KINDS[trial.kinds[row]]}), {place} {node}"
                drafted = f"draft {x} ({log.p[step, x]:.3g}, {log.q[step, x]:.3g})"
                replaced = f"rejected, token {y} ({log.p[step, y]:.3g}, {log.q[step, y]:.3g}) emitted"
                came = "accepted" if log.steps.accepted[step] else replaced if y != NOTHING else "rejected"
                self.places.append(Place(where, f"no {what} ({self.rule})", f"{drafted} {came}; in brackets p, q"))
        self.steps += len(log.steps)
        if self.rule == "ratio":
            self._acceptance(trial, answer)

    def _acceptance(self, trial: Trial, answer: VerifiedBatch) -> None:
        laws = trial.laws
        if self.bets is None:
            V = laws.vocabulary
            self.bets = StepBets(laws.p.reshape(-1, V), laws.q.reshape(-1, V), "ratio", without=self.without)
            self.accounts = self.bets.accounts()
        log = step_log(trial, answer, paths_of(trial, answer)[0], "ratio")
        place = log.nodes - 1
        number = np.ravel_multi_index((trial.instance[log.rows], place, trial.tokens[log.rows, place]), laws.p.shape[:3])
        steps = type(log.steps)(number, log.steps.drafts, log.steps.accepted, log.steps.emitted)
        for check, factors in self.bets.log_factors(steps).items():
            self.accounts[check].add(factors)

    def _blocks(self, trial: Trial, answer: VerifiedBatch) -> None:
        k = len(trial.parents) - 1
        for row in range(min(BLOCKS, len(trial))):
            accepted, emitted = int(answer.accepted[row]), int(answer.next_token[row])
            drafts = trial.tokens[row, 1:].tolist()
            for what in block_violations(trial.p[row], trial.q[row, 1:], drafts, accepted, emitted):
                where = f"row {self.rows + row} ({KINDS[trial.kinds[row]]}), drafts {drafts}"
                self.places.append(Place(where, "what block verification allows", what))
            self.steps += k

    def findings(self) -> list[Finding]:
        """LAW-3 and LAW-4."""
        if self.bets is not None:
            for account in ledger_evidence(self.accounts):
                if account.check == "acceptance":
                    self.ledger.put(self.name, account)
        look = self.ledger.look()
        named = {one.check for one in look.named}
        evidence = self.ledger.evidence(self.name)
        guilty = [one for one in evidence if one.check in named - {"acceptance"} or one.check == "support"]
        verdict = Verdict.VIOLATES if guilty else Verdict.CONFORMS if self.rows >= self.planned else Verdict.INCONCLUSIVE
        law = Finding(
            "LAW-3",
            self.name,
            verdict,
            _summary(verdict, self.rows, self.planned, guilty),
            n=self.rows,
            planned=self.planned,
            unit="rows",
            alpha=self.ledger.plan.alpha,
            log10_evidence=look.log10_e if math.isfinite(look.log10_e) else None,
            statistics=tuple(
                Statistic(e.check, e.n, e.statistic, e.degrees, e.p, _finite(e.log10_e), e.holder, others=e.others)
                for e in evidence
            ),
            detects="" if guilty else self._detects(),
            violations=tuple(self._worst_kinds(evidence)) if guilty else (),
        )
        return [law, self._rule_finding("acceptance" in named)]

    def _detects(self) -> str:
        """The smallest leak and temperature error that these rows would have shown."""
        p, q = (np.concatenate([pair[side] for pair in self.sample]) for side in (0, 1))
        # Rows in which no bet can win (p = q, nothing in common) teach nothing about what was detectable: they count as lost.
        useful = (q * ratio_to_one(q, p)).sum(axis=1) < 1 - 1e-9
        judge, plan = self.ledger.judges[self.name], self.ledger.plan
        return detectable(
            judge.bank, plan[self.name], plan.alpha, (p[useful], q[useful]), int(judge.tokens * useful.mean()) or 1
        )

    def _worst_kinds(self, evidence: Sequence[Evidence]) -> Iterator[str]:
        """Which kinds of instances and which places of a round show it, by the evidence of their own tokens."""
        for one in evidence:
            if one.check not in ("context", "slot"):
                continue
            each = one.detail["log10_e"]
            for place in np.argsort(each)[::-1][:2]:
                if each[place] > 2:
                    where = (
                        f"instances of kind '{KINDS[place]}'" if one.check == "context" else f"position {place} of the round"
                    )
                    yield str(Place(where, "the target's law", f"evidence of 1e{min(each[place], 999):.0f} against it"))

    def _rule_finding(self, odds: bool) -> Finding:
        if self.rule not in (*STEP_RULES, "block"):
            why = f"the rule {self.rule!r} forbids no single step, so only the law of its output was judged"
            return Finding("LAW-4", self.name, Verdict.NOT_EXPOSED, why)
        places = list(self.places)
        if odds:
            worst = max((a for c, a in self.accounts.items() if c != "draft follows q"), key=lambda a: a.log_e)
            found = f"{worst.strongest}, log10 evidence {worst.log_e / math.log(10):.1f}"
            places.append(Place("all steps", "acceptance min(1, p/q), then a fresh draw of the residual", found))
        claim = f"no step did what the rule {self.rule!r} forbids"
        planned = 1 if self.rows >= self.planned else self.steps + 1
        return judged("LAW-4", self.name, places, n=self.steps, planned=planned, unit="steps", claim=claim)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _summary(verdict: Verdict, rows: int, planned: int, guilty: Sequence[Evidence]) -> str:
    if guilty:
        held = f" ({guilty[0].holder})" if guilty[0].holder else ""
        return f"the tokens of {rows} rows do not follow the target's law: the evidence lies with {guilty[0].check}{held}"
    if verdict is Verdict.CONFORMS:
        return f"the tokens of {rows} rows of our making are jointly what the target would sample"
    return f"only {rows} of {planned} rows were judged; no alarm so far"


def mixup_finding(verifier: ChainVerifier | TreeVerifier, *, batches: int = 16, rows: int = 16, seed: int = 0) -> Finding:
    """LAW-5: batches in which every row and position allows one token, and each has its own."""
    k, places = 3, []
    rng = np.random.default_rng([seed, 3])
    for batch in range(batches):
        made = one_hot_rows(rng.integers(0, k + 1, size=rows), k, rows * (k + 1) + 1, rng)
        tokens = np.concatenate([np.zeros((rows, 1), np.int64), made.drafts], axis=1)
        q = np.concatenate([np.zeros_like(made.q[:, :1]), made.q], axis=1)
        unused = ContextLaws(made.p[:1, :, None], q[:1, :, None], np.zeros(1, np.int64))
        trial = Trial(unused, CHAINS[-1], np.arange(k + 1), np.zeros(rows, np.int64), tokens, made.p, q)
        answer = ask(verifier, trial, request_seed(seed, "rows", batch))
        problem = answer.nonsense(k, made.p.shape[-1]) or paths_of(trial, answer)[1]
        if problem:
            return nonsense("LAW-5", verifier.name, problem)
        place, count = np.arange(k + 1), answer.accepted[:, None]
        drafts = np.concatenate([made.drafts, np.full((rows, 1), NOTHING)], axis=1)
        emitted = np.where(place < count, drafts, np.where(place == count, answer.next_token[:, None], NOTHING))
        for what in row_mixups(made, emitted):
            found, _, expected = what.partition(": expected ")
            where, _, came = found.partition(" emitted ")
            places.append(Place(f"batch {batch}, {where}", f"token {expected}", came))
    claim = "every row and position was verified by its own laws"
    n = batches * rows
    return judged("LAW-5", verifier.name, places, n=n, planned=n, unit="rows", claim=claim)
