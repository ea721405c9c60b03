"""Measure the family's Medusa heads and EAGLE nets: how often the target accepts them, trained and untrained.

    python -m specref.pretrained.measure_drafters [--family DIR] [--prompts N]

prints the figures of README.md. Acceptance is computed from whole laws, as in `specref.pretrained.measure`; tokens per round
are counted in generations of the reference, at temperature 1.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedModel

from specref.chance import SampledChance
from specref.drafters import eagle
from specref.drafters.medusa import MedusaDrafter, MedusaHeads, MedusaTreeDrafter, best_choices
from specref.generate import Drafter, Generation, generate
from specref.models import Tokens
from specref.pretrained import held_out, path
from specref.pretrained.measure import documents_as_tokens, load, target_writes
from specref.pretrained.train import build_tokenizer, documents, encode, split
from specref.pretrained.train_drafters import Read, untrained_eagle, untrained_eagle3, untrained_medusa
from specref.rules import Rule
from specref.rules.chain import one_hot_ratio, ratio
from specref.rules.tree import recursive_rejection, sequential_one_hot
from specref.rules.typical import typical
from specref.stopping import Stops
from specref.tree_attention import TreeTarget
from specref.tree_generate import generate_with_trees

NODES = 24  # drafted tokens in each tree
DEPTH = 4


@torch.no_grad()
def medusa_acceptance(target: PreTrainedModel, heads: MedusaHeads, written: Tensor, prompt: int = 16) -> list[float]:
    """`[heads]`: the mean of sum_v min(p(v), q(v)), q being head i's law of the token i places after the next one.

    written `[rows, length]`: what the target wrote after `prompt` tokens; p is its law given all before.

    >>> target = load(path("target"))
    >>> shares = medusa_acceptance(target, untrained_medusa(target), torch.tensor([list(range(40, 60))]))
    >>> len(shares), all(0 <= share <= 1 for share in shares)
    (4, True)
    """
    read = Read(target, written)
    laws = heads(read.states[-1]).double().softmax(-1)
    return [_mean_overlap(read, law[:, :-i], i, prompt) for i, law in enumerate(laws, start=1)]


@torch.no_grad()
def eagle_acceptance(
    target: PreTrainedModel, net: eagle.DraftNet, written: Tensor, steps: int = DEPTH, prompt: int = 16
) -> list[float]:
    """`[steps]`: the mean of sum_v min(p(v), q(v)) in the j-th step of drafting, all drafts before it being what was written.

    written `[rows, length]`: what the target wrote after `prompt` tokens.

    >>> target = load(path("target"))
    >>> shares = eagle_acceptance(target, untrained_eagle(target), torch.tensor([list(range(40, 66))]), steps=2)
    >>> len(shares), all(0 <= share <= 1 for share in shares)
    (2, True)
    """
    read = Read(target, written)
    guesses = net.unrolled(read.features(net.feature_layers), written, steps)
    return [
        _mean_overlap(read, net.logits(guess).double().softmax(-1)[:, step:], step + 1, prompt)
        for step, guess in enumerate(guesses)
    ]


def _mean_overlap(read: Read, q: Tensor, first: int, prompt: int) -> float:
    """The mean overlap of `q [B, L - first, V]` with the target's laws after token `first`, first + 1, .. of each row."""
    p = read.logits[:, first:].double().softmax(-1)
    shared = torch.minimum(p, q).sum(-1)[:, :-1]
    following = torch.arange(first + 1, read.tokens.shape[1])  # where the token stands that q and p are laws of
    real = (read.tokens[:, following] != 0) & (following >= prompt)
    return shared[real].mean().item()


def tokens_per_round(generations: Iterable[Generation]) -> float:
    """How many tokens a round emitted, on average over all rounds but the last of each generation, which `Stops` cuts.

    >>> from specref.models import TableModel
    >>> from specref.generate import ModelDrafter
    >>> table = TableModel(4, "t")
    >>> out = generate(table, ModelDrafter(table), ratio, (1,), k=2, stops=Stops(9), chance=SampledChance(0))
    >>> tokens_per_round([out])                          # the target drafts for itself: k + 1 tokens a round
    3.0
    """
    emitted = [len(done.emitted) for out in generations for done in out.rounds[:-1]]
    return sum(emitted) / len(emitted)


def generations(
    target: TreeTarget, drafter: Drafter, rule: Rule, prompts: list[Tokens], depth: int = DEPTH, tokens: int = 64
) -> list[Generation]:
    """One generation of `tokens` tokens per prompt; a drafter of chains or of trees, told apart by the rule's module.

    >>> target = TreeTarget(load(path("target")))
    >>> heads = MedusaHeads.load(path("medusa"))
    >>> [len(out.tokens) for out in generations(target, MedusaDrafter(heads, target), one_hot_ratio, [(1, 40)], tokens=3)]
    [3]
    """
    run = partial(generate_with_trees, depth=depth) if _takes_trees(rule) else partial(generate, k=depth)
    return [
        run(target, drafter, rule, prompt, stops=Stops(tokens), chance=SampledChance(i)) for i, prompt in enumerate(prompts)
    ]


def _takes_trees(rule: Rule) -> bool:
    return rule in (sequential_one_hot, recursive_rejection, typical)


def main() -> None:
    """The command line; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m specref.pretrained.measure_drafters", description="Measure the drafters.")
    parser.add_argument("--family", type=Path, default=path("target").parent, help="folder that holds target and drafters")
    parser.add_argument("--prompts", type=int, default=30, help="prompts for tokens per round")
    options = parser.parse_args()

    model = load(options.family / "target")
    tokenizer = AutoTokenizer.from_pretrained(options.family / "target", local_files_only=True)
    tokens = documents_as_tokens(held_out(options.family), tokenizer)
    written = target_writes(model, tokens.repeat(4, 1), seed=1)
    encoded = [encode(build_tokenizer(), text) for text in split(documents())[0]]
    heads = MedusaHeads.load(options.family / "medusa")
    net, net3 = eagle.load(options.family / "eagle", model), eagle.load(options.family / "eagle3", model)

    _print("medusa, heads 1..", medusa_acceptance(model, heads, written))
    _print("medusa untrained", medusa_acceptance(model, untrained_medusa(model), written))
    _print("eagle, steps 1..", eagle_acceptance(model, net, written))
    _print("eagle untrained", eagle_acceptance(model, untrained_eagle(model), written))
    _print("eagle3, steps 1..", eagle_acceptance(model, net3, written))
    _print("eagle3 untrained", eagle_acceptance(model, untrained_eagle3(model, encoded), written))

    read = Read(model, written)
    choices = best_choices(heads.accuracy(read.states[-1], written, ranks=10), NODES)
    prompts = [tuple(row[:16].tolist()) for row in tokens if (row[:16] != 0).all()][: options.prompts]
    target = TreeTarget(model)
    target3 = TreeTarget(model, net3.feature_layers)
    parents = [-1, 0, 0, 0, 1, 1, 2, 4, 4, 5, 7]
    for name, its_target, drafter, rule in (
        ("medusa, best tokens, one_hot_ratio", target, MedusaDrafter(heads, target), one_hot_ratio),
        ("medusa, tree, sequential_one_hot", target, MedusaTreeDrafter(heads, target, choices), sequential_one_hot),
        ("medusa, tree, typical (lossy)", target, MedusaTreeDrafter(heads, target, choices), typical),
        ("eagle, chain, ratio", target, eagle.EagleDrafter(net, target), ratio),
        ("eagle, drawn tree, recursive_rejection", target, eagle.EagleDrawnTree(net, target, parents), recursive_rejection),
        ("eagle, growing tree, sequential_one_hot", target, eagle.EagleGrowingTree(net, target, 10, NODES), sequential_one_hot),
        ("eagle3, chain, ratio", target3, eagle.EagleDrafter(net3, target3), ratio),
        (
            "eagle3, growing tree, sequential_one_hot",
            target3,
            eagle.EagleGrowingTree(net3, target3, 10, NODES),
            sequential_one_hot,
        ),
    ):
        print(f"{name}: {tokens_per_round(generations(its_target, drafter, rule, prompts)):.2f} tokens per round", flush=True)
    print(f"medusa's best choices: {choices}")


def _print(name: str, shares: list[float]) -> None:
    print(f"{name}: acceptance " + ", ".join(f"{share:.3f}" for share in shares), flush=True)


if __name__ == "__main__":
    main()
