"""The drafters of the reference beside the draft model, each with a rule that verifies it, for the reference engine.

Medusa and EAGLE draft from the hidden states of one target, so they come with the trained family alone; the others draft for
any target. Jacobi and lookahead decoding have loops of their own in `specref.drafters`; here they are drafters, and what their
passes find is verified as any other draft, so at every temperature. What is no mode is in `NOT_MODES`, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from conformance.components import Ints
from conformance.protocols import Models, Tokens
from specref import pretrained
from specref.chance import Chance
from specref.draft import Draft
from specref.drafters import eagle, medusa
from specref.drafters.cross_vocabulary import HubCodec, Reencoded, SharedVocabulary, shared_tokens
from specref.drafters.eagle import EagleReader
from specref.drafters.early_exit import EarlyExit
from specref.drafters.jacobi import JacobiDrafter
from specref.drafters.lookahead import LookaheadDrafter, Shape
from specref.drafters.multi_token import MultiTokenHeads
from specref.engine import CachedTransformer, by_draft_model, by_drafter
from specref.engine.speculation import ProposerFactory, WithDrafter
from specref.generate import GreedyDrafter, ModelDrafter
from specref.models import TransformersModel
from specref.processors import SamplingSettings
from specref.tree_attention import TreeTarget

CHOICES = ((0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0))
"""Medusa's tree, by ranks of each head's best tokens."""
GROWN = 6
"""Drafted tokens of a tree that grows."""
GUESSES = 3
"""n-grams that lookahead decoding tries at once."""

GREEDY = "at temperature 0 every rule decides as it does, and at any other the engine refuses it"
LOSSY = "it changes the law on purpose; `conformance.controls.lossy` reports its exact law"
NOT_MODES = {
    "specref.rules.chain.greedy": GREEDY,
    "specref.rules.tree.greedy": GREEDY,
    "specref.rules.tree.walk": "the rules of trees have it in common; it is none by itself",
    "specref.rules.typical.typical": LOSSY,
    "specref.rules.typical.ensemble": LOSSY,
    "specref.rules.typical.lenient": LOSSY,
}
"""The rules and drafters of the reference that no mode of the trained family has, and why."""


@dataclass(frozen=True)
class Drafting:
    """A further way to draft. make: the proposers for k drafts a round. nodes: of a tree of that depth; None for chains."""

    name: str
    rule: str
    make: Callable[[int], ProposerFactory]
    nodes: Callable[[int], int] | None = None


class Constant:
    """A hostile drafter: token 0, again and again."""

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        """See `Drafter.draft`."""
        return Draft.chosen((0,) * k)


class ByEagle(WithDrafter):
    """An EAGLE drafter with a net cache of its own for each request."""

    def __init__(self, make: Callable[[], Any], prompt: Tokens, settings: SamplingSettings) -> None:
        super().__init__(make(), prompt, settings)

    @property
    def fed(self) -> list[tuple[int, int, int]]:
        """What the net was fed of the committed text before this round's draft."""
        read: list[tuple[int, int, int]] = self.drafter.reader.fed  # type: ignore[attr-defined]
        return read

    def propose(self, committed: Tokens, k: int, chance: Chance) -> Draft:
        """See `Proposer.propose`."""
        self.fed.clear()
        return super().propose(committed, k, chance)


class RecordedReader(EagleReader):
    """Writes down the pairs of the stable part as they are fed: which of the target's features, beside which token, where."""

    truth: torch.Tensor | None = None

    def __init__(self, net: eagle.DraftNet, target: TreeTarget) -> None:
        super().__init__(net, target)
        self.fed: list[tuple[int, int, int]] = []

    def begin(self, context: Tokens) -> None:
        """See `EagleReader.begin`."""
        self.truth = self.net.fused(self.target.features(context[:-1])).detach() if len(context) > 1 else None
        super().begin(context)
        self.truth = None

    def _forward(self, features: torch.Tensor, tokens: Tokens, positions: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        if self.truth is not None:
            nearest = torch.cdist(features.double(), self.truth.double()).argmin(dim=1).tolist()
            self.fed += zip(nearest, tokens, positions.tolist())
        return super()._forward(features, tokens, positions, seen)


class Eagle3Map:
    """Which of the target's tokens EAGLE-3's own head is about."""

    name, convention = "EAGLE-3 vocabulary", "offset"

    def __init__(self, net: eagle.Eagle3Net) -> None:
        self.net, self.vocabulary = net, len(net.t2d)

    def table(self) -> Ints:
        """See `VocabularyMap.table`."""
        found: Ints = self.net.d2t.cpu().numpy()
        return found

    def texts(self) -> None:
        """See `VocabularyMap.texts`: the head knows no texts."""


class SharedMap:
    """Which of the target's tokens a draft model's tokens are, by their texts."""

    name: str = "shared vocabulary"
    convention: Literal["absolute"] = "absolute"

    def __init__(self, shared: dict[int, int], target: Sequence[str], draft: Sequence[str]) -> None:
        self.vocabulary = len(target)
        self.shared, self.pieces = shared, ([draft[token] for token in shared], list(target))

    def table(self) -> npt.NDArray[np.int64]:
        """See `VocabularyMap.table`; of the shared tokens alone."""
        return np.array(list(self.shared.values()), dtype=np.int64)

    def texts(self) -> tuple[Sequence[str], Sequence[str]]:
        """See `VocabularyMap.texts`."""
        return self.pieces


def tree_shape(k: int) -> list[int]:
    """Parents `[N]` of a tree k deep: two children of the root, two of its first child, then one below the first.

    >>> tree_shape(1), tree_shape(4)
    ([-1, 0, 0], [-1, 0, 0, 1, 1, 3, 5])
    """
    parents = [-1, 0, 0]
    if k > 1:
        parents += [1, 1]
    for _ in range(k - 2):
        parents.append(3 if len(parents) == 5 else len(parents) - 1)
    return parents


def tree_choices(k: int) -> list[tuple[int, ...]]:
    """The choices of a tree no deeper than k.

    >>> tree_choices(1)
    [(0,), (1,)]
    """
    return [choice for choice in CHOICES if len(choice) <= k]


def all_drafters(models: Models, target: TransformersModel, draft: TransformersModel) -> tuple[list[Drafting], list[Any]]:
    """Further drafters for a pair of models, and the vocabulary maps among them."""
    layers = int(target.model.config.get_text_config().num_hidden_layers)
    found: list[Drafting] = []
    maps: list[Any] = []
    if layers > 1 and hasattr(getattr(target.model, "model", None), "norm"):
        early = CachedTransformer(EarlyExit(target.model, max(1, layers // 2)).model)
        found.append(Drafting("early exit, ratio", "ratio", lambda k: by_draft_model(early)))
        torch.manual_seed(0)
        heads = MultiTokenHeads(target.model, depth=2).eval()
        found.append(Drafting("multi-token heads, block", "block", lambda k: by_drafter(heads)))
    best = GreedyDrafter(draft)
    found.append(Drafting("draft model's best tokens, one-hot", "one_hot", lambda k: by_drafter(best)))
    found += _by_itself(target.model)
    found += _by_text(models, target, draft, maps)
    if models.target.resolve() == pretrained.path("target").resolve():
        found += _trained(target.model, maps)
    return found, maps


def _by_itself(model: Any) -> Iterable[Drafting]:
    """The target drafts for itself."""

    def jacobi(k: int) -> ProposerFactory:
        return lambda prompt, settings: WithDrafter(JacobiDrafter(TreeTarget(model), passes=2), prompt, settings)

    def lookahead(k: int) -> ProposerFactory:
        shape = Shape(W=k, N=k + 1, G=GUESSES)
        return lambda prompt, settings: WithDrafter(LookaheadDrafter(TreeTarget(model), shape), prompt, settings)

    yield Drafting("Jacobi, one-hot", "one_hot", jacobi)
    yield Drafting("lookahead, one-hot", "sequential_one_hot", lookahead, lambda k: GUESSES * k)


def _by_text(models: Models, target: TransformersModel, draft: TransformersModel, maps: list[Any]) -> Iterable[Drafting]:
    """The draft model as if its tokenizer were another: by its law over shared tokens, and by text."""
    from transformers import AutoTokenizer

    try:
        codecs = [HubCodec(AutoTokenizer.from_pretrained(str(folder))) for folder in (models.target, models.draft)]
    except Exception:  # no tokenizer, or one that cannot be read: tokenizers raises errors of every kind
        return
    ours, theirs = codecs
    if len(ours.pieces) != target.vocabulary or len(theirs.pieces) != draft.vocabulary:
        return
    bos = draft.model.generation_config.bos_token_id
    begin: Tokens = () if bos is None else (int(bos),)
    shared = shared_tokens(ours.pieces, theirs.pieces)
    maps.append(SharedMap(shared, ours.pieces, theirs.pieces))
    by_law = ModelDrafter(SharedVocabulary(draft, ours, theirs, shared, target.vocabulary, begin))
    yield Drafting("shared vocabulary, ratio", "ratio", lambda k: by_drafter(by_law))
    by_text = Reencoded(ModelDrafter(draft), ours, theirs, begin)
    yield Drafting("re-encoded draft, token matching", "token_matching", lambda k: by_drafter(by_text))


def _trained(model: Any, maps: list[Any]) -> Iterable[Drafting]:
    """Medusa and EAGLE for the trained family's target."""
    heads = medusa.MedusaHeads.load(pretrained.path("medusa"))

    def by_medusa(k: int) -> ProposerFactory:
        return lambda prompt, settings: WithDrafter(
            medusa.MedusaTreeDrafter(heads, TreeTarget(model), tree_choices(k)), prompt, settings
        )

    yield Drafting("Medusa tree, one-hot", "sequential_one_hot", by_medusa, lambda k: max(k, len(tree_choices(k))))
    yield Drafting(
        "Medusa, token matching",
        "token_matching",
        lambda k: lambda prompt, settings: WithDrafter(medusa.MedusaDrafter(heads, TreeTarget(model)), prompt, settings),
    )
    nets = {name: eagle.load(pretrained.path(name), model) for name in ("eagle", "eagle3")}
    maps.append(Eagle3Map(nets["eagle3"]))  # type: ignore[arg-type]
    yield Drafting("EAGLE, ratio", "ratio", lambda k: by_eagle(nets["eagle"], eagle.EagleDrafter))

    def drawn(k: int) -> ProposerFactory:
        shape = tree_shape(k)
        return by_eagle(nets["eagle"], lambda net, target: eagle.EagleDrawnTree(net, target, shape))

    def ranked(k: int) -> ProposerFactory:
        return by_eagle(nets["eagle"], lambda net, target: eagle.EagleRankedTree(net, target, tree_choices(k)))

    def grown(k: int) -> ProposerFactory:
        return by_eagle(nets["eagle3"], lambda net, target: eagle.EagleGrowingTree(net, target, top_k=2, nodes=GROWN))

    yield Drafting("EAGLE tree, without replacement", "without_replacement", drawn, lambda k: len(tree_shape(k)) - 1)
    yield Drafting("EAGLE tree, one-hot", "sequential_one_hot", ranked, lambda k: max(k, len(tree_choices(k))))
    yield Drafting("EAGLE-3 growing tree, target only", "target_only", grown, lambda k: max(k, GROWN))


def by_eagle(net: Any, make: Callable[[Any, TreeTarget], Any], reader: type[EagleReader] = RecordedReader) -> ProposerFactory:
    """Proposers that draft with an EAGLE net, each with a cache of its own, and write down what they feed it."""

    def made() -> Any:
        drafter = make(net, TreeTarget(net.target, net.feature_layers))
        kind = reader if issubclass(reader, RecordedReader) else type("Recorded", (reader, RecordedReader), {})
        drafter.reader = kind(net, drafter.reader.target)
        return drafter

    return lambda prompt, settings: ByEagle(made, prompt, settings)
