"""Lawful variations: the output law is the target's, so the judge must pass them, whatever their acceptance."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from conformance.controls.control import Audit, Control
from conformance.controls.faults.drafting import claiming, rounded, same, top
from conformance.controls.faults.engines import ULP, noisy
from conformance.controls.faults.grammars import q_zeroed
from conformance.controls.faults.greedy import in_pairs
from conformance.controls.faults.randomness import ByAbsolutePosition, sampled
from conformance.controls.stages.drafts import FeatureNet, draft_net, greedy_writer
from conformance.controls.stages.engines import engine
from conformance.controls.stages.grammars import GrammarServer, Unaware, under_grammar
from conformance.controls.stages.served import Server
from conformance.controls.stages.serving import serving
from conformance.controls.stages.verifiers import chain, tree
from conformance.protocols import Request
from specref.chance import Chance, Number, SampledChance
from specref.draft import Draft
from specref.drafters.prompt_lookup import PromptLookup
from specref.engine.memory import Memory
from specref.engine.models import read_text
from specref.engine.request import Request as Running
from specref.engine.rounds import Rounds
from specref.engine.scheduler import Scheduler
from specref.engine.speculation import DraftModel
from specref.generate import GreedyDrafter, ModelDrafter
from specref.models import LanguageModel, Tokens
from specref.processors import SamplingSettings
from specref.processors.rows import Row
from specref.race import RacingChance
from specref.rules.block import block
from specref.rules.chain import token_matching
from specref.rules.tree import recursive_rejection
from specref.tree import TokenTree

ROWS, TOKENS, REQUESTS = 6_144, 4_096, 24
SHAPE = (-1, 0, 0, 1, 1, 2)


class Unseeded(SampledChance):
    """Drafts are drawn by the machine's own generator, and differ from run to run."""

    def uniform(self, number: Number) -> float:
        """See `UniformChance.uniform`."""
        if isinstance(number, tuple) and len(number) > 1 and number[1] == "draft":
            return (int.from_bytes(os.urandom(8), "big") >> 11) * 2.0**-53
        return super().uniform(number)


class AnyPool:
    """Drafts from a pool of n-grams that has nothing to do with the text, as a lookahead pool may hold."""

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        """See `Drafter.draft`."""
        rng = np.random.default_rng(context[-1:])
        return Draft.chosen(tuple(rng.integers(16, size=min(k, int(rng.integers(0, k + 1)))).tolist()))


class RightmostMatch:
    """Prompt lookup that copies what followed the last occurrence, not the first."""

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        """See `Drafter.draft`."""
        for place in range(len(context) - 2, -1, -1):
            if context[place] == context[-1]:
                return Draft.chosen(context[place + 1 : place + 1 + k])
        return Draft.chosen(())


class PenaltiesOffOnTheDraft(DraftModel):
    """The draft model applies the temperature alone; the laws handed over are those that it drew from."""

    def __init__(self, model: object, prompt: Tokens, settings: SamplingSettings, **shape: object) -> None:
        super().__init__(model, prompt, temperature_only(settings), **shape)  # type: ignore[arg-type]


def temperature_only(settings: SamplingSettings) -> SamplingSettings:
    """The settings without penalties, bias and truncation."""
    return SamplingSettings(max_tokens=settings.max_tokens, temperature=settings.temperature)


class DraftForgetsEverything(DraftModel):
    """The draft model reads the whole text again in every round."""

    def settle(self, committed: Tokens) -> None:
        """See `Proposer.settle`."""
        self.forget()


class RowsReversed(Scheduler):
    """The batch in the other order."""

    def rows(self) -> list[Running]:
        """See `Scheduler.rows`."""
        return super().rows()[::-1]


class NothingShared(Memory):
    """No prefix cache."""

    def publish(self, request: Running) -> None:
        """See `Memory.publish`."""


class OneTokenPerPass(Rounds):
    """A chain is read one token at a time, as without speculation."""

    def read(self, request: Running, tree: TokenTree, draft: Draft) -> Sequence[Row]:
        """See `Rounds.read`."""
        scores: list[Row] = []
        seen = request.entries.visible()
        for token in tree.tokens:
            reading = read_text(self.model, seen, (token,))
            seen = np.concatenate([seen, reading.entries])
            scores += reading.scores
        request.entries.append(seen[request.read :])
        return scores


def dynamic_k(model: LanguageModel, raw: LanguageModel, request: Request) -> ModelDrafter:
    """Ends a draft after a token that the draft itself finds unlikely; that token is kept."""
    return ModelDrafter(model, stop=lambda token, law: bool(law[token] < 0.12))


def lawful(id: str, replaces: str, audit: Audit, *reports: str) -> Control:
    """A variation that must pass."""
    return Control(id, "lawful", replaces, (), audit, reports)


LAWFUL: tuple[Control, ...] = (
    lawful("token matching", "rule", engine("token_matching", n=TOKENS), "z-lab/dflash 74"),
    lawful(
        "one-hot verification of a sampled draft",
        "rule",
        engine("one_hot", drafter=lambda model, raw, request: ModelDrafter(model), n=TOKENS),
        "vllm-project/vllm 40149",
    ),
    lawful(
        "greedy draft, one-hot verification",
        "Drafter",
        engine("one_hot", drafter=lambda model, raw, request: GreedyDrafter(model), n=TOKENS),
        "vllm-project/vllm 16899",
        "SafeAILab/EAGLE 183",
    ),
    lawful(
        "penalties off on the draft",
        "DraftModel",
        serving(Server(draft_model=PenaltiesOffOnTheDraft, draft_sees=temperature_only), REQUESTS),
        "vllm-project/vllm 48932",
    ),
    lawful(
        "top-k on the draft, the truncated q declared",
        "Drafter",
        engine(drafter=claiming(top, top), exact=False, n=TOKENS),
        "vllm-project/vllm 56724",
    ),
    lawful(
        "quantised draft",
        "Drafter",
        engine(drafter=claiming(rounded, rounded), exact=False, n=TOKENS),
        "mlc-ai/mlc-llm 2167",
    ),
    lawful("unseeded draft under token matching", "Chance", engine("token_matching", chance=Unseeded, n=TOKENS)),
    lawful("dynamic k decided from what was kept", "Drafter", engine(drafter=dynamic_k, n=TOKENS)),
    lawful("block verification", "rule", engine("block", block, n=TOKENS)),
    lawful("block verification, alone", "rule", chain("block", n=ROWS), "vllm-project/vllm-ascend 7807"),
    lawful("traversal verification", "rule", tree("traversal", n=ROWS)),
    lawful("distinct deterministic siblings, sequentially", "rule", tree("one_hot", n=ROWS), "SafeAILab/EAGLE 110"),
    lawful("distinct siblings, target-only sampling", "rule", tree("target_only", n=ROWS), "sgl-project/sglang 7702"),
    lawful(
        "siblings without replacement, each with its own law",
        "rule",
        tree("without_replacement", n=ROWS),
        "SafeAILab/EAGLE 74",
    ),
    lawful(
        "any pool content in lookahead",
        "Drafter",
        engine("one_hot", drafter=lambda model, raw, request: AnyPool(), n=TOKENS),
        "hao-ai-lab/LookaheadDecoding 62",
    ),
    lawful(
        "rightmost n-gram match",
        "Drafter",
        engine("one_hot", drafter=lambda model, raw, request: RightmostMatch(), draft_law="n-gram", n=TOKENS),
        "vllm-project/vllm 22437",
    ),
    lawful(
        "leftmost n-gram match",
        "Drafter",
        engine("one_hot", drafter=lambda model, raw, request: PromptLookup(longest=2), draft_law="n-gram", n=TOKENS),
        "vllm-project/vllm 22437",
    ),
    lawful(
        "one-ulp noise that depends on the window's width",
        "target",
        greedy_writer(noisy(0), ULP),
        "huggingface/transformers 39421",
    ),
    lawful("the residual drawn by a race", "Chance", engine(chance=RacingChance, n=TOKENS), "NJUNLP/MCSD 5"),
    lawful(
        "numbers by absolute position under the ratio rule",
        "Chance",
        engine(chance=sampled(ByAbsolutePosition), n=TOKENS),
    ),
    lawful("the reference engine, chains", "Server", serving(Server(), REQUESTS)),
    lawful(
        "the reference engine, token matching",
        "Server",
        serving(Server(rule=token_matching, declared="token_matching"), REQUESTS),
    ),
    lawful(
        "the reference engine, trees",
        "Server",
        serving(Server(rule=recursive_rejection, declared="without_replacement", shape=SHAPE), REQUESTS),
    ),
    lawful("the rows of a batch in the other order", "Scheduler", serving(Server(scheduler=RowsReversed), REQUESTS)),
    lawful("no prefix cache", "Memory", serving(Server(memory=NothingShared), REQUESTS)),
    lawful(
        "a draft model that reads everything again",
        "DraftModel",
        serving(Server(draft_model=DraftForgetsEverything, lag=1_000), REQUESTS),
    ),
    lawful("a window read one token at a time", "Rounds", serving(Server(OneTokenPerPass), REQUESTS)),
    lawful("a grammar that the draft knows", "GrammarServer", under_grammar(GrammarServer(), 6)),
    lawful("an invalid draft rejected like any other", "DraftModel", under_grammar(GrammarServer(draft_model=Unaware), 6)),
    lawful(
        "q zeroed where the draft was invalid", "ratio", under_grammar(GrammarServer(draft_model=Unaware, rule=q_zeroed), 6)
    ),
    lawful("noise of low precision in both arms", "target", in_pairs(0.0)),
    lawful("a right draft net", "draft net", draft_net(FeatureNet)),
    lawful("drafts that tell the truth", "Drafter", engine(drafter=claiming(same, same), n=TOKENS)),
)
