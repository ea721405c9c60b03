"""A realistic run: engines that conform, violate, fail and were not run, in several modes. The same every time."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from conformance.findings import Curve, EngineReport, Finding, ModeReport, Statistic, Verdict

ALPHA = 1e-6
TOKENS = (
    " the",
    ",",
    "\n",
    " a",
    " of",
    ".",
    " to",
    " in",
    " and",
    "def",
    " self",
    "(",
    ")",
    " =",
    " return",
    ":",
    ' "',
    "é",
    "日本",
    " |x|",
)


def run() -> list[EngineReport]:
    """Four engines, as a run of the judge leaves them."""
    return [conforming(), violating(), failing(), absent()]


def conforming() -> EngineReport:
    modes = (
        mode("speculation off", "target_only", "off", 400_000, k=0),
        mode("draft model, k = 3", "ratio", "draft model", 1_200_000, k=3),
        mode("prompt lookup, k = 5", "one_hot", "n-gram", 820_000, k=5, seed=2),
    )
    findings = [law("LAW-1", m.name, m.tokens_judged, -0.4 + 0.2 * i) for i, m in enumerate(modes)]
    findings += [law("LAW-2", m.name, m.tokens_judged, -0.7) for m in modes[1:]]
    findings += [
        Finding(
            "GREEDY-1",
            m.name,
            Verdict.CONFORMS,
            "Every emitted token is the reference's first choice or within the margin of it.",
            n=40_000,
            planned=40_000,
            detects="any emitted token more than 0.00021 below the reference's first choice at a judged position",
        )
        for m in modes[1:]
    ]
    findings += [
        Finding("SEED-1", m.name, Verdict.NOT_PROMISED, "The documentation does not promise equal output for equal seeds.")
        for m in modes[1:]
    ]
    findings.append(
        Finding(
            "ACCEPT-1",
            "prompt lookup, k = 5",
            Verdict.NOT_EXPOSED,
            "The engine returns no number of accepted drafts per round.",
        )
    )
    findings.append(
        Finding(
            "LAW-1",
            "typical acceptance",
            Verdict.LOSSY_AS_DECLARED,
            "Typical acceptance keeps total variation 0.041 from the target.",
            n=90_000,
            planned=90_000,
            alpha=ALPHA,
            log10_evidence=88.0,
        )
    )
    return report(
        "transformers",
        "5.24.0",
        findings,
        modes,
        log10_evidence=-0.3,
        seconds=361.0,
        notes=("Speculation off was audited first and conforms.",),
    )


def violating() -> EngineReport:
    leak = mode("draft model, k = 3", "ratio", "draft model", 96_000, k=3, leak=0.05, seed=5)
    clean = mode("prompt lookup, k = 5", "one_hot", "n-gram", 820_000, k=5, seed=7)
    findings = [
        Finding(
            "LAW-1",
            leak.name,
            Verdict.VIOLATES,
            "About 5% of the tokens come from the draft instead of the target: after a rejection the draft's own law is used.",
            n=leak.tokens_judged,
            planned=1_200_000,
            alpha=ALPHA,
            log10_evidence=leak.evidence_growth[-1][1],
            statistics=(
                Statistic(
                    "fault bank",
                    leak.tokens_judged,
                    log10_evidence=leak.evidence_growth[-1][1],
                    holder="draft leak 5%",
                    detects="a draft leak of 0.4%",
                ),
                Statistic(
                    "chi-square of tokens", leak.tokens_judged, 1843.2, 61, 3.1e-341, 2.0, detects="total variation 0.012"
                ),
                Statistic(
                    "Kolmogorov-Smirnov, q/p order", leak.tokens_judged, 0.0312, None, 1.7e-81, 2.0, detects="a step of 0.0087"
                ),
            ),
            detects="a draft leak of 0.4% or more",
            reproduction="specref audit vllm --mode 'draft model, k = 3' --level smoke\n# first seen after 21,000 tokens",
        ),
        law("LAW-1", clean.name, clean.tokens_judged, -0.2),
        Finding(
            "GREEDY-1",
            leak.name,
            Verdict.VIOLATES,
            "3 of 40,000 emitted tokens are not the reference's first choice, by up to 1.92 in logits (margin 0.00021).",
            n=40_000,
            planned=40_000,
            detects="any emitted token more than 0.00021 below the reference's first choice",
            violations=tuple(
                f"prompt {p}, token {t}: emitted ' of' (logit 11.2{i}), first choice ' the' (13.1{i})"
                for i, (p, t) in enumerate(((17, 33), (17, 34), (204, 8)))
            ),
            reproduction="specref replay vllm --prompt 17 --greedy --tokens 34",
        ),
        Finding(
            "GREEDY-1",
            clean.name,
            Verdict.INCONCLUSIVE,
            "The time limit came first: 12,400 of 40,000 tokens, no alarm.",
            n=12_400,
            planned=40_000,
        ),
        Finding(
            "LOGPROB-1",
            leak.name,
            Verdict.VIOLATES,
            "Log-probabilities are off by up to 0.31.",
            n=4_000,
            planned=4_000,
            violations=("request 3, token 12: returned -1.21, target -0.90",),
            not_speculation=True,
        ),
        Finding(
            "STOP-1",
            leak.name,
            Verdict.ERROR,
            "The engine's process hung after a stop string inside a draft (no answer within 120 s).",
        ),
    ]
    return report("vllm", "0.11.0", findings, (leak, clean), log10_evidence=leak.evidence_growth[-1][1] - 0.5, seconds=1284.0)


def known(report: EngineReport) -> EngineReport:
    """The report with every violation and every error listed as known."""
    bad = (Verdict.VIOLATES, Verdict.ERROR)
    found = [dataclasses.replace(f, expected="issue 7 of the engine") if f.verdict in bad else f for f in report.findings]
    return dataclasses.replace(report, findings=tuple(found))


def failing() -> EngineReport:
    findings = [
        Finding(requirement, name, Verdict.ERROR, "The engine's process ended with signal 11 while loading the draft.")
        for requirement in ("LAW-1", "LAW-2", "GREEDY-1")
        for name in ("eagle, k = 4", "draft model, k = 3")
    ]
    return report("llama.cpp", "b6402", findings, (), seconds=12.2)


def absent() -> EngineReport:
    findings = [
        Finding(requirement, "medusa", Verdict.NOT_RUN, "No CUDA device on this machine.")
        for requirement in ("LAW-1", "LAW-2", "GREEDY-1")
    ]
    return report("sglang", "0.5.4", findings, (), seconds=0.4)


def law(requirement: str, mode: str, n: int, evidence: float) -> Finding:
    return Finding(
        requirement,
        mode,
        Verdict.CONFORMS,
        "No bet against the target's law gained.",
        n=n,
        planned=n,
        alpha=ALPHA,
        log10_evidence=evidence,
        statistics=(
            Statistic("fault bank", n, log10_evidence=evidence, holder="temperature 1.02", detects="a draft leak of 0.4%"),
            Statistic("omnibus of projections", n, log10_evidence=evidence - 0.6, detects="total variation 0.02 on 64 cells"),
            Statistic("chi-square of tokens", n, 58.31, 61, 0.574, -0.31, detects="total variation 0.009"),
            Statistic("Kolmogorov-Smirnov, three orders", n, 0.000_71, None, 0.597, -0.29, detects="a step of 0.0025"),
        ),
        detects="a draft leak of 0.4%, a temperature off by 1.2% or noise shared between rounds at 3%",
    )


def mode(name: str, rule: str, speculation: str, n: int, *, k: int, leak: float = 0.0, seed: int = 1) -> ModeReport:
    rng = np.random.default_rng(seed)
    expected = rng.dirichlet(np.full(len(TOKENS), 0.6))
    draft = rng.dirichlet(np.full(len(TOKENS), 0.6))
    observed = rng.multinomial(n, (1 - leak) * expected + leak * draft)
    lengths = np.append(0.74 ** np.arange(k) * 0.26, 0.74**k)
    rounds = max(n // (k + 1), 1)
    growth = [(n * (i + 1) // 12, float(leak * n * (i + 1) / 12 / 1000 * 3.1 + rng.normal(-0.25, 0.2))) for i in range(12)]
    return ModeReport(
        name,
        rule,
        speculation,
        n,
        n / 4200,
        curves=tuple(curve(order, n, leak * bend, rng) for order, bend in (("token id", 0.1), ("p", -0.25), ("q/p", 0.6))),
        tokens=TOKENS,
        observed=tuple(map(float, observed)),
        expected=tuple(n * expected),
        accepted_lengths=tuple(map(int, rng.multinomial(rounds, lengths))) if k else (),
        accepted_lengths_theory=tuple(rounds * lengths) if k and rule != "one_hot" else (),
        evidence_growth=tuple(growth),
    )


def curve(order: str, n: int, bend: float, rng: np.random.Generator) -> Curve:
    grid = np.linspace(0, 1, 257)
    bins = rng.multinomial(min(n, 10**9), np.full(256, 1 / 256)) / n
    ecdf = np.append(0.0, np.cumsum(bins)) - 4 * bend * grid * (1 - grid)
    return Curve(order, tuple(grid), tuple(ecdf), math.sqrt(math.log(2 * 3 / 0.01) / (2 * n)))


def report(engine: str, version: str, findings: list[Finding], modes: tuple[ModeReport, ...], **rest: Any) -> EngineReport:
    settings = {"seconds": 361.0, **rest}
    return EngineReport(
        engine=engine,
        version=version,
        level="quick",
        alpha=ALPHA,
        seed=20_250_714,
        started="2025-07-14T09:12:44+00:00",
        target="specref pretrained, 2 layers, V = 256 (fp64)",
        draft="specref pretrained, 1 layer, V = 256",
        findings=tuple(findings),
        modes=modes,
        environment={"python": "3.11.9", "torch": "2.8.0", "device": "cpu"},
        plan={"tokens": 1_200_000, "weights": {"fault bank": 0.6, "omnibus": 0.15}, "looks": 12},
        **settings,
    )
