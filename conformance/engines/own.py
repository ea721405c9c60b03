"""Our own reference as an engine under audit: the control that every audit is calibrated by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version

import torch

from conformance.components import Component
from conformance.engines.own_components import (
    BATCHED_CHAIN_RULES,
    BATCHED_TREE_RULES,
    CACHES,
    BatchedChain,
    BatchedTree,
)
from conformance.engines.own_kernels import CHAIN_KERNELS, TREE_KERNELS, KernelChain, KernelMasks, KernelTree
from conformance.protocols import Engine, Mode, Models, Output, RecordedRound, Request
from conformance.scoring import LOOKUP
from specref.chance import Chance, SampledChance
from specref.generate import Drafter, GreedyDrafter, ModelDrafter, NoDrafter, generate
from specref.models import LanguageModel, TransformersModel
from specref.processors import Processed
from specref.rules import Rule, chain

RULES: dict[str, Rule] = {
    "ratio": chain.ratio,
    "token_matching": chain.token_matching,
    "one_hot": chain.one_hot_ratio,
    "greedy": chain.greedy,
}


class ReferenceEngine(Engine):
    """`specref.generate` over two language models, one request at a time. Also the base of the planted faults."""

    name = "specref"

    def __init__(self, target: LanguageModel, draft: LanguageModel) -> None:
        self.target, self.draft = target, draft
        try:
            self.version = version("specref")
        except PackageNotFoundError:
            self.version = "source"

    def modes(self, k: int) -> Sequence[Mode]:
        """See `Engine.modes`."""
        model, copy = {"drafter": "model", "k": k}, {"drafter": "copy", "k": k}
        return (
            Mode("off", rule="target", exposes_rounds=True),
            Mode("draft model, ratio", model, "ratio", "draft model", exposes_rounds=True, exact_draft=True),
            Mode("draft model, token matching", model, "token_matching", "draft model", exposes_rounds=True),
            Mode("n-gram, one-hot", copy, "one_hot", "n-gram", exposes_rounds=True),
        )

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Engine.generate`."""
        for request in requests:
            made = generate(
                self.processed(self.target, mode, request),
                self.drafter(mode, request),
                self.rule(mode, request),
                request.prompt,
                k=mode.speculation.get("k", 1),
                stops=request.settings.stops(),
                chance=self.chance(request.seed),
            )
            rounds = (RecordedRound(r.start, r.drafted, r.accepted, r.emitted, mode.rule, r.accepted) for r in made.rounds)
            yield Output(made.tokens, tuple(rounds))

    def processed(self, model: LanguageModel, mode: Mode, request: Request) -> LanguageModel:
        """`model` seen through the request's processors; the same in every mode."""
        processors = request.settings.processors()
        return Processed(model, processors, len(request.prompt)) if processors else model

    def drafter(self, mode: Mode, request: Request) -> Drafter:
        """The drafter of a mode; at temperature 0 the draft model's drafts are greedy too."""
        kind = mode.speculation.get("drafter")
        if kind == "copy":
            return LOOKUP
        if kind == "model":
            draft = self.processed(self.draft, mode, request)
            return GreedyDrafter(draft) if request.settings.temperature == 0 else ModelDrafter(draft)
        return NoDrafter()

    def rule(self, mode: Mode, request: Request) -> Rule:
        """The verification rule of a mode; greedy at temperature 0."""
        return chain.greedy if request.settings.temperature == 0 else RULES.get(mode.rule, chain.token_matching)

    def chance(self, seed: int) -> Chance:
        """The chance that decides one request."""
        return SampledChance(seed)

    def close(self) -> None:
        """See `Engine.close`."""


class OwnPaths(ReferenceEngine):
    """The reference with everything of ours that is fast: batched rules, kernels under the emulator, caches.

    >>> from conformance.controls import instance
    >>> [one.name for one in OwnPaths(*instance()).components()][:3]
    ['batched ratio', 'batched token_matching', 'batched one_hot']
    """

    def components(self) -> Sequence[Component]:
        """See `Engine.components`. Without a C++ compiler the kernels raise Unsupported when they are asked."""
        return (
            *map(BatchedChain, BATCHED_CHAIN_RULES),
            *map(BatchedTree, BATCHED_TREE_RULES),
            *map(KernelChain, CHAIN_KERNELS),
            *map(KernelTree, TREE_KERNELS),
            KernelMasks(),
            *CACHES,
        )


def make(models: Models) -> OwnPaths:
    """The reference over two transformers models."""
    torch.set_num_threads(1)
    return OwnPaths(TransformersModel.load(models.target), TransformersModel.load(models.draft))
