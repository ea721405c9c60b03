"""The exact law of a request's output, through the whole engine: every branch of several rounds."""

from __future__ import annotations

import numpy as np
import pytest

from specref.chance import Chance, exact_law
from specref.draft import Draft
from specref.drafters.cross_vocabulary import PieceCodec, Reencoded, SharedVocabulary
from specref.drafters.jacobi import JacobiDrafter
from specref.drafters.lookahead import LookaheadDrafter, Shape
from specref.drafters.prompt_lookup import PromptLookup
from specref.engine import CachedTableModel, Engine, Speculation, by_draft_model, by_drafter
from specref.engine.exact import law_of_output
from specref.engine.rounds import Rounds
from specref.engine.speculation import WithDrafter
from specref.generate import GreedyDrafter, ModelDrafter
from specref.models import Kind, TableModel, Tokens, sequence_law
from specref.processors import Processed, SamplingSettings
from specref.rules import Rule, block, chain, tree
from specref.tree import TokenTree

from . import faults

PROMPT = (1, 0, 1, 1)
SHAPE = (-1, 0, 0, 1)


def models(kind: Kind, draft_kind: Kind, seed: int, vocabulary: int = 2) -> tuple[TableModel, TableModel]:
    target = TableModel(vocabulary, f"target {seed}", kind)
    return target, TableModel(vocabulary, f"draft {seed}", draft_kind, target=target)


class BothTokens:
    """A chosen tree of width 2, its better child first."""

    def __init__(self, table: TableModel) -> None:
        self.table = table

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        best = [int(token) for token in np.argsort(-self.table.next_law(context), kind="stable")[:2]]
        paths = [(token, best[0])[:k] for token in best] if k else []
        drafted = TokenTree.from_paths(context[-1], paths)
        return Draft.chosen(drafted.tokens, drafted)


PIECES = PieceCodec(["a", "b"])
PIECES_OF_THE_DRAFT = PieceCodec(["b", "a", "ab"])
SHARED = {0: 1, 1: 0}


def speculation(name: str, small: TableModel, target: TableModel | None = None) -> Speculation:
    """target: for drafters that draft with it; `small` takes its place where it is not given."""
    other = TableModel(3, f"other {small.seed}")
    shared = SharedVocabulary(other, PIECES, PIECES_OF_THE_DRAFT, SHARED, 2)
    reencoded = Reencoded(ModelDrafter(other), PIECES, PIECES_OF_THE_DRAFT)
    jacobi = by_drafter(JacobiDrafter(target or small, passes=1))
    drawn = by_draft_model(CachedTableModel(small))
    tree_drawn = by_draft_model(CachedTableModel(small), SHAPE)
    twice_drawn = by_draft_model(CachedTableModel(small), SHAPE, replacement=True)
    return {
        "ratio": Speculation(chain.ratio, drawn, k=2),
        "block": Speculation(block.block, drawn, k=2),
        "token matching": Speculation(chain.token_matching, drawn, k=2),
        "one-hot ratio": Speculation(chain.one_hot_ratio, by_drafter(PromptLookup(longest=1)), k=2),
        "recursive rejection": Speculation(tree.recursive_rejection, tree_drawn, k=2, nodes=3),
        "recursive rejection, replacement": Speculation(tree.recursive_rejection, twice_drawn, k=2, nodes=3),
        "traversal": Speculation(tree.traversal, tree_drawn, k=2, nodes=3),
        "sequential one-hot": Speculation(tree.sequential_one_hot, by_drafter(BothTokens(small)), k=2, nodes=4),
        "target only": Speculation(tree.target_only, by_drafter(BothTokens(small)), k=2, nodes=4),
        "greedy": Speculation(chain.greedy, drawn, k=2),
        "one-hot ratio, best tokens": Speculation(chain.one_hot_ratio, by_drafter(GreedyDrafter(small)), k=2),
        "one-hot ratio, Jacobi": Speculation(chain.one_hot_ratio, jacobi, k=2),
        "token matching, Jacobi": Speculation(chain.token_matching, jacobi, k=2),
        "ratio, shared vocabulary": Speculation(chain.ratio, by_drafter(ModelDrafter(shared)), k=2),
        "token matching, re-encoded": Speculation(chain.token_matching, by_drafter(reencoded), k=2),
    }[name]


RULES = (
    "ratio",
    "block",
    "token matching",
    "one-hot ratio",
    "recursive rejection",
    "recursive rejection, replacement",
    "traversal",
    "sequential one-hot",
    "target only",
    "one-hot ratio, best tokens",
    "one-hot ratio, Jacobi",
    "token matching, Jacobi",
    "ratio, shared vocabulary",
    "token matching, re-encoded",
)
KINDS: tuple[tuple[Kind, Kind], ...] = (("plain", "far"), ("zeros", "near"), ("ties", "disjoint"), ("plain", "same"))


def law(engine_type: type[Engine], name: str, target: TableModel, small: TableModel, asked: SamplingSettings) -> dict:  # type: ignore[type-arg]
    """The output's law in a batch with another request, pages of two tokens and prefill in chunks of two."""
    engine = engine_type(CachedTableModel(target), page_size=2, chunk=2)
    mate = SamplingSettings(max_tokens=5, seed=3)
    engine.submit(PROMPT[:2], mate, speculation("ratio", small))
    number = engine.submit(PROMPT, asked, speculation(name, small, target))
    return law_of_output(engine, number)


@pytest.mark.parametrize("name", RULES)
def test_the_law_of_four_tokens_is_the_targets(name: str) -> None:
    """k = 2, so at least two rounds: the tokens of all rounds together have exactly the target's law."""
    for seed, (kind, draft_kind) in enumerate(KINDS):
        target, small = models(kind, draft_kind, seed)
        assert law(Engine, name, target, small, SamplingSettings(max_tokens=4)) == sequence_law(target, PROMPT, 4)


@pytest.mark.parametrize("name", ["ratio", "block", "token matching", "traversal"])
def test_the_law_under_penalties_and_eos_is_the_processed_targets(name: str) -> None:
    target, small = models("plain", "near", 7)
    asked = SamplingSettings(max_tokens=4, presence_penalty=0.7, logit_bias={1: -0.5}, eos=(1,), min_tokens=2)
    processed = Processed(target, asked.processors(), len(PROMPT))
    assert law(Engine, name, target, small, asked) == sequence_law(processed, PROMPT, 4, eos=(1,))


def test_the_greedy_rule_writes_the_best_text() -> None:
    target, small = models("plain", "near", 3)
    asked = SamplingSettings(max_tokens=4, temperature=0.0, presence_penalty=0.7)
    processed = Processed(target, asked.processors(), len(PROMPT))
    assert law(Engine, "greedy", target, small, asked) == sequence_law(processed, PROMPT, 4)


@pytest.mark.parametrize("name", ["ratio", "recursive rejection"])
def test_three_tokens_of_a_vocabulary_of_three(name: str) -> None:
    target, small = models("mixed", "mixed", 11, vocabulary=3)
    assert law(Engine, name, target, small, SamplingSettings(max_tokens=3)) == sequence_law(target, PROMPT, 3)


@pytest.mark.parametrize(
    "part", [faults.OneTooFew, faults.ChunkPositionsRestart, faults.PositionsByOrder, faults.PenaltiesFrozen]
)
def test_a_wrong_engine_has_another_law(part: type[Rounds]) -> None:
    """The models read their caches, so a wrong cache is a wrong law."""
    target, small = models("plain", "near", 7)
    asked = SamplingSettings(max_tokens=4, presence_penalty=0.7)
    processed = Processed(target, asked.processors(), len(PROMPT))
    name = "traversal" if part is faults.PositionsByOrder else "ratio"
    wrong = type("Wrong", (Engine,), {"rounds_type": part})
    assert law(wrong, name, target, small, asked) != sequence_law(processed, PROMPT, 4)


@pytest.mark.parametrize(("rule", "temperature"), [(tree.sequential_one_hot, 1.0), (tree.greedy, 0.0)])
def test_lookahead_has_the_targets_law(rule: Rule, temperature: float) -> None:
    """Window and pool are a state of their own, so whole generations are enumerated: three tokens or more, in two rounds."""
    target = TableModel(2, "lookahead", memory=1)
    shape, asked = Shape(W=1, N=2, G=2), SamplingSettings(max_tokens=4, temperature=temperature)
    rounds: set[int] = set()

    def whole(chance: Chance) -> Tokens:
        engine = Engine(CachedTableModel(target), page_size=2)
        drafter = LookaheadDrafter(target, shape)
        one = Speculation(rule, lambda prompt, settings: WithDrafter(drafter, prompt, settings), k=1, nodes=2)
        number = engine.submit(PROMPT, asked, one)
        engine.requests[number].chance = chance
        engine.run()
        rounds.add(len(engine.state(number).rounds))
        return engine.state(number).output

    processed = Processed(target, asked.processors(), len(PROMPT))
    assert exact_law(whole) == sequence_law(processed, PROMPT, 4)
    assert min(rounds) < 4  # some drafts are accepted


def test_merged_rounds_have_the_law_of_whole_generations() -> None:
    target, small = models("plain", "far", 1)

    def whole(chance: Chance) -> Tokens:
        engine = Engine(CachedTableModel(target), page_size=2)
        number = engine.submit(PROMPT, SamplingSettings(max_tokens=3), speculation("ratio", small))
        engine.requests[number].chance = chance
        engine.run()
        return engine.state(number).output

    assert exact_law(whole) == law(Engine, "ratio", target, small, SamplingSettings(max_tokens=3))
