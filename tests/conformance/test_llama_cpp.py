"""The adapter to llama.cpp: the requests that it sends, the files it writes, and (where it is installed) what it answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from engine_here import ROOT, needs, python_of, short_audit, shows_what_was_found

from conformance.engines.llama_cpp.modes import LOGPROBS, all_modes
from conformance.engines.llama_cpp.settings import SAMPLERS, completion_body
from conformance.findings import Verdict
from conformance.harness import EngineInfo, EngineProcess, check_modes
from conformance.levels import Level
from conformance.protocols import Mode, Request, Unsupported
from specref.processors import SamplingSettings

NAME, PACKAGE = "llama-cpp", "xllamacpp"
PLAIN = SamplingSettings(max_tokens=8)
LETTERS = [b"a", b"b", b"\x80", b"ab"]
REPRODUCTIONS = sorted((ROOT / "reports" / "llama-cpp-2026.10.11549" / "reproductions").glob("*.py"))


def body(**asked: object) -> dict[str, object]:
    request = Request((1, 2), replace(PLAIN, **asked), seed=1)  # type: ignore[arg-type]
    return completion_body(Mode("off"), request, LETTERS)


def test_every_mode_has_a_control_and_a_name_of_its_own() -> None:
    modes = all_modes(3)
    check_modes(modes)
    assert not modes[0].speculates
    for mode in modes:
        assert any(not one.speculates and one.options == mode.options for one in modes), mode.name
        assert (mode.rule == "target") == (not mode.speculates)
        assert bool(mode.logprobs) == (mode.options == LOGPROBS)


@pytest.mark.parametrize(
    "asked",
    [
        {"presence_penalty": 1.0},
        {"frequency_penalty": 1.0},
        {"min_tokens": 2, "eos": (2,)},
        {"bad_words": ((0, 1),)},
        {"stop_sequences": ((2,),)},
        {"stop_sequences": ((3,),)},
    ],
)
def test_what_llama_cpp_does_not_know_is_refused_by_name(asked: dict[str, object]) -> None:
    with pytest.raises(Unsupported, match=next(iter(asked))):
        body(**asked)


def test_every_sampler_that_truncates_by_default_is_told_not_to() -> None:
    sent = body()
    assert sent["samplers"] == list(SAMPLERS)
    assert (sent["top_k"], sent["top_p"], sent["min_p"], sent["repeat_penalty"]) == (0, 1.0, 0.0, 1.0)


def test_bans_and_stops_are_spelled() -> None:
    sent = body(bad_words=((1,),), logit_bias={0: 0.5}, stop_sequences=((0, 1),))
    assert sent["logit_bias"] == [[0, 0.5], [1, False]]
    assert sent["stop"] == ["ab"]


class Some(EngineProcess):
    """The modes that are told apart by what is drafted, and that of log-probabilities."""

    def describe(self, k: int) -> EngineInfo:
        info = super().describe(k)
        chosen = ("off", "draft model", "draft model, probabilistic", "ngram-simple")
        return replace(info, modes=tuple(mode for mode in info.modes if mode.name in chosen))


@pytest.mark.long
@needs(NAME, PACKAGE)
def test_a_short_audit_conforms() -> None:
    level = Level("test", 1_500, 8, "for this test", requests=2)
    report = short_audit(NAME, PACKAGE, "conformance.engines.llama_cpp:make", level, Some)
    bad = [one for one in report.findings if one.verdict in (Verdict.ERROR, Verdict.VIOLATES, Verdict.INCONCLUSIVE)]
    assert not bad, [f"{one.requirement} {one.mode}: {one.summary}" for one in bad]


@pytest.mark.long
@needs(NAME, PACKAGE)
@pytest.mark.parametrize("script", REPRODUCTIONS, ids=lambda script: script.stem)
def test_a_reproduction_shows_what_was_found(script: Path) -> None:
    shows_what_was_found(python_of(NAME, PACKAGE), script)
