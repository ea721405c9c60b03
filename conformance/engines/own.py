"""Our own reference as an engine under audit: the control that every audit is calibrated by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version

import torch

from conformance.protocols import Mode, Models, Output, RecordedRound, Request
from conformance.scoring import copied_token
from specref.chance import Chance, SampledChance
from specref.draft import Draft
from specref.generate import Drafter, GreedyDrafter, ModelDrafter, NoDrafter, generate
from specref.laws import Law, one_hot
from specref.models import LanguageModel, Tokens, TransformersModel
from specref.rules import Rule, chain

RULES: dict[str, Rule] = {
    "ratio": chain.ratio,
    "token_matching": chain.token_matching,
    "one_hot": chain.one_hot_ratio,
    "greedy": chain.greedy,
}


class CopyingDrafter:
    """Proposes what followed the last tokens earlier in the context; nothing where they are new."""

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        """See `specref.generate.Drafter`."""
        tokens: Tokens = ()
        while len(tokens) < k and (token := copied_token(context + tokens)) is not None:
            tokens += (token,)
        return Draft.chosen(tokens)


class ReferenceEngine:
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
        return (
            Mode("off", rule="target"),
            Mode("draft model, ratio", {"drafter": "model", "k": k}, "ratio", "draft model"),
            Mode("draft model, token matching", {"drafter": "model", "k": k}, "token_matching", "draft model"),
            Mode("n-gram, one-hot", {"drafter": "copy", "k": k}, "one_hot", "n-gram"),
        )

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Engine.generate`."""
        for request in requests:
            temperature = request.settings.temperature
            made = generate(
                self.tempered(self.target, temperature),
                self.drafter(mode, temperature),
                self.rule(mode, temperature),
                request.prompt,
                k=mode.speculation.get("k", 1),
                max_tokens=request.settings.max_tokens,
                chance=self.chance(request.seed),
                eos=request.settings.eos,
            )
            rounds = (RecordedRound(r.start, r.drafted, r.accepted, r.emitted, mode.rule, r.accepted) for r in made.rounds)
            yield Output(made.tokens, tuple(rounds))

    def tempered(self, model: LanguageModel, temperature: float) -> LanguageModel:
        """`model` sampled at `temperature`."""
        return model if temperature in (0, 1) else Tempered(model, temperature)

    def drafter(self, mode: Mode, temperature: float) -> Drafter:
        """The drafter of a mode; at temperature 0 the draft model's drafts are greedy too."""
        kind = mode.speculation.get("drafter")
        if kind == "copy":
            return CopyingDrafter()
        if kind == "model":
            return GreedyDrafter(self.draft) if temperature == 0 else ModelDrafter(self.tempered(self.draft, temperature))
        return NoDrafter()

    def rule(self, mode: Mode, temperature: float) -> Rule:
        """The verification rule of a mode; greedy at temperature 0."""
        return chain.greedy if temperature == 0 else RULES.get(mode.rule, chain.token_matching)

    def chance(self, seed: int) -> Chance:
        """The chance that decides one request."""
        return SampledChance(seed)

    def close(self) -> None:
        """See `Engine.close`."""


class Tempered:
    """A language model sampled at a temperature above 0: laws proportional to p ** (1 / temperature)."""

    def __init__(self, model: LanguageModel, temperature: float) -> None:
        self._model, self._power = model, 1 / temperature

    @property
    def vocabulary(self) -> int:
        """V, the number of token ids."""
        return self._model.vocabulary

    def next_law(self, context: Tokens) -> Law:
        """See `LanguageModel.next_law`."""
        return self._temper(self._model.next_law(context))

    def next_laws(self, context: Tokens, drafted: Tokens) -> list[Law]:
        """See `LanguageModel.next_laws`."""
        return [self._temper(law) for law in self._model.next_laws(context, drafted)]

    def _temper(self, law: Law) -> Law:
        weights = law.astype(float) ** self._power
        tempered: Law = weights / weights.sum()
        return tempered


def make(models: Models) -> ReferenceEngine:
    """The reference over two transformers models."""
    torch.set_num_threads(1)
    return ReferenceEngine(TransformersModel.load(models.target), TransformersModel.load(models.draft))
