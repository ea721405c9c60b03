"""Faults of what a draft net is fed, and of vocabulary maps: the output is right, acceptance falls."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from conformance.checks.draft import DraftInput
from conformance.controls.control import Control
from conformance.controls.stages.drafts import FeatureNet, draft_net, vocabulary_map
from specref.chance import Chance
from specref.draft import Draft
from specref.models import Tokens


class NoShift(FeatureNet):
    """Beside the feature of a position stands its own token."""

    def fed(self, committed: Tokens) -> list[DraftInput]:
        """See `FeatureNet.fed`."""
        return [DraftInput(one.feature, committed[one.feature], one.position) for one in super().fed(committed)]


class LayerBefore(FeatureNet):
    """Features are taken a layer early: they do not hold what the position itself says."""

    def feature(self, committed: Tokens, i: int) -> Tokens:
        """See `FeatureNet.feature`."""
        return committed[:i]


class ResidualDropped(FeatureNet):
    """The part of a feature that bypasses the layer is dropped: what lies further back is lost."""

    def feature(self, committed: Tokens, i: int) -> Tokens:
        """See `FeatureNet.feature`."""
        return committed[max(0, i - 1) : i + 1]


class ChunkTailFromThePrediction(FeatureNet):
    """At the end of each chunk of 4 the next token is the target's guess, not the prompt's."""

    def fed(self, committed: Tokens) -> list[DraftInput]:
        """See `FeatureNet.fed`."""
        pairs = super().fed(committed)
        for place in range(3, len(pairs), 4):
            guess = int(self.target.next_law(committed[: place + 1]).argmax())
            pairs[place] = DraftInput(place, guess, place)
        return pairs


class SampledTokenMissing(FeatureNet):
    """The first window ends before the token that was just sampled."""

    def fed(self, committed: Tokens) -> list[DraftInput]:
        """See `FeatureNet.fed`."""
        return super().fed(committed)[: -1 if not self.passes else None]


class TargetsFeatureAtEveryStep(FeatureNet):
    """Every step of a round gets the target's last feature."""

    def next_feature(self, guess: Tokens, first: Tokens) -> Tokens:
        """See `FeatureNet.next_feature`."""
        return first


class OnePosition(FeatureNet):
    """One position for the whole window."""

    def fed(self, committed: Tokens) -> list[DraftInput]:
        """See `FeatureNet.fed`."""
        return [DraftInput(one.feature, one.token, len(committed) - 2) for one in super().fed(committed)]


class PositionsShifted(FeatureNet):
    """Embeddings are shifted, positions are not... but where they restart after the prompt."""

    def fed(self, committed: Tokens) -> list[DraftInput]:
        """See `FeatureNet.fed`."""
        return [DraftInput(one.feature, one.token, one.position + (one.position > 3)) for one in super().fed(committed)]


class OnlyTheLastPair(FeatureNet):
    """After a round of several tokens only the last pair is fed, as in plain decoding."""

    def fed(self, committed: Tokens) -> list[DraftInput]:
        """See `FeatureNet.fed`."""
        pairs = super().fed(committed)
        return [*pairs[:2], *pairs[-1:-2:-1], *pairs[-1:]] if self.passes else pairs


class HeadsShifted(FeatureNet):
    """Head i drafts what head i + 1 should: heads are counted from 0 where they are numbered from 1."""

    def drafted(self, text: Tokens, step: int) -> int:
        """See `FeatureNet.drafted`."""
        return super().drafted((*text, super().drafted(text, step)), step)


class SecondStepRepeats(FeatureNet):
    """The state is not carried on: every step after the first drafts from what the first one understood."""

    def drafted(self, text: Tokens, step: int) -> int:
        """See `FeatureNet.drafted`."""
        return super().drafted(text[: len(text) - step] if step else text, step)


def net_fault(id: str, net: type[FeatureNet], requirement: str, *reports: str, kind: str = "draft inputs") -> Control:
    """A fault of what a draft net is fed: the output is right, acceptance falls."""
    return Control(id, kind, "draft net", (requirement,), draft_net(net), reports, None, True)


NETS = (
    net_fault("no shift of the draft's inputs", NoShift, "DRAFT-4", "vllm-project/vllm 14137"),
    net_fault("auxiliary layer k - 1", LayerBefore, "ACCEPT-2", "vllm-project/vllm 43671"),
    net_fault("the residual of a feature dropped", ResidualDropped, "ACCEPT-2", "vllm-project/vllm 14464"),
    net_fault("chunk tail taken from the prediction", ChunkTailFromThePrediction, "DRAFT-4", "sgl-project/sglang 26329"),
    net_fault("first window without the sampled token", SampledTokenMissing, "DRAFT-4", "vllm-project/vllm-metal 721"),
    net_fault(
        "target features fed at every step",
        TargetsFeatureAtEveryStep,
        "ACCEPT-2",
        "vllm-project/vllm 36531",
        "sgl-project/sglang 18564",
    ),
    net_fault("one position for a whole window", OnePosition, "DRAFT-4", "sgl-project/sglang 34154"),
    net_fault("positions off by one from the embeddings", PositionsShifted, "DRAFT-4", "vllm-project/vllm 43820"),
    net_fault("a pair fed twice", OnlyTheLastPair, "DRAFT-4"),
    net_fault("heads shifted by one", HeadsShifted, "ACCEPT-2", kind="published snippets"),
    net_fault("later steps draft from the first step's state", SecondStepRepeats, "ACCEPT-2", "vllm-project/vllm 36531"),
)


class MutatesTheTarget(FeatureNet):
    """The draft step writes into a view of the target's row: the target's best token falls behind."""

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        """See `Drafter.draft`."""
        made = super().draft(context, k, chance)
        row = self.target.next_law(context + made.tokens[:1])
        row[:] = row[::-1].copy()
        return made


VIEWS = (
    Control(
        "a view of the target's row mutated by the draft step",
        "draft inputs",
        "draft net",
        ("GREEDY-1",),
        draft_net(MutatesTheTarget),
        ("vllm-project/vllm 42349",),
    ),
)


# Vocabulary maps.


def map_fault(id: str, make: Callable[..., object], *reports: str) -> Control:
    """A fault of a vocabulary map."""
    return Control(id, "draft inputs", "vocabulary map", ("DRAFT-3",), vocabulary_map(make), reports, None, True)  # type: ignore[arg-type]


MAPS = (
    map_fault("vocabulary map absolute instead of offset", lambda ids: (ids, "offset"), "verl-project/verl-SpeCo 66"),
    map_fault("offsets read as absolute ids", lambda ids: (ids - np.arange(len(ids)), "absolute"), "SafeAILab/EAGLE 222"),
    map_fault(
        "vocabulary map skipped",
        lambda ids: (np.zeros(len(ids), int), "offset"),
        "NVIDIA-NeMo/Automodel 2447",
        "vllm-project/vllm-ascend 15863",
    ),
    map_fault(
        "two entries of the map swapped", lambda ids: (ids[[1, 0, *range(2, len(ids))]], "absolute"), "ggml-org/llama.cpp 3812"
    ),
)

FAULTS = (*NETS, *VIEWS, *MAPS)
