"""LOUD, SEED, ACCEPT, BATCH, LOGPROB: checks of what an engine gave for its requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from conformance.checks.accept import Recomputed, acceptance_finding, metrics_finding, self_draft_finding
from conformance.checks.batch import bits_finding, company_finding, row_law_finding
from conformance.checks.instances import draw
from conformance.checks.logprob import logprob_findings
from conformance.checks.loud import Probe, Tried, allowed_tokens, declared_finding, loud_findings, probes
from conformance.checks.places import rate_caught
from conformance.checks.seed import independence_finding, repeat_findings
from conformance.components import Logits
from conformance.findings import Finding, Verdict
from conformance.protocols import Mode, Output, RecordedRound, Request, Tokens
from conformance.statistics.greedy import Margin
from specref.processors import SamplingSettings

V = 12
LAWS = np.random.default_rng(3).dirichlet(np.full(V, 0.8), size=V)
LOGITS = np.log(LAWS)
FRESH = int(np.random.default_rng().integers(10**6))
Uniforms = Callable[[int, int], np.ndarray]


def rows_along(prompt: Tokens, output: Tokens, table: np.ndarray) -> np.ndarray:
    return table[[*prompt[-1:], *output[:-1]]][: len(output)]


def sample(
    requests: int, length: int, rng: np.random.Generator, uniforms: Callable[[np.ndarray], np.ndarray] = lambda u: u
) -> tuple[list[Tokens], list[np.ndarray], list[Tokens]]:
    """Outputs of a target whose law depends on the token before, their laws, and the prompts."""
    prompts = [(i // 8 % V,) for i in range(requests)]
    before = np.array([prompt[-1] for prompt in prompts])
    u = uniforms(rng.random((requests, length)))
    columns = []
    for place in range(length):
        before = draw(LAWS[before], u[:, place])
        columns.append(before)
    outputs = [tuple(row) for row in np.stack(columns, axis=1).tolist()]
    return outputs, [rows_along(prompt, output, LAWS) for prompt, output in zip(prompts, outputs)], prompts


# LOUD


def obedient(probe: Probe) -> Tried:
    """Greedy or sampled tokens among those that the probe's settings allow."""
    rng = np.random.default_rng(1)
    requests, outputs, logits = [], [], []
    for number in range(3):
        prompt, output = (number,), []
        for _ in range(probe.settings.max_tokens):
            row = LOGITS[(output or prompt)[-1]]
            allowed = allowed_tokens(probe.settings, prompt, tuple(output), row, 0.0)
            output.append(int(rng.choice(np.flatnonzero(allowed))))
        requests.append(Request(prompt, probe.settings, number))
        outputs.append(Output(tuple(output)))
        logits.append(rows_along(prompt, tuple(output), LOGITS))
    return Tried(probe, requests, outputs, logits)


def ignoring(probe: Probe) -> Tried:
    plain = obedient(Probe(probe.setting, SamplingSettings(max_tokens=probe.settings.max_tokens)))
    return replace(plain, probe=probe)


PROBES = probes(6, banned=LAWS.argmax(axis=1)[:4].tolist(), eos=LAWS.argmax(axis=1).tolist()[:6])
LOUD_FAULTS = {f"{probe.setting} ignored without a word": probe for probe in PROBES}


def test_obeyed_and_refused_settings_conform() -> None:
    obeyed = loud_findings("m", [obedient(probe) for probe in PROBES], margin=1e-9, planned=10)
    assert obeyed.verdict is Verdict.CONFORMS
    least = min(sum(len(output.tokens) for output in obedient(probe).outputs) for probe in PROBES)
    assert obeyed.detects == f"one of 10 settings, where {rate_caught(least):.2g} of the tokens are such as it forbids"
    refused = [Tried(probe, refusal=f"{probe.setting.replace('_', ' ')} is not supported with drafts") for probe in PROBES]
    found = loud_findings("m", refused, margin=0.0, planned=10)
    assert found.verdict is Verdict.CONFORMS
    assert found.detects == "a refusal that does not name its setting, of 10"


@pytest.mark.parametrize("name", LOUD_FAULTS)
def test_an_ignored_setting_is_named(name: str) -> None:
    found = loud_findings("m", [ignoring(LOUD_FAULTS[name])], margin=1e-9, planned=1)
    assert found.verdict is Verdict.VIOLATES
    assert found.violations[0].startswith(f"{LOUD_FAULTS[name].setting}, request ")


@pytest.mark.parametrize("seed", range(3))
def test_a_setting_that_is_obeyed_but_now_and_then_is_not_called_ignored(seed: int) -> None:
    """A leak of one draft in ten breaks a temperature of 0 too, in one token of ten and not in as many as sampling would."""
    temperature, rng = PROBES[0], np.random.default_rng(seed)
    requests = [Request((number % V,), temperature.settings, number) for number in range(30)]
    outputs = []
    for request in requests:
        output: list[int] = []
        for _ in range(6):
            row = LOGITS[(output or request.prompt)[-1]]
            output.append(int(row.argmin() if rng.random() < 0.1 else row.argmax()))
        outputs.append(Output(tuple(output)))
    logits = [rows_along(request.prompt, output.tokens, LOGITS) for request, output in zip(requests, outputs)]
    found = loud_findings("m", [Tried(temperature, requests, outputs, logits)], margin=1e-9, planned=1)
    assert "so it is obeyed, and another fault breaks in" in found.violations[0]
    ignored = loud_findings("m", [ignoring(temperature)], margin=1e-9, planned=1)
    assert "were the setting ignored, about" in ignored.violations[0]
    assert "obeyed" not in ignored.violations[0]


def test_a_refusal_must_name_the_setting() -> None:
    found = loud_findings("m", [Tried(PROBES[1], refusal="error 7")], margin=0.0, planned=1)
    assert found.violations == ("top_k: expected a refusal that names the setting, found 'error 7'",)
    assert loud_findings("m", [Tried(PROBES[1])], margin=0.0, planned=1).verdict is Verdict.ERROR


MODE_FAULTS = {"a lossy rule passes silently": Mode("m", {"k": 3}, rule="typical")}


@pytest.mark.parametrize("name", MODE_FAULTS)
def test_a_lossy_mode_is_declared(name: str) -> None:
    assert declared_finding(Mode("m", {"k": 3}, rule="ratio")).verdict is Verdict.CONFORMS
    assert declared_finding(Mode("m", {"k": 3}, rule="typical", lossy="by its threshold")).verdict is Verdict.CONFORMS
    assert declared_finding(MODE_FAULTS[name]).verdict is Verdict.VIOLATES


# SEED

OUTPUTS = [Output((1, 2, 3)), Output((4, 5))]
SEED_FAULTS = {
    "per-request seed not honoured": ([Output((1, 2, 9)), Output((4, 5))], OUTPUTS, "SEED-1"),
    "the seed depends on batch mates": (OUTPUTS, [Output((1, 2, 3)), Output((4,))], "SEED-2"),
}


@pytest.mark.parametrize("name", SEED_FAULTS)
def test_an_output_that_does_not_come_again_is_named(name: str) -> None:
    again, company, requirement = SEED_FAULTS[name]
    found = {one.requirement: one for one in repeat_findings("m", OUTPUTS, again, company, 2, promised=True)}
    assert {key for key, one in found.items() if one.verdict is Verdict.VIOLATES} == {requirement}
    assert "position" in found[requirement].violations[0]


def test_equal_seeds_are_judged_only_if_promised() -> None:
    assert {one.verdict for one in repeat_findings("m", OUTPUTS, OUTPUTS, OUTPUTS, 2, promised=True)} == {Verdict.CONFORMS}
    assert {one.verdict for one in repeat_findings("m", OUTPUTS, [], [], 2, promised=False)} == {Verdict.NOT_PROMISED}
    assert {one.verdict for one in repeat_findings("m", OUTPUTS, [], [], 2, promised=True)} == {Verdict.ERROR}


def independence(uniforms: Callable[[np.ndarray], np.ndarray], seed: int = 9, requests: int = 1600) -> Finding:
    outputs, laws, prompts = sample(requests, 8, np.random.default_rng(seed), uniforms)
    return independence_finding("m", outputs, laws, 8 * 1600, prompts=prompts, rows=8, seed=seed)


def shared_by_rows(u: np.ndarray) -> np.ndarray:
    """The requests of a batch of 8 read the same numbers at the first place of each round of 4."""
    u = u.copy()
    u[:, ::4] = np.repeat(u[::8, ::4], 8, axis=0)
    return u


def same_for_the_tokens_of_a_window(u: np.ndarray) -> np.ndarray:
    return np.repeat(u[:, ::4], 4, axis=1)


def constant_state(u: np.ndarray) -> np.ndarray:
    """A request in a hundred starts from the same generator state as the one before it."""
    u = u.copy()
    u[100::100] = u[99:-1:100]
    return u


INDEPENDENCE_FAULTS = {
    "uniforms shared across rows": shared_by_rows,
    "same seed for the tokens of a window": same_for_the_tokens_of_a_window,
    "generator state constant per request": constant_state,
}


def test_independent_requests_conform() -> None:
    found = independence(lambda u: u, FRESH)
    assert found.verdict is Verdict.CONFORMS, FRESH
    assert "correlation of about 0." in found.detects
    assert independence(lambda u: u, requests=80).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("name", INDEPENDENCE_FAULTS)
def test_shared_numbers_are_killed(name: str) -> None:
    found = independence(INDEPENDENCE_FAULTS[name])
    assert found.verdict is Verdict.VIOLATES, found.log10_evidence
    assert "expected independent" in found.violations[0]


# ACCEPT


def steps(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    p, q = LAWS[rng.integers(V, size=n)], LAWS[::-1][rng.integers(V, size=n)]
    return p, q, draw(q, rng.random(n)), rng.random(n)


def acceptance(flag: Callable[..., np.ndarray], rule: str = "ratio", n: int = 6000, seed: int = 4) -> Finding:
    p, q, x, u = steps(n, np.random.default_rng(seed))
    rows = np.arange(n)
    return acceptance_finding("m", rule, p, q, x, flag(p[rows, x], q[rows, x], u), 6000)


ACCEPT_FAULTS = {
    "rejected drafts let through": lambda p, q, u: (u * q < p) | (u > 0.85),
    "epsilon in the ratio": lambda p, q, u: u * (q + 0.04) < p,
    "target at another temperature in the ratio": lambda p, q, u: u * q < p**1.3,
}


@pytest.mark.parametrize(("rule", "flag"), [("ratio", lambda p, q, u: u * q < p), ("one_hot", lambda p, q, u: u < p)])
def test_acceptance_by_the_declared_rule_conforms(rule: str, flag: Callable[..., np.ndarray]) -> None:
    found = acceptance(flag, rule, seed=FRESH)
    assert found.verdict is Verdict.CONFORMS, (FRESH, found.summary)
    assert "let through" in found.detects


@pytest.mark.parametrize("name", ACCEPT_FAULTS)
def test_other_acceptance_is_killed(name: str) -> None:
    found = acceptance(ACCEPT_FAULTS[name])
    assert found.verdict is Verdict.VIOLATES, found.log10_evidence
    assert "expected an acceptance of" in found.violations[0]


def test_acceptance_of_an_undeclared_rule_is_not_judged() -> None:
    assert acceptance(lambda p, q, u: u < 1, "undeclared", n=5).verdict is Verdict.NOT_PROMISED
    assert acceptance(lambda p, q, u: u[:2] < 1, n=5).verdict is Verdict.ERROR


ROUNDS = (
    RecordedRound(0, (1, 2), 2, (1, 2, 3), "greedy", 2),
    RecordedRound(3, (4, 5), 1, (4, 6), "greedy", 1),
    RecordedRound(5, (), 0, (7,), "greedy", 0),
)
TRACE = [Output((1, 2, 3, 4, 6, 7), ROUNDS)]
TRUE = Recomputed.of(TRACE).numbers()

METRIC_FAULTS = {
    "bonus counted as accepted": TRUE | {"accepted": 5.0},
    "rounds without a draft counted as drafts": TRUE | {"drafts": 3.0},
    "mean of ratios instead of ratio of sums": TRUE | {"acceptance_rate": (1 + 0.5 + 0) / 3},
    "emitted tokens counted before the trim": TRUE | {"emitted": 8.0},
    "flags summed past the first rejection": TRUE | {"accepted_per_position.1": 2.0},
}


def test_metrics_of_the_traces_conform() -> None:
    assert TRUE["acceptance_rate"] == 0.75
    assert metrics_finding("m", TRUE, TRACE, 3).verdict is Verdict.CONFORMS
    assert metrics_finding("m", {}, [Output((1,))], 1).verdict is Verdict.NOT_EXPOSED


@pytest.mark.parametrize("name", METRIC_FAULTS)
def test_wrong_metrics_are_named(name: str) -> None:
    found = metrics_finding("m", METRIC_FAULTS[name], TRACE, 3)
    assert found.verdict is Verdict.VIOLATES
    assert found.violations[0].startswith("metric ")


def test_the_counts_of_single_rounds_are_checked() -> None:
    wrong = [Output(TRACE[0].tokens, (replace(ROUNDS[0], reported_accepted=3), *ROUNDS[1:]))]
    assert metrics_finding("m", None, wrong, 3).violations == ("request 0, round 0: expected 2 accepted, found 3 reported",)


SELF_LOGITS = [np.eye(8)[list(TRACE[0].tokens)] * 5.0]
SELF_FAULTS = {"the draft's first window is one token behind": SELF_LOGITS}
MARGIN = Margin(1e-5, "float32", 10_000)


@pytest.mark.parametrize("name", SELF_FAULTS)
def test_a_target_accepts_its_own_drafts(name: str) -> None:
    tied = [SELF_LOGITS[0].copy()]
    tied[0][4, 5] = 5.0 + 1e-6
    assert self_draft_finding("m", TRACE, tied, MARGIN, 4).verdict is Verdict.CONFORMS
    found = self_draft_finding("m", TRACE, SELF_FAULTS[name], MARGIN, 4)
    assert found.violations == (
        "request 0, round 1, draft 1 (output position 4): expected the target's own token 6 as draft, found draft 5, rejected",
    )
    assert self_draft_finding("m", [Output((1,))], SELF_LOGITS, MARGIN, 4).verdict is Verdict.NOT_EXPOSED


# BATCH


def rows_finding(wrong_row: int | None, law: Callable[[np.ndarray], np.ndarray], seed: int = 2) -> Finding:
    """Batches of 4 rows, one of which may follow another law."""
    rng = np.random.default_rng(seed)
    requests, length = 1200, 8
    rows = np.arange(requests) % 4
    before = np.zeros(requests, np.int64)
    columns = []
    for _ in range(length):
        table = np.where((rows == wrong_row)[:, None], law(LAWS[before]), LAWS[before])
        before = draw(table, rng.random(requests))
        columns.append(before)
    outputs = [tuple(row) for row in np.stack(columns, axis=1).tolist()]
    laws = [(rows_along((0,), output, LAWS), rows_along((0,), output, np.roll(LAWS, 1, axis=0))) for output in outputs]
    return row_law_finding("m", outputs, laws, rows, requests * length, seed=seed)


def settings_of_request_0(law: np.ndarray) -> np.ndarray:
    """Another request's temperature."""
    sharper = law**2
    return np.asarray(sharper / sharper.sum(axis=1, keepdims=True))


def draft_rows_of_another(law: np.ndarray) -> np.ndarray:
    return 0.7 * law + 0.3 * np.roll(law, 1, axis=0)


ROW_FAULTS = {
    "settings indexed by token row": settings_of_request_0,
    "laws of another row in part of the rounds": draft_rows_of_another,
}


def test_rows_that_follow_their_laws_conform() -> None:
    found = rows_finding(None, lambda law: law, FRESH)
    assert found.verdict is Verdict.CONFORMS, FRESH
    assert found.detects.startswith("in one row: a leak")


@pytest.mark.parametrize("name", ROW_FAULTS)
def test_a_row_that_follows_another_law_is_named(name: str) -> None:
    found = rows_finding(2, ROW_FAULTS[name])
    assert found.verdict is Verdict.VIOLATES
    assert found.violations[0].startswith("batch row 2: expected the target's law")


COMPANY_FAULTS: dict[str, dict[str, list[Tokens]]] = {
    "greedy and sampled rows mixed": {"batch of 2": [(1, 2), (3, 5)]},
    "a placeholder surviving a skipped round": {"batch of 2": [(1, 2), (3, 4)], "skipped rounds": [(1, 7), (3, 4)]},
    "pre-emption between draft and verification": {"pre-empted": [(1, 2), (3,)]},
}


@pytest.mark.parametrize("name", COMPANY_FAULTS)
def test_an_output_changed_by_its_company_is_named(name: str) -> None:
    alone: list[Tokens] = [(1, 2), (3, 4)]
    found = company_finding("m", alone, COMPANY_FAULTS[name], 2)
    assert found.verdict is Verdict.VIOLATES
    assert found.violations[0].startswith("'")
    assert company_finding("m", alone, dict.fromkeys(COMPANY_FAULTS[name], alone), 2).verdict is Verdict.CONFORMS


def one_bit(logits: np.ndarray) -> np.ndarray:
    return np.where(np.arange(9)[:, None] == 3, np.nextafter(logits, 9), logits)


BIT_FAULTS = {"one bit of a logit changed by the batch": one_bit}


@pytest.mark.parametrize("name", BIT_FAULTS)
def test_bits_are_judged_only_if_promised(name: str) -> None:
    alone = np.random.default_rng(0).normal(size=(9, 5))
    other = BIT_FAULTS[name](alone)
    assert bits_finding("m", Logits(alone.copy(), alone), 9, promised=True).verdict is Verdict.CONFORMS
    assert bits_finding("m", Logits(other, alone), 9, promised=True).verdict is Verdict.VIOLATES
    assert bits_finding("m", Logits(other, alone), 9, promised=False).verdict is Verdict.NOT_PROMISED


# LOGPROB


def test_values_are_judged_where_each_token_has_one() -> None:
    """Where one is left out, those behind it stand beside the wrong tokens: that is no fault of theirs."""
    left_out = [*RIGHT, [*RIGHT[0][:2], *RIGHT[0][3:]]]
    found = logprob_findings("m", LOGPROB_OUTPUTS * 2, left_out, LOGPROB_ROWS * 2, 12, promised=True, tolerance=1e-6)
    assert [one.verdict for one in found] == [Verdict.CONFORMS, Verdict.VIOLATES]
    assert (found[0].n, found[1].n) == (6, 2)
    found = logprob_findings("m", LOGPROB_OUTPUTS, left_out[1:], LOGPROB_ROWS, 6, promised=True, tolerance=1e-6)
    assert [one.verdict for one in found] == [Verdict.INCONCLUSIVE, Verdict.VIOLATES]


LOGPROB_OUTPUTS = [Output(TRACE[0].tokens, ROUNDS)]
LOGPROB_ROWS = [np.log(np.random.default_rng(1).dirichlet(np.ones(8), size=6))]
RIGHT = [[float(LOGPROB_ROWS[0][i, token]) for i, token in enumerate(TRACE[0].tokens)]]
SHIFTED = [[float(LOGPROB_ROWS[0][max(0, i - 1), token]) for i, token in enumerate(TRACE[0].tokens)]]

LOGPROB_FAULTS: dict[str, tuple[list[list[float]], str, str]] = {
    "log-probability of a one-hot": ([[0.0, 0.0, *RIGHT[0][2:]]], "LOGPROB-1", "certainty"),
    "log-probabilities off by a row": (SHIFTED, "LOGPROB-1", "this token's at position 0"),
    "the bonus has no log-probability": ([RIGHT[0][:-1]], "LOGPROB-2", "found 5"),
}


@pytest.mark.parametrize("name", LOGPROB_FAULTS)
def test_wrong_log_probabilities_are_named(name: str) -> None:
    given, requirement, words = LOGPROB_FAULTS[name]
    findings = logprob_findings("m", LOGPROB_OUTPUTS, given, LOGPROB_ROWS, 6, promised=True, tolerance=1e-6)
    found = {one.requirement: one for one in findings}[requirement]
    assert found.verdict is Verdict.VIOLATES
    assert words in found.violations[0]


def with_rows(rows: np.ndarray) -> list[Output]:
    return [replace(one, rows=tuple(map(tuple, rows))) for one in LOGPROB_OUTPUTS]


def test_log_probabilities_of_the_whole_vocabulary_are_judged_where_they_are_given() -> None:
    """Of some tokens; a token that nothing allows has none, and a row that is right at its token alone is wrong."""
    true = LOGPROB_ROWS[0].copy()
    emitted = TRACE[0].tokens
    other = (emitted[1] + 1) % 8
    true[0, (emitted[0] + 1) % 8] = -np.inf

    def law(given: np.ndarray) -> Finding:
        return logprob_findings("m", with_rows(given), RIGHT, [true], 6, promised=True, tolerance=1e-6)[0]

    right = law(true[:3])
    assert right.verdict is Verdict.CONFORMS
    assert "those of the whole vocabulary at 3 tokens too" in right.summary
    for value in (0.0, -np.inf, np.nan):
        wrong = true[:3].copy()
        wrong[1, other] = value
        found = law(wrong)
        assert found.verdict is Verdict.VIOLATES
        assert f"position 1, the whole vocabulary (1 of 8 tokens are wrong; the first is {other})" in found.violations[0]
    assert "expected 8 log-probabilities, found 7" in law(true[:3, :7]).violations[0]


def test_rows_come_through_the_pipe() -> None:
    output = Output((1, 2), None, (-0.5, -1.0), ((-0.5, -np.inf), (-0.1, -2.0)))
    assert Output.from_json(output.to_json()) == output


def test_log_probabilities_are_judged_if_promised() -> None:
    def verdicts(given: list[list[float]] | None, promised: bool) -> set[Verdict]:
        found = logprob_findings("m", LOGPROB_OUTPUTS, given, LOGPROB_ROWS, 6, promised=promised, tolerance=1e-6)
        return {one.verdict for one in found}

    assert verdicts(RIGHT, True) == {Verdict.CONFORMS}
    assert verdicts(None, True) == {Verdict.NOT_EXPOSED}
    assert verdicts(None, False) == {Verdict.NOT_PROMISED}
