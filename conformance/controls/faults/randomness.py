"""Faults of randomness: each is one override of `Chance.number`, the name of the random number that a decision reads."""

from __future__ import annotations

from typing import Any

from conformance.controls.control import Audit, Control, Exact
from conformance.controls.exact import of_generation, one_token, same_gumbel
from conformance.controls.stages.engines import engine
from conformance.controls.stages.verifiers import chain
from specref.chance import Chance, Number, SampledChance, Slot
from specref.models import TableModel
from specref.race import RacingChance
from specref.rules.block import block
from specref.rules.chain import ratio, token_matching

KIND = "randomness"


class SharedCoin(Chance):
    """The number that rejected a draft also draws from the residual."""

    last: Number = None

    def number(self, slot: Slot) -> Number:
        """See `Chance.number`."""
        if slot[0] == "accept":
            self.last = super().number(slot)
        return self.last if slot[0] == "emit" and self.last is not None else super().number(slot)

    def begin_round(self, start: int) -> None:
        """See `Chance.begin_round`."""
        super().begin_round(start)
        self.last = None


class OneCoinPerChain(Chance):
    """All drafts of a round are tried with one number."""

    def number(self, slot: Slot) -> Number:
        """See `Chance.number`."""
        return super().number(("accept", 0) if slot[0] == "accept" else slot)


class DraftCoinAccepts(Chance):
    """The number that drew a draft also decides whether it is accepted."""

    def number(self, slot: Slot) -> Number:
        """See `Chance.number`."""
        return super().number(("draft", slot[1]) if slot[0] == "accept" else slot)


class DraftNoiseRecovers(Chance):
    """The number that drew the first draft also draws the token that replaces a rejected one."""

    def number(self, slot: Slot) -> Number:
        """See `Chance.number`."""
        return super().number(("draft", 0) if slot[0] == "emit" else slot)


class NoiseReused(Chance):
    """Numbers drawn once, and read again in every round: each round alone is right."""

    def number(self, slot: Slot) -> Number:
        """See `Chance.number`."""
        return slot


class DraftNoiseReused(Chance):
    """Only the drafts' numbers are drawn once for all rounds."""

    def number(self, slot: Slot) -> Number:
        """See `Chance.number`."""
        return slot if slot[0] == "draft" else super().number(slot)


class EmitNoiseReused(Chance):
    """Only the numbers of the rounds' last tokens are drawn once for all rounds."""

    def number(self, slot: Slot) -> Number:
        """See `Chance.number`."""
        return slot if slot[0] == "emit" else super().number(slot)


class AcceptNoiseReused(Chance):
    """Only the acceptance coins are drawn once for all rounds."""

    def number(self, slot: Slot) -> Number:
        """See `Chance.number`."""
        return slot if slot[0] == "accept" else super().number(slot)


class ByAbsolutePosition(Chance):
    """Numbers named by the position of the token: harmless under the ratio rule, but not where a round looked ahead."""

    def number(self, slot: Slot) -> Number:
        """See `Chance.number`."""
        return (slot[0], self.start + int(slot[1])) if len(slot) > 1 else super().number(slot)


class SameForAWindow(Chance):
    """One seed for all tokens of a round."""

    def number(self, slot: Slot) -> Number:
        """See `Chance.number`."""
        return (self.start, "one")


def sampled(fault: type[Any], base: type[SampledChance] = SampledChance) -> type[SampledChance]:
    """The fault with uniforms from a seed."""
    return type(fault.__name__, (fault, base), {})


def fault(id: str, audit: Audit, requirement: str, *reports: str, exact: Exact, sees: bool = False, law: str = "") -> Control:
    """A fault of randomness. replaces: `Chance.number`. law: why LAW-1 may be proven in place of LAW-2, where it may."""
    instead = ("LAW-1",) if law else ()
    return Control(id, KIND, "Chance.number", (requirement,), audit, reports, exact, sees, instead, law)


TWO_TOKENS = (TableModel(2, "target38", memory=1, exact=False), TableModel(2, "draft38", memory=1, exact=False))
"""An instance on which numbers by absolute position bias block verification by .19."""
ONE_NUMBER = (
    "a later draft is tried with a number of which the earlier ones tell something: its token does not follow p given its "
    "history (LAW-1), and in this it depends on the token before (LAW-2); one fact, seen by checks of either requirement after "
    "about as many tokens"
)
REUSED = (
    "a number of this round also decided one of the round before, which is in the history: given it the token does not follow "
    "p (LAW-1), and over rounds such tokens hang together (LAW-2); what the history tells of it shows in single tokens after "
    "about as many as the dependence takes"
)

FAULTS = (
    fault(
        "one coin for acceptance and residual",
        chain(chance=sampled(SharedCoin)),
        "LAW-3",
        "sgl-project/sglang 7207",
        exact=one_token(ratio, chance=SharedCoin),
    ),
    fault(
        "one number for a whole chain",
        engine(chance=sampled(OneCoinPerChain)),
        "LAW-2",
        "NVIDIA/TensorRT-LLM 17599",
        exact=of_generation(OneCoinPerChain, k=2),
        sees=True,
        law=ONE_NUMBER,
    ),
    fault(
        "the draft's number decides its acceptance",
        engine(chance=sampled(DraftCoinAccepts)),
        "LAW-1",
        "vllm-project/vllm 54282",
        exact=one_token(ratio, chance=DraftCoinAccepts),
        sees=True,
    ),
    fault(
        "the draft's number draws the residual",
        engine(chance=sampled(DraftNoiseRecovers)),
        "LAW-2",
        "vllm-project/vllm 54282",
        exact=one_token(ratio, chance=DraftNoiseRecovers),
    ),
    fault(
        "same Gumbel noise for draft and recovery",
        engine(chance=sampled(DraftNoiseRecovers, RacingChance)),
        "LAW-2",
        "vllm-project/vllm 54282",
        "local-inference-lab/vllm 205",
        "vllm-project/vllm-ascend 15739",
        exact=Exact(same_gumbel),
    ),
    fault(
        "noise drawn once and reused every round",
        engine(chance=sampled(NoiseReused)),
        "LAW-2",
        "NVIDIA/TensorRT-LLM 17599",
        exact=of_generation(NoiseReused),
        law=REUSED,
    ),
    fault(
        "the drafts' noise reused every round",
        engine(chance=sampled(DraftNoiseReused)),
        "LAW-2",
        exact=of_generation(DraftNoiseReused),
        law=REUSED,
    ),
    fault(
        "the last token's noise reused every round",
        engine(chance=sampled(EmitNoiseReused)),
        "LAW-2",
        exact=of_generation(EmitNoiseReused),
        law=REUSED,
    ),
    fault(
        "the acceptance coins reused every round",
        engine(chance=sampled(AcceptNoiseReused)),
        "LAW-2",
        exact=of_generation(AcceptNoiseReused),
        law=REUSED,
    ),
    fault(
        "one seed for all tokens of a round",
        engine("token_matching", chance=sampled(SameForAWindow)),
        "LAW-2",
        "PaddlePaddle/FastDeploy 5568",
        exact=of_generation(SameForAWindow, token_matching, k=2),
        law=ONE_NUMBER,
    ),
    fault(
        "block verification with numbers by absolute position",
        engine("block", block, chance=sampled(ByAbsolutePosition), models=TWO_TOKENS, max_tokens=4),
        "LAW-2",
        exact=of_generation(ByAbsolutePosition, block, k=3, tokens=4, V=2, seed="38"),
    ),
)
