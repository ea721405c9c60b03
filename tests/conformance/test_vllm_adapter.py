"""The vLLM adapter's own parts, without vLLM: what it asks for, what it hears, and the process that it asks."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conformance.engines.forked import Forked
from conformance.engines.one_mode import OneMode
from conformance.engines.vllm import drafters
from conformance.engines.vllm.metrics import from_objects, from_text
from conformance.engines.vllm.modes import MIMO, NEEDS_GPU, ROLES, SEEDED, all_modes, server_modes
from conformance.engines.vllm.settings import sampling_arguments
from conformance.engines.vllm.trace import Steps, rounds_of
from conformance.harness import check_modes
from conformance.protocols import Mode, Models, Output, RecordedRound, Request, Unsupported
from conformance.sampling import check_output
from specref.processors import SamplingSettings

PLAIN = SamplingSettings(max_tokens=8)
REQUEST = Request((1, 2), PLAIN, seed=7)


class Letters:
    """A tokenizer of single letters, a = 0; it reads "ab" as one token."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return [26 if part == "ab" else ord(part) - ord("a") for part in (["ab"] if text == "ab" else text)]

    def decode(self, token_ids: list[int]) -> str:
        return "".join(" " if token == 27 else chr(token + ord("a")) for token in token_ids)


def asked(settings: SamplingSettings, mode: Mode | None = None) -> dict[str, Any]:
    return sampling_arguments(mode or Mode("off"), replace(REQUEST, settings=settings), Letters())


def test_every_mode_has_a_control_and_a_name_of_its_own() -> None:
    modes = all_modes(3)
    check_modes(modes)
    assert not modes[0].speculates
    assert modes[0].rule == "target"
    for mode in modes:
        assert any(not one.speculates and one.options == mode.options for one in modes), mode.name
        assert mode.speculation.get("num_speculative_tokens", 3) == 3
        assert (mode.rule == "target") == (not mode.speculates)


def test_every_method_meets_every_option() -> None:
    modes = all_modes(3)
    methods = {mode.name: mode.speculation for mode in modes if mode.speculates and set(mode.options) <= set(MIMO)}
    methods.pop("ngram_gpu")
    options = {(name, value) for mode in modes for name, value in mode.options.items() if name not in NEEDS_GPU}
    for name, speculation in methods.items():
        met = {option for mode in modes if mode.speculation == speculation for option in mode.options.items()}
        assert met >= options, name


def test_hostile_drafts_are_declared_so() -> None:
    hostile = {mode.name: mode.speculation["hostile"] for mode in all_modes(3) if "hostile" in mode.speculation}
    assert {f"custom_class, {name}" for name in ("constant", "random", "ragged")} <= set(hostile)
    assert all(name.startswith("custom_class") and why for name, why in hostile.items())


def test_what_needs_a_gpu_and_what_stands_for_a_folder_is_known() -> None:
    modes = all_modes(3)
    assert {name for mode in modes for name in mode.options if name in NEEDS_GPU} == set(NEEDS_GPU)
    models = {str(mode.speculation["model"]) for mode in modes if "model" in mode.speculation}
    custom = {name for name in models if name.startswith(drafters.__name__)}
    assert models - custom == set(ROLES)
    assert all(hasattr(drafters, name.rpartition(".")[2]) for name in custom)


@pytest.mark.parametrize(
    ("name", "value", "argument", "expected"),
    [
        ("temperature", 0.5, "temperature", 0.5),
        ("top_k", 3, "top_k", 3),
        ("top_p", 0.5, "top_p", 0.5),
        ("min_p", 0.25, "min_p", 0.25),
        ("repetition_penalty", 1.5, "repetition_penalty", 1.5),
        ("presence_penalty", 0.5, "presence_penalty", 0.5),
        ("frequency_penalty", 0.5, "frequency_penalty", 0.5),
        ("logit_bias", {3: -1.0}, "logit_bias", {3: -1.0}),
        ("bad_words", ((2, 3),), "bad_words", ["cd"]),
        ("stop_sequences", ((4,),), "stop", ["e"]),
        ("eos", (5,), "stop_token_ids", [5]),
        ("min_tokens", 2, "min_tokens", 2),
        ("seed", 11, "seed", 11),
    ],
)
def test_each_setting_is_passed_on(name: str, value: object, argument: str, expected: object) -> None:
    plain, changed = asked(PLAIN), asked(replace(PLAIN, **{name: value}))
    assert changed[argument] == expected
    assert plain.get(argument) != expected
    assert {key for key in changed if changed[key] != plain.get(key)} <= {argument, "detokenize"}


def test_all_tokens_are_kept_unless_top_k_is_asked_for() -> None:
    assert asked(PLAIN)["top_k"] == 0


@pytest.mark.parametrize("setting", ["bad_words", "stop_sequences"])
@pytest.mark.parametrize("words", [(0, 1), (27,)])
def test_what_is_no_text_of_its_own_is_refused_by_name(setting: str, words: tuple[int, ...]) -> None:
    with pytest.raises(Unsupported, match=setting):
        asked(replace(PLAIN, **{setting: (words,)}))
    with pytest.raises(Unsupported, match=f"{setting}: .* no tokenizer"):
        sampling_arguments(Mode("off"), replace(REQUEST, settings=replace(PLAIN, **{setting: ((2,),)})), None)


def test_requests_have_their_seeds_in_the_modes_that_say_so() -> None:
    assert "seed" not in asked(PLAIN)
    assert asked(PLAIN, Mode("off, seeds", options=SEEDED))["seed"] == 7


def test_log_probabilities_are_asked_for_in_the_modes_that_give_them() -> None:
    assert "logprobs" not in asked(PLAIN)
    assert asked(PLAIN, Mode("off", logprobs="raw"))["logprobs"] == -1
    assert {mode.logprobs for mode in all_modes(2)} == {"", "raw", "processed"}


def scheduler_of(found: list[Any]) -> Any:
    return SimpleNamespace(update_from_output=lambda scheduled, output: found.append((scheduled, output)) or "as before")


def test_the_scheduler_is_heard_and_not_disturbed() -> None:
    passed: list[Any] = []
    scheduler = scheduler_of(passed)
    steps = Steps(scheduler)
    scheduled = SimpleNamespace(scheduled_spec_decode_tokens={"1-ab": [5, 6]})
    output = SimpleNamespace(req_id_to_index={"0-cd": 0, "1-ab": 1, "2-ef": 2}, sampled_token_ids=[[9], [5, 8], []])
    assert scheduler.update_from_output(scheduled, output) == "as before"
    assert passed == [(scheduled, output)]
    assert steps.take("1") == [((5, 6), (5, 8))]
    assert steps.take("0") == [((), (9,))]
    assert steps.take("2") == steps.take("1") == []


def test_a_place_without_a_draft_is_no_draft() -> None:
    """Of a prompt that the prefix cache holds, vLLM's first step has -1 in the places of drafts."""
    steps = Steps(scheduler := scheduler_of([]))
    scheduled = SimpleNamespace(scheduled_spec_decode_tokens={"0-ab": [-1, -1], "1-cd": [5, -1]})
    scheduler.update_from_output(
        scheduled, SimpleNamespace(req_id_to_index={"0-ab": 0, "1-cd": 1}, sampled_token_ids=[[7], [5, 8]])
    )
    assert rounds_of(steps.take("0"), (7,), "ratio") == (RecordedRound(0, (), 0, (7,), "ratio"),)
    assert steps.take("1") == [((5,), (5, 8))]


@pytest.mark.parametrize("length", range(1, 8))
def test_rounds_add_up_wherever_the_output_ends(length: int) -> None:
    steps = [((), (4,)), ((5, 6), (5, 6, 7)), ((8, 8), (9,)), ((1,), (1, 2))]
    tokens = (4, 5, 6, 7, 9, 1, 2)[:length]
    output = Output(tokens, rounds_of(steps, tokens, "one_hot"))
    check_output(Request((1,), PLAIN, 0), output, vocabulary=10)
    assert Output.from_json(output.to_json()) == output


def test_a_round_counts_what_was_accepted_before_the_end() -> None:
    assert rounds_of([((5, 6), (5, 6, 7))], (5,), "ratio") == (RecordedRound(0, (5, 6), 2, (5,), "ratio"),)


def test_counts_are_read_alike_from_objects_and_from_the_page() -> None:
    def counter(name: str, value: float) -> SimpleNamespace:
        return SimpleNamespace(name=f"vllm:{name}", value=value)

    drafts = [counter("spec_decode_num_drafts", 5), counter("spec_decode_num_draft_tokens", 15)]
    rest = [counter("spec_decode_num_accepted_tokens", 6), counter("generation_tokens", 12), counter("num_preemptions", 3)]
    positions = SimpleNamespace(name="vllm:spec_decode_num_accepted_tokens_per_pos", values=[4, 2])
    page = """# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 5.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 15.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 6.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 4.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 2.0
vllm:spec_decode_num_accepted_tokens_created{engine="0",model_name="m"} 1.7e+09
vllm:generation_tokens_total{engine="0",model_name="m"} 12.0
vllm:request_generation_tokens_bucket{engine="0",le="1.0"} 3.0
"""
    counts = from_objects([*drafts, *rest, positions])
    expected = {"drafts": 5, "draft_tokens": 15, "accepted": 6, "emitted": 12}
    assert counts == expected | {"accepted_per_position.0": 4, "accepted_per_position.1": 2}
    assert from_text(page) == counts


@pytest.mark.parametrize("kind", [drafters.Constant, drafters.Random, drafters.Ragged])
def test_drafters_draft_tokens_and_nothing_within_a_prompt(kind: type[drafters.Drafter]) -> None:
    config = SimpleNamespace(
        speculative_config=SimpleNamespace(num_speculative_tokens=3), model_config=SimpleNamespace(get_vocab_size=lambda: 7)
    )
    rows = 16
    tokens = np.arange(rows * 8).reshape(rows, 8) % 7
    lengths = np.full(rows, 5)
    drafter = kind(config)
    drafted = drafter.propose([[1]] * (rows - 1) + [[]], lengths, tokens)
    assert drafted == kind(config).propose([[1]] * (rows - 1) + [[]], lengths, tokens)
    assert drafted[-1] == []
    assert all(type(token) is int and 0 <= token < 7 for row in drafted for token in row)
    counts = {len(row) for row in drafted[:-1]}
    assert counts == ({0, 1, 2, 3} if kind is drafters.Ragged else {3})


class Moody:
    def __init__(self) -> None:
        self.calls = 0

    def count(self) -> int:
        self.calls += 1
        return self.calls

    def refuse(self) -> None:
        raise Unsupported("min_p: no")

    def fail(self) -> None:
        raise ValueError("wrong\nand more")

    def crash(self) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)

    def leave(self) -> None:
        os._exit(5)


def test_what_another_process_does_is_an_answer() -> None:
    forked = Forked(Moody)
    assert not forked.running
    assert (forked.ask("count"), forked.ask("count")) == (1, 2)
    with pytest.raises(Unsupported, match="min_p: no"):
        forked.ask("refuse")
    with pytest.raises(RuntimeError, match=r"^ValueError: wrong$"):
        forked.ask("fail")
    assert forked.ask("count") == 3
    with pytest.raises(RuntimeError, match="was ended by SIGSEGV"):
        forked.ask("crash")
    assert not forked.running
    assert forked.ask("count") == 1
    with pytest.raises(RuntimeError, match="ended with exit code 5"):
        forked.ask("leave")
    forked.close()
    forked.close()


@pytest.mark.parametrize("afresh", [False, True])
def test_a_process_that_is_closed_ends_by_itself(monkeypatch: pytest.MonkeyPatch, afresh: bool) -> None:
    """However long that takes on a crowded machine; one that waits for an end of its pipe would never end."""
    monkeypatch.setattr("conformance.engines.forked.ENDING", 300.0)
    forked = Forked(Moody, afresh=afresh)
    assert (forked.ask("count"), forked.ask("count")) == (1, 2)
    process = forked._process
    forked.close()
    assert process.exitcode == 0, "and not by force"


class Counting(OneMode):
    """Counts what it is asked in a mode, and forgets it when it is closed."""

    asked = 0

    def run(self, mode: Mode) -> None:
        if self._mode != mode:
            self.close()
        self._mode, self.asked = mode, self.asked + 1

    def counted(self) -> dict[str, float]:
        return {"rounds": self.asked}

    def close(self) -> None:
        self._remember_counts()
        self._mode, self.asked = None, 0


def test_counts_of_a_mode_outlive_what_ran_in_it() -> None:
    engine, one, other = Counting(Models(Path(), Path())), Mode("one"), Mode("other")
    engine.run(one)
    engine.run(one)
    assert (engine.metrics(one), engine.metrics(other)) == ({"rounds": 2}, None)
    engine.run(other)
    assert (engine.metrics(one), engine.metrics(other)) == ({"rounds": 2}, {"rounds": 1})
    assert engine.renew()
    assert engine.metrics(other) == {"rounds": 1}


def test_the_server_is_audited_in_modes_of_the_same_names() -> None:
    offline = {mode.name: mode for mode in all_modes(3)}
    modes = server_modes(3)
    check_modes(modes)
    assert not modes[0].speculates
    for mode in modes:
        assert (mode.speculation, mode.rule) == (offline[mode.name].speculation, offline[mode.name].rule)
        assert not mode.exposes_rounds
        assert ("ACCEPT-3" in mode.promises) == mode.speculates
