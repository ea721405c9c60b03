"""The loop around small engines' rounds, with rounds of our own; and, where they are installed, what the engines' give."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from engine_here import python_of, shows_what_was_found

from conformance.checks.accept import counts_finding
from conformance.engines import BY_NAME, REGISTRY, Registered
from conformance.engines.adapting import Counts
from conformance.engines.small.rounds import RoundsEngine, Step
from conformance.findings import Verdict
from conformance.protocols import Mode, Request, Unsupported
from conformance.reproductions import reproductions_of
from specref import pretrained
from specref.processors import SamplingSettings

ENVIRONMENT = "sequential-speculative-decoding"
"""Whose environment they all share."""
GREEDY = """
import json, sys
from conformance.engines import small
from conformance.findings import Verdict
from conformance.protocols import Models, Request
from specref.processors import SamplingSettings
engine = getattr(small, sys.argv[1])(Models(*sys.argv[2:]))
request = Request((1, 60, 70), SamplingSettings(max_tokens=16, temperature=0.0), seed=0)
asked = json.load(sys.stdin)
modes = [mode for mode in engine.modes(3) if mode.name in asked]
print(json.dumps([next(iter(engine.generate(mode, [request]))).tokens for mode in modes]))
"""
RIGHT = {
    "make_sequential": ("seqspecdecod", ["off", "standard", "naive HSD"]),
    "make_lucidrains": ("speculative_decoding", ["off", "draft model", "off, batches"]),
    "make_mini_infer": ("mini_infer", ["off", "draft model", "off, chunked prefill"]),
    "make_flashspec": (
        "flashspec",
        ["off", "draft model", "prompt lookup", "draft model, static cache", "draft model, batches"],
    ),
    "make_deepinfer": ("core_deepinfer", ["off", "draft model", "off, recomputed", "draft model, recomputed"]),
}
"""By what makes an engine: its package, and modes in which it gives the target's best tokens."""
ENGINES = [entry for entry in REGISTRY if entry.factory.startswith("conformance.engines.small:")]
REPRODUCTIONS = [(entry, script) for entry in ENGINES for script in reproductions_of(entry.name)]


class Counting(RoundsEngine):
    """Rounds of three tokens, each one more than the last."""

    def __init__(self) -> None:
        self._counts = Counts()

    def step(self, mode: Mode, ids: torch.Tensor, temperature: float) -> Step:
        last = int(ids[0, -1])
        return Step((last + 1, last + 2, last + 3), accepted=2, drafted=2)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (SamplingSettings(max_tokens=5), (3, 4, 5, 6, 7)),
        (SamplingSettings(max_tokens=9, eos=(4,)), (3, 4)),
        (SamplingSettings(max_tokens=9, stop_sequences=((5, 6),)), (3, 4, 5, 6)),
    ],
)
def test_outputs_end_where_they_should(settings: SamplingSettings, expected: tuple[int, ...]) -> None:
    engine, mode = Counting(), Mode("draft model", {"k": 2}, "ratio")
    (output,) = engine.generate(mode, [Request((1, 2), settings, seed=0)])
    assert output.tokens == expected
    rounds = -(-len(expected) // 3)
    counted = {"rounds": rounds, "drafts": rounds, "draft_tokens": 2 * rounds, "accepted": 2 * rounds}
    assert engine.metrics(mode) == counted
    assert counts_finding(mode.name, counted, [len(output.tokens)], k=2).verdict is Verdict.CONFORMS


@pytest.mark.parametrize("asked", [{"min_p": 0.1}, {"logit_bias": {1: 1.0}}, {"min_tokens": 2, "eos": (1,)}])
def test_what_these_engines_do_not_know_is_refused_by_name(asked: dict[str, object]) -> None:
    with pytest.raises(Unsupported, match=next(iter(asked))):
        list(Counting().generate(Mode("off"), [Request((1, 2), SamplingSettings(max_tokens=4, **asked), seed=0)]))  # type: ignore[arg-type]


@pytest.mark.long
@pytest.mark.parametrize("factory", RIGHT)
def test_at_temperature_0_all_modes_without_a_fault_write_the_same(factory: str) -> None:
    package, modes = RIGHT[factory]
    python = python_with(package)
    asked = [python, "-c", GREEDY, factory, *(str(pretrained.path(name)) for name in ("target", "draft"))]
    done = subprocess.run(asked, input=json.dumps(modes), check=True, capture_output=True, text=True)
    written = json.loads(done.stdout.splitlines()[-1])
    assert written == [written[0]] * len(modes)


@pytest.mark.long
@pytest.mark.parametrize(("entry", "script"), REPRODUCTIONS, ids=[f"{entry.name}-{one.stem}" for entry, one in REPRODUCTIONS])
def test_a_reproduction_shows_what_was_found(entry: Registered, script: Path) -> None:
    assert shows_what_was_found(python_with(entry.package), script).strip()


def python_with(package: str) -> str:
    """The interpreter that has a package; the test is skipped where none does."""
    python = python_of(ENVIRONMENT, package)
    if not replace(BY_NAME[ENVIRONMENT], package=package).importable:
        pytest.skip(f'{package} not installed: not run (nox -s "audit({ENVIRONMENT})" installs it)')
    return python
