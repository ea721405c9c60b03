from __future__ import annotations

import json
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.checks.kv import cache_finding, run, schedules
from conformance.components import Proposal, kind_of
from conformance.engines.own_components import ReferenceChain
from conformance.findings import Verdict
from conformance.harness import EngineProcess, check_modes
from conformance.problems import EngineFailed
from conformance.protocols import RULES, Mode, Models, Output, Request
from conformance.remote import RemoteError
from conformance.requirements import BY_ID
from conformance.sampling import NonsenseOutput, check_outputs
from conformance.wire import receive, send
from specref.processors import ORDER, SamplingSettings

HERE = "tests.conformance.failing_engines"
REQUESTS = [Request((1, 2), SamplingSettings(max_tokens=4), seed) for seed in range(3)]
SPECULATING = Mode("draft model, ratio", {"drafter": "model", "k": 2}, "ratio", "draft model", exposes_rounds=True)


def process(name: str, patience: float = 120.0) -> EngineProcess:
    return EngineProcess(f"{HERE}:{name}", Models(Path(), Path()), patience=patience)


def test_a_healthy_engine_answers_in_order_and_can_be_asked_again() -> None:
    with process("healthy") as engine:
        assert [mode.name for mode in engine.describe(3).modes] == ["off", "draft model, ratio"]
        once = list(engine.generate(SPECULATING, REQUESTS))
        again = list(engine.generate(SPECULATING, REQUESTS))
    assert once == again
    assert [len(output.tokens) for output in once] == [4, 4, 4]
    assert all(output.rounds is not None for output in once)


@pytest.mark.parametrize(("already", "threads"), [(None, 1), (None, 2), ("2", 1)])
def test_an_engine_computes_with_as_many_threads_as_it_is_given_unless_the_environment_says(
    already: str | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if already:
        monkeypatch.setenv("OMP_NUM_THREADS", already)
    with EngineProcess(f"{HERE}:tells_its_threads", Models(Path(), Path()), patience=120.0, threads=threads) as engine:
        assert engine.describe(1).version == f"{already or threads} threads"


PATIENCE = {"hangs": 8.0, "stops_within_a_message": 8.0}
"""Seconds that are waited to their end, once an engine has answered; the others only have to be enough on a busy machine."""


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("raises", "crash", "RuntimeError: the kernel fell over"),
        ("hangs", "hang", "no answer for 8 seconds"),
        ("dies", "crash", "exit code 7"),
        ("refuses", "unsupported", "top_p is not supported"),
        ("lacks_a_gpu", "not run", "they need a GPU"),
        ("fails_to_start", "crash", "OSError: no weights here"),
        ("is_not_there", "crash", "cannot load"),
        ("stops_within_a_message", "crash", "exit code -9"),
        ("fewer", "nonsense", "2 answers to 3 requests"),
    ],
)
def test_every_way_of_failing_is_named(name: str, kind: str, message: str) -> None:
    with process(name, patience=PATIENCE.get(name, 120.0)) as engine:
        with pytest.raises(EngineFailed, match=message) as failed:
            list(engine.generate(SPECULATING, REQUESTS))
        assert failed.value.kind == kind


def test_what_an_engine_imports_and_loads_does_not_count_as_silence() -> None:
    with process("loads_slowly", patience=1.0) as engine:
        assert len(engine.describe(3).modes) == 2


def test_the_silence_of_an_engine_is_told_before_it_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.process.SILENCE", 3.0)
    told: list[tuple[int, float]] = []

    def silent(waited: float, patience: float) -> None:
        told.append((int(waited), patience))

    engine = EngineProcess(f"{HERE}:hangs", Models(Path(), Path()), patience=8.0, silent=silent)
    with engine, pytest.raises(EngineFailed, match="no answer for 8 seconds"):
        list(engine.generate(SPECULATING, REQUESTS))
    assert told[0] >= (3, 8.0)


def test_a_crash_says_where_in_the_users_own_files_it_arose() -> None:
    said = r"the kernel fell over \(failing_engines\.py, line \d+\)$"
    engine = EngineProcess(f"{HERE}:raises", Models(Path(), Path()), patience=120.0)
    with engine, pytest.raises(EngineFailed, match=said):
        list(engine.generate(SPECULATING, REQUESTS))


def test_modes_that_cannot_be_audited_are_nonsense() -> None:
    with process("namesake_modes") as engine, pytest.raises(EngineFailed, match="two modes are called 'off'") as failed:
        engine.describe(3)
    assert failed.value.kind == "nonsense"
    for modes, says in (([], "no mode"), ([Mode(7)], "name of mode 0"), ([Mode("x", [])], "speculation of mode 0")):  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=says):
            check_modes(modes)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"draft_law": "ngram"}, "draft_law of mode 'm' is 'ngram'; give 'draft model', 'n-gram', ''"),
        ({"logprobs": "Raw"}, "logprobs of mode 'm' is 'Raw'; give 'raw', 'processed', ''"),
        ({"promises": {"SEED": "https://x"}}, "mode 'm' promises 'SEED'; what can be promised: LAW-1, .*, GRAMMAR-4"),
        ({"order": ORDER[:-1]}, f"order of mode 'm' is {', '.join(ORDER[:-1])}; name each .*, {ORDER[-1]}$"),
        ({"order": (*ORDER, "top_k")}, "order of mode 'm' is bad_words, .*, top_k; name each of these once: bad_words"),
        ({"order": (*ORDER[:-1], 3)}, "order of mode 'm' is bad_words, .*, 3; name each of these once: bad_words"),
    ],
)
def test_words_of_a_mode_that_no_check_would_read_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=f"^{says}"):
        check_modes([Mode("m", **wrong)])
    promises = dict.fromkeys(BY_ID, "https://x")
    for law, logprobs in (("draft model", "raw"), ("n-gram", "processed"), ("", "")):
        check_modes([Mode("m", draft_law=law, logprobs=logprobs, order=ORDER[::-1], promises=promises)])


def test_a_rule_that_no_check_knows_is_refused_and_a_lossy_one_is_not() -> None:
    with pytest.raises(ValueError, match=r"^rule of mode 'm' is 'rato', which no check knows; give one of 'undeclared', 'tar"):
        check_modes([Mode("m", rule="rato")])
    check_modes([Mode("m", rule="typical acceptance", lossy="by its threshold"), *(Mode(rule, rule=rule) for rule in RULES)])


def test_what_is_no_output_is_named_with_its_mode() -> None:
    engine = EngineProcess(f"{HERE}:gives_lists", Models(Path(), Path()), patience=120.0)
    said = r"generate must yield an Output\(tokens\) for each request, not a list in mode 'draft model, ratio'"
    with engine, pytest.raises(EngineFailed, match=said):
        list(engine.generate(SPECULATING, REQUESTS))


def test_outputs_that_begin_with_their_prompts_are_no_answers() -> None:
    requests = [Request((1, 2, 3, 4, number), SamplingSettings(max_tokens=8), number) for number in range(3)]
    echoes = [Output((*request.prompt, 9)) for request in requests]
    with pytest.raises(NonsenseOutput, match="all 3 outputs begin with their own prompt; give the new tokens alone"):
        check_outputs(requests, echoes, 10)
    check_outputs(requests[:2], echoes[:2], 10)  # so few may by chance
    check_outputs(requests, [*echoes[:2], Output((1, 2, 3, 5, 2))], 10)


def test_last_words_are_not_those_of_an_earlier_run(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("words of another run\n")
    engine = EngineProcess(f"{HERE}:dies", Models(Path(), Path()), patience=120.0, log=log)
    with engine, pytest.raises(EngineFailed) as failed:
        list(engine.generate(SPECULATING, REQUESTS))
    assert "another run" not in str(failed.value)


def test_an_interpreter_that_never_connects_is_a_crash() -> None:
    with EngineProcess("x:y", Models(Path(), Path()), patience=20.0, python="/bin/false") as engine:
        with pytest.raises(EngineFailed, match="exit code 1") as failed:
            engine.describe(1)
        assert failed.value.kind == "crash"


def test_what_an_adapter_runs_may_end_and_be_renewed_while_the_adapter_goes_on() -> None:
    asked = [replace(request, settings=replace(request.settings, top_k=1)) for request in REQUESTS]
    with process("ends") as engine:
        assert engine.renew()  # nothing was started
        engine.describe(3)
        first = engine._worker
        with pytest.raises(EngineFailed, match="the top-k of no row") as failed:
            list(engine.generate(SPECULATING, asked))
        assert failed.value.kind == "crash"
        assert engine.renew()
        assert len(list(engine.generate(SPECULATING, REQUESTS))) == 3
        assert engine._worker is first
    with process("healthy") as engine:
        engine.describe(3)
        assert not engine.renew()


def test_after_a_crash_the_engine_is_started_afresh() -> None:
    with process("dies") as engine:
        with pytest.raises(EngineFailed):
            list(engine.generate(SPECULATING, REQUESTS))
        assert len(list(engine.generate(Mode("off"), REQUESTS))) == 3


def test_requests_and_outputs_survive_the_pipe() -> None:
    settings = SamplingSettings(
        max_tokens=5, top_k=3, logit_bias={4: -1.5}, eos=(2, 7), stop_sequences=((1, 2), (3,)), bad_words=((9,),)
    )
    request = Request((1, 2, 3), settings, 11)
    assert Request.from_json(json.loads(json.dumps(request.to_json()))) == request
    assert Output.from_json(json.loads(json.dumps(Output((1, 2)).to_json()))) == Output((1, 2))


@pytest.mark.parametrize("answer", [{}, {"tokens": "12"}, {"tokens": [1.5]}, {"tokens": [True]}, {"tokens": None}])
def test_nonsense_is_not_an_output(answer: dict[str, object]) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        Output.from_json(answer)


def test_rounds_that_do_not_add_up_are_refused() -> None:
    entry = {"start": 0, "drafted": [1], "accepted": 1, "emitted": [1], "rule": "ratio", "reported_accepted": None}
    with pytest.raises(ValueError, match="do not add up"):
        Output.from_json({"tokens": [1, 2], "rounds": [entry]})


def test_components_answer_through_the_pipe_as_they_do_here() -> None:
    rng = np.random.default_rng(0)
    p, q, drafts = rng.dirichlet(np.ones(4), (5, 3)), rng.dirichlet(np.ones(4), (5, 2)), rng.integers(0, 4, (5, 2))
    uniforms = rng.random((5, 3))
    with process("with_parts") as engine:
        assert engine.metrics(SPECULATING) == {"accepted": 3.0}
        verifier, caches = engine.components()
        assert (kind_of(verifier), kind_of(caches)) == ("verifier", "caches")
        there = verifier.verify(p, q, drafts, uniforms=uniforms, seed=0)
        here = ReferenceChain("ratio").verify(p, q, drafts, uniforms=uniforms, seed=0)
        assert there.accepted.tolist() == here.accepted.tolist()
        assert there.next_token.tolist() == here.next_token.tolist()
        cache, other = caches.make(), caches.make()
        cache.append([5, 6, 7])
        cache.rollback(2)
        other.append([5, 6])
        assert cache.length == 2
        assert cache.visible().tolist() == other.visible().tolist()
        with pytest.raises(RemoteError, match="cannot roll back forward"):
            cache.rollback(9)
        assert cache_finding("m", list(run(caches.make, schedules(0, 0)[1])), planned=1).verdict is Verdict.CONFORMS


@pytest.mark.parametrize(
    "sent",
    [b"7", b"{}", b'{"message": 1, "arrays": [{"dtype": "O", "shape": [1]}]}', b'{"message": 1, "arrays": [{"dtype": "f8"}]}'],
)
def test_what_is_no_message_is_refused(sent: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        receive(iter([sent, b"12345678"]).__next__)


def test_what_is_sent_comes_back_as_it_was() -> None:
    message = {"tokens": (1, 2), "rows": [[1.5, (3,)], []], "proposal": Proposal((4,), np.array([[0.25, 0.75]]))}
    here, there = Pipe()
    send(here, message)
    got = receive(there.recv_bytes)
    assert got["tokens"] == (1, 2)
    assert got["rows"] == [[1.5, (3,)], []]
    assert got["proposal"].tokens == (4,)
    assert got["proposal"].laws.tolist() == [[0.25, 0.75]]


def test_an_array_that_would_fill_the_memory_is_refused() -> None:
    head = json.dumps({"message": {"__array__": 0}, "arrays": [{"dtype": "<f8", "shape": [2**40]}]}).encode()
    with pytest.raises(ValueError, match="is not taken"):
        receive(iter([head]).__next__)
