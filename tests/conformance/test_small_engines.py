"""The loop around small engines' rounds, with rounds of our own; and, where they are installed, what the engines' give."""

from __future__ import annotations

import json
import subprocess

import pytest
import torch
from engine_here import needs, python_of

from conformance.engines.adapting import Counts
from conformance.engines.small.rounds import RoundsEngine, Step
from conformance.protocols import Mode, Request, Unsupported
from specref import pretrained
from specref.processors import SamplingSettings

ENVIRONMENT = "sequential-speculative-decoding"
GREEDY = """
import json, sys
from conformance.engines.small import make_sequential
from conformance.protocols import Models, Request
from specref.processors import SamplingSettings
engine = make_sequential(Models(*sys.argv[1:]))
request = Request((1, 60, 70), SamplingSettings(max_tokens=16, temperature=0.0), seed=0)
modes = engine.modes(3)[:3]
print(json.dumps([next(iter(engine.generate(mode, [request]))).tokens for mode in modes]))
"""


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
    engine, mode = Counting(), Mode("draft model", {"k": 2})
    (output,) = engine.generate(mode, [Request((1, 2), settings, seed=0)])
    assert output.tokens == expected
    rounds = -(-len(expected) // 3)
    assert engine.metrics(mode) == {"drafts": rounds, "draft_tokens": 2 * rounds, "accepted": 2 * rounds}


@pytest.mark.parametrize("asked", [{"min_p": 0.1}, {"logit_bias": {1: 1.0}}, {"min_tokens": 2, "eos": (1,)}])
def test_what_these_engines_do_not_know_is_refused_by_name(asked: dict[str, object]) -> None:
    with pytest.raises(Unsupported, match=next(iter(asked))):
        list(Counting().generate(Mode("off"), [Request((1, 2), SamplingSettings(max_tokens=4, **asked), seed=0)]))  # type: ignore[arg-type]


@pytest.mark.long
@needs(ENVIRONMENT, "seqspecdecod")
def test_greedy_rounds_give_what_single_tokens_give() -> None:
    models = [str(pretrained.path(name)) for name in ("target", "draft")]
    asked = [python_of(ENVIRONMENT, "seqspecdecod"), "-c", GREEDY, *models]
    done = subprocess.run(asked, check=True, capture_output=True, text=True)
    off, standard, naive = json.loads(done.stdout.splitlines()[-1])
    assert off == standard == naive
