"""An engine over tables that promises everything and offers everything, and its broken variants."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from conformance.components import Component, Floats, Ints, Proposal, TreeInputs, VerifiedBatch
from conformance.controls import VOCABULARY, instance
from conformance.engines.own import ReferenceEngine
from conformance.engines.own_components import ReferenceChain, TokenCache
from conformance.levels import AuditSettings, Level
from conformance.protocols import Mode, Output, Request, Tokens
from conformance.scoring import TableScorer
from conformance.subject import RandomPrompts, Subject
from specref.chance import Chance, SampledChance
from specref.draft import Draft
from specref.generate import Drafter, ModelDrafter
from specref.kv_cache import ContiguousCache
from specref.models import TableModel
from specref.tree import TokenTree

EOS = 3
PROMISED = ("SEED-1", "SEED-2", "ACCEPT-1", "ACCEPT-2", "ACCEPT-3", "LOGPROB-1", "LOGPROB-2")


def subject() -> Subject:
    target, draft = instance()
    texts = [str(token) for token in range(VOCABULARY)]
    prompts = RandomPrompts(VOCABULARY, avoid=(EOS,))
    return Subject(TableScorer(target), TableScorer(draft), prompts, (EOS,), "a", "b", texts)


def settings(level: Level, **changed: object) -> AuditSettings:
    return replace(AuditSettings(level, seed=5, k=2, max_tokens=16), **changed)  # type: ignore[arg-type]


class Constant:
    """Drafts token 0 whatever comes."""

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        return Draft.chosen((0,) * k)


class Promising(ReferenceEngine):
    """Without speculation, with a draft model, and with a hostile draft."""

    def __init__(self, target: TableModel, draft: TableModel) -> None:
        super().__init__(target, draft)
        self.counts = {"rounds": 0.0, "accepted": 0.0, "draft_tokens": 0.0, "emitted": 0.0}

    def modes(self, k: int) -> Sequence[Mode]:
        off, ratio, *_ = super().modes(k)
        hostile = replace(off, name="hostile", rule="one_hot", speculation={"hostile": "constant", "k": k})
        promises = dict.fromkeys(PROMISED, "https://example.org/promise")
        return [replace(mode, promises=promises, logprobs="raw") for mode in (off, ratio, hostile)]

    def drafter(self, mode: Mode, request: Request) -> Drafter:
        return Constant() if mode.speculation.get("hostile") else super().drafter(mode, request)

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        outputs = list(super().generate(mode, self.received(mode, requests)))
        for request, output in zip(requests, self.answered(mode, requests, outputs), strict=True):
            for one in output.rounds or () if mode.speculates else ():
                drafted = {"rounds": 1, "accepted": one.accepted, "draft_tokens": len(one.drafted), "emitted": len(one.emitted)}
                self.counts = {name: count + drafted[name] for name, count in self.counts.items()}
            yield replace(output, logprobs=self.logprobs(request, output))

    def received(self, mode: Mode, requests: Sequence[Request]) -> Sequence[Request]:
        """What of the requests arrives."""
        return requests

    def answered(self, mode: Mode, requests: Sequence[Request], outputs: list[Output]) -> list[Output]:
        """What of the outputs is given back."""
        return outputs

    def logprobs(self, request: Request, output: Output) -> tuple[float, ...]:
        laws = self.target.next_laws(request.prompt, output.tokens)
        return tuple(math.log(law[token]) for law, token in zip(laws, output.tokens))

    def metrics(self, mode: Mode) -> dict[str, float]:
        return dict(self.counts)

    def components(self) -> Sequence[Component]:
        return (ReferenceChain("ratio"), Masks(), Reader(), Caches(), Drafts())


class Masks:
    """Builds the inputs of a tree."""

    name = "masks"

    def build(self, prefix: int, tokens: Sequence[int], parents: Sequence[int]) -> TreeInputs:
        tree = TokenTree(tokens, parents)
        mask = np.concatenate([np.ones((len(tree), prefix), bool), tree.ancestor_mask()], axis=1)
        return TreeInputs(mask, np.array(tree.position_ids(prefix)), np.array(tokens))


class TwoModes(ReferenceEngine):
    """The control, and the draft model under the ratio rule."""

    def modes(self, k: int) -> Sequence[Mode]:
        return super().modes(k)[:2]


class Reader:
    """Reads trees of the table's target."""

    name, vocabulary = "reader", VOCABULARY

    def tree(self, prefix: Tokens, tokens: Tokens, parents: Tokens) -> Floats:
        tree = TokenTree(tokens, parents)
        return np.array([self.alone((*prefix, tokens[0], *tree.spells(node))) for node in range(len(tree))])

    def alone(self, context: Tokens) -> Floats:
        return np.log(np.asarray(instance()[0].next_law(context), dtype=np.float64))


class Caches:
    """The contiguous cache behind token ids."""

    name, trees, tolerance = "contiguous", True, 0.0

    def make(self) -> TokenCache:
        return TokenCache(ContiguousCache())


class Drafts:
    """The draft model with the laws that it draws from."""

    name = "draft model"

    def propose(self, context: Tokens, k: int, seed: int) -> Proposal:
        made = ModelDrafter(instance()[1]).draft(context, k, SampledChance(seed))
        return Proposal(made.tokens, np.array([np.asarray(law, dtype=np.float64) for law in made.laws]))


class BreaksItsPromises(Promising):
    """A fault of every family at once, each in the speculating mode alone and in another kind of request."""

    def received(self, mode: Mode, requests: Sequence[Request]) -> Sequence[Request]:
        if mode.name != "draft model, ratio":
            return requests
        changed = [self.mangled(request) for request in requests]
        heats = {request.settings.temperature for request in requests}
        if len(heats) > 2:  # settings of the row before: only a batch with many settings shows it
            neighbours = [changed[-1], *changed[:-1]]
            changed = [replace(one, settings=other.settings) for one, other in zip(changed, neighbours)]
        return changed

    def mangled(self, request: Request) -> Request:
        """Ignores stop sequences, min tokens and min-p."""
        return replace(request, settings=replace(request.settings, stop_sequences=(), min_tokens=0, min_p=0.0))

    def answered(self, mode: Mode, requests: Sequence[Request], outputs: list[Output]) -> list[Output]:
        mixed = len({request.settings.temperature == 0 for request in requests}) == 2
        if mode.name == "draft model, ratio" and mixed:  # a greedy row among sampled ones
            spoilt = (outputs[0].tokens[0] + 1) % VOCABULARY
            outputs[0] = Output((spoilt,) * request_length(requests[0]), _rounds((spoilt,) * request_length(requests[0])))
        if mode.speculation.get("hostile"):
            outputs = [Output((0,) * len(one.tokens), _rounds((0,) * len(one.tokens))) for one in outputs]
        return outputs

    def logprobs(self, request: Request, output: Output) -> tuple[float, ...]:
        right = super().logprobs(request, output)
        return right[:-1] if request.seed % 2 else (0.0, *right[1:])

    def chance(self, seed: int) -> Chance:
        self.asked = getattr(self, "asked", 0) + 1
        return SampledChance(seed + self.asked)

    def metrics(self, mode: Mode) -> dict[str, float]:
        return {**self.counts, "accepted": self.counts["accepted"] + self.counts["rounds"]}

    def components(self) -> Sequence[Component]:
        return (Crashing("ratio"), AcceptsAll("ratio", name="accepts all"), ByOrder(), Unmasked(), Leftovers(), Overconfident())


def request_length(request: Request) -> int:
    return request.settings.max_tokens


def _rounds(tokens: Tokens) -> tuple:  # type: ignore[type-arg]
    from conformance.protocols import RecordedRound

    return tuple(RecordedRound(place, (), 0, (token,)) for place, token in enumerate(tokens))


class Crashing(ReferenceChain):
    def verify(self, p: Floats, q: Floats | None, drafts: Ints, *, uniforms: Floats | None, seed: int) -> VerifiedBatch:
        raise RuntimeError("no kernel image is available")


class AcceptsAll(ReferenceChain):
    def verify(self, p: Floats, q: Floats | None, drafts: Ints, *, uniforms: Floats | None, seed: int) -> VerifiedBatch:
        return VerifiedBatch(np.full(len(drafts), drafts.shape[1]), p[:, -1].argmax(axis=1))


class ByOrder(Masks):
    """Siblings stand one position after the other."""

    def build(self, prefix: int, tokens: Sequence[int], parents: Sequence[int]) -> TreeInputs:
        return replace(super().build(prefix, tokens, parents), positions=prefix + np.arange(len(tokens)))


class Unmasked(Reader):
    """Reads the tree as if it were a chain."""

    def tree(self, prefix: Tokens, tokens: Tokens, parents: Tokens) -> Floats:
        return super().tree(prefix, tokens, (-1, *range(len(tokens) - 1)))


class Leftovers(Caches):
    """Rolls back to one token too many."""

    def make(self) -> TokenCache:
        class Slow(TokenCache):
            def rollback(self, length: int) -> None:
                super().rollback(min(length + 1, self.length))

        return Slow(ContiguousCache())


class Overconfident(Drafts):
    """Claims a sharper law than it draws from."""

    def propose(self, context: Tokens, k: int, seed: int) -> Proposal:
        honest = super().propose(context, k, seed)
        assert honest.laws is not None
        sharper = honest.laws**2
        return Proposal(honest.tokens, sharper / sharper.sum(axis=1, keepdims=True))
