from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import torch
from drafting import exact_distance, tiny, written_by
from safetensors.torch import load_file
from torch import nn
from transformers import PreTrainedConfig

from specref.chance import SampledChance
from specref.draft import Draft
from specref.drafters.medusa import MedusaDrafter, MedusaHeads, MedusaTreeDrafter, best_choices, candidates
from specref.generate import generate
from specref.models import TransformersModel, sequence_law
from specref.rules import chain
from specref.rules.tree import greedy, sequential_one_hot, target_only
from specref.rules.typical import typical, typical_threshold
from specref.speedup import tokens_of_tree
from specref.stopping import Stops
from specref.tree import BadTree, TokenTree
from specref.tree_attention import TreeTarget
from specref.tree_generate import generate_with_trees, laws_at_nodes

CHOICES = [(0,), (1,), (0, 0), (0, 1), (1, 0)]


def random_heads(model, heads=2, shape="residual"):
    made = MedusaHeads(model.config.hidden_size, model.config.vocab_size, heads, shape).double()
    for lm_head in made.lm_heads:
        nn.init.normal_(lm_head.weight)
    return made


@pytest.mark.parametrize("shape", ["residual", "plain"])
def test_both_published_shapes(shape):
    heads, x = MedusaHeads(6, 5, heads=3, shape=shape).double(), torch.randn(4, 6).double()
    for i in range(3):
        W, b = heads.blocks[i].layers[0].weight, heads.blocks[i].layers[0].bias
        silu = (x @ W.T + b) / (1 + torch.exp(-(x @ W.T + b)))
        block = x + silu if shape == "residual" else silu
        torch.testing.assert_close(heads(x)[i], block @ heads.lm_heads[i].weight.T)


class Places:
    """A stand-in for a target whose hidden state after token t is one-hot in t, so that heads can know a text by heart."""

    layers = (1,)
    vocabulary = 5

    def features(self, context):
        return torch.eye(10)[: len(context)]


def heads_that_know(text, heads=3, shift=0):
    """Head i answers with the token i places after the next one, or `shift` places off."""
    made = MedusaHeads(10, 5, heads)
    with torch.no_grad():
        for i, (block, lm_head) in enumerate(zip(made.blocks, made.lm_heads), start=1):
            block.layers[0].weight.zero_()
            block.layers[0].bias.zero_()
            lm_head.weight.zero_()
            for t in range(len(text)):
                lm_head.weight[text[min(t + 1 + i + shift, len(text) - 1)], t] = 50.0
    return made


def test_head_i_guesses_i_places_after_the_token_of_the_lm_head():
    """Drafting and training agree on it: heads that know the text draft the text, and have no loss on it."""
    text = (0, 3, 1, 4, 2, 2, 0, 1, 3, 4)
    heads = heads_that_know(text)
    for length in range(2, 7):  # the context's last token is what the LM head predicted
        drafted = [best[0] for best in candidates(heads, Places(), text[:length], top_k=1)]
        assert tuple(drafted) == text[length : length + 3]
    row = torch.tensor([text])
    assert heads.losses(torch.eye(10)[None], row).max() < 1e-6
    assert [share[0] for share in heads.accuracy(torch.eye(10)[None], row, ranks=1)] == [1, 1, 1]
    for shift in (-1, 1):  # a known fault: heads shifted by one
        wrong = heads_that_know(text, shift=shift)
        assert wrong.losses(torch.eye(10)[None], row).min() > 5
        assert [best[0] for best in candidates(wrong, Places(), text[:4], top_k=1)] != list(text[4:7])


def test_heads_read_the_state_before_the_newest_token():
    model = tiny(vocabulary=7)
    heads, target = random_heads(model), TreeTarget(model)
    context = (1, 5, 2, 6)
    with torch.no_grad():
        out = model(input_ids=torch.tensor([context[:-1]]), output_hidden_states=True)
        wanted = heads(out.hidden_states[-1][0, -1]).argsort(dim=-1, descending=True)[:, :3]
    assert candidates(heads, target, context, top_k=3) == wanted.tolist()
    tree = MedusaTreeDrafter(heads, target, CHOICES).draft(context, 2, SampledChance(0)).tree
    (a, b, *_), (c, d, *_) = wanted.tolist()
    assert (tree.tokens, tree.parents) == ((6, a, b, c, d, c), (-1, 0, 0, 1, 1, 2))


@pytest.mark.parametrize("rule", [sequential_one_hot, target_only])
def test_trees_are_lossless(rule):
    model = tiny(vocabulary=3)
    target = TreeTarget(model)
    drafter = MedusaTreeDrafter(random_heads(model), target, CHOICES)
    assert exact_distance(model, target, drafter, rule, trees=True, length=4) < 1e-9


@pytest.mark.parametrize("rule", [chain.one_hot_ratio, chain.token_matching])
def test_chains_are_lossless(rule):
    model = tiny(vocabulary=3)
    target = TreeTarget(model)
    assert exact_distance(model, target, MedusaDrafter(random_heads(model), target), rule, trees=False, length=4) < 1e-9


def undecided():
    """A model that leaves each text of four tokens after (0, 1) some doubt: one in 30 is all but certain of one text."""
    while True:
        model = tiny(vocabulary=3)
        if max(sequence_law(TransformersModel(model), (0, 1), 4).values()) < 0.9:
            return model


def test_typical_acceptance_is_lossy_and_keeps_what_is_likely_enough():
    """It writes one text, always, so its law is off by what the target leaves to the others."""
    model = undecided()
    target = TreeTarget(model)
    drafter = MedusaTreeDrafter(random_heads(model), target, CHOICES)
    assert exact_distance(model, target, drafter, typical, trees=True, length=4) > 0.1 - 1e-9
    context = (0, 1)
    draft = drafter.draft(context, 2, SampledChance(0))
    laws = laws_at_nodes(target, context, draft.tree)
    path = typical(laws, draft, SampledChance(0)).path
    likely = [True] + [
        laws[parent][token] > typical_threshold(laws[parent], 0.09, 0.3)
        for token, parent in zip(draft.tree.tokens[1:], draft.tree.parents[1:])
    ]
    assert all(likely[node] for node in path)
    lengths = [draft.tree.depths[node] for node in range(6) if all(likely[above] for above in draft.tree.path(node))]
    assert len(path) == max(lengths)


def test_greedy_on_a_tree_is_greedy_decoding():
    model = tiny(vocabulary=9)
    target, plain = TreeTarget(model), TransformersModel(model)
    prompt, wanted = (1, 2), ()
    while len(wanted) < 12:
        wanted += (int(plain.next_law(prompt + wanted).argmax()),)
    settings = {"stops": Stops(12), "chance": SampledChance(0)}
    tree = MedusaTreeDrafter(MedusaHeads.on(model, 2), target, CHOICES)
    assert generate_with_trees(target, tree, greedy, prompt, depth=2, **settings).tokens == wanted
    assert (
        generate(target, MedusaDrafter(MedusaHeads.on(model, 2), target), chain.greedy, prompt, k=2, **settings).tokens
        == wanted
    )


def test_training_makes_the_heads_right_more_often():
    model = tiny(vocabulary=12)
    rows = written_by(model)
    with torch.no_grad():
        hidden = model.model(input_ids=rows).last_hidden_state
    frozen = {name: weight.clone() for name, weight in model.state_dict().items()}
    for shape in ("residual", "plain"):
        heads = MedusaHeads.on(model, heads=2, shape=shape)
        before, loss = heads.accuracy(hidden, rows, ranks=1), heads.losses(hidden, rows).sum().item()
        optimiser = torch.optim.AdamW(heads.parameters(), lr=1e-2)
        for _ in range(60):
            optimiser.zero_grad()
            heads.losses(hidden, rows).sum().backward()
            optimiser.step()
        assert heads.losses(hidden, rows).sum().item() < loss
        assert heads.accuracy(hidden, rows, ranks=1)[0][0] > before[0][0]
    assert all(torch.equal(weight, frozen[name]) for name, weight in model.state_dict().items())


def test_best_choices_are_the_best_tree():
    """Against every tree of that many nodes, by the mean number of tokens that a round emits."""
    rng = np.random.default_rng()
    accuracy = [rng.dirichlet(np.ones(3))[:2] for _ in range(2)]
    every = [(0,), (1,), *itertools.product(range(2), repeat=2)]
    closed = [
        set(chosen)
        for chosen in itertools.combinations(every, 4)
        if all(choice[:-1] == () or choice[:-1] in chosen for choice in chosen)
    ]

    def value(choices):
        return sum(np.prod([accuracy[head][rank] for head, rank in enumerate(choice)]) for choice in choices)

    found = best_choices(accuracy, nodes=4)
    assert set(found) in closed
    assert value(found) == pytest.approx(max(map(value, closed)))
    by_rank = [0.5, 0.25]
    parents = TokenTree.from_ranks(0, best_choices([by_rank] * 3, 5), [range(2)] * 3).parents
    assert tokens_of_tree(parents, by_rank) == 1 + 0.5 + 0.25 + 0.25 + 0.125 + 0.125


def test_the_file_layout(tmp_path):
    """The names and keys that vLLM's MedusaConfig and Medusa model look for."""
    MedusaHeads(8, 5, heads=2).save(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    assert {name: tuple(weight.shape) for name, weight in weights.items()} == {
        **{f"blocks.{i}.layers.0.weight": (8, 8) for i in range(2)},
        **{f"blocks.{i}.layers.0.bias": (8,) for i in range(2)},
        **{f"lm_heads.{i}.weight": (5, 8) for i in range(2)},
    }
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["MedusaModel"]
    assert (config["model_type"], config["medusa_num_heads"], config["medusa_num_layers"]) == ("medusa", 2, 1)
    assert (config["hidden_size"], config["vocab_size"], config["medusa_fc_bias"]) == (8, 5, True)
    assert PreTrainedConfig.from_pretrained(tmp_path).medusa_num_heads == 2
    with pytest.raises(ValueError, match="'plain' have no published file layout"):
        MedusaHeads(8, 5, shape="plain").save(tmp_path)


def test_edges():
    model = tiny(vocabulary=7)
    heads, target = random_heads(model), TreeTarget(model)
    tree, chain_of = MedusaTreeDrafter(heads, target, CHOICES), MedusaDrafter(heads, target)
    assert tree.draft((4,), 3, SampledChance(0)).tree.tokens == (4,)  # no hidden state yet
    assert tree.draft((1, 4), 0, SampledChance(0)).tree.tokens == (4,)
    assert tree.draft((1, 4), 1, SampledChance(0)).tree.parents == (-1, 0, 0)
    assert chain_of.draft((4,), 3, SampledChance(0)).tokens == chain_of.draft((1, 4), 0, SampledChance(0)).tokens == ()
    with pytest.raises(ValueError, match="no shape of heads is called 'resnet'"):
        MedusaHeads(8, 5, shape="resnet")
    with pytest.raises(ValueError, match="there are 0 heads"):
        MedusaHeads(8, 5, heads=0)
    with pytest.raises(ValueError, match="rows of 3 tokens are too short to train 2 heads"):
        heads.losses(torch.zeros(1, 3, 16).double(), torch.tensor([[1, 2, 3]]))
    with pytest.raises(BadTree, match=r"\(0, 0, 0\) asks for rank 0 of head 2"):
        MedusaTreeDrafter(heads, target, [(0,), (0, 0), (0, 0, 0)])
    with pytest.raises(BadTree, match=r"choice \(1, 0\) has no parent"):
        MedusaTreeDrafter(heads, target, [(0,), (1, 0)])
    with pytest.raises(ValueError, match=r"layer 1, not layers \(0,\)"):
        MedusaDrafter(heads, TreeTarget(model, layers=[0]))
    with pytest.raises(ValueError, match="the accuracies of head 2 are"):
        best_choices([[0.5, 0.2], [0.1, 1.2]], 3)
    with pytest.raises(ValueError, match="depth is 0"):
        generate_with_trees(target, tree, sequential_one_hot, (1,), depth=0, stops=Stops(3), chance=SampledChance(0))
    with pytest.raises(ValueError, match="the prompt is empty"):
        generate_with_trees(target, tree, sequential_one_hot, (), depth=1, stops=Stops(3), chance=SampledChance(0))
    with pytest.raises(ValueError, match="prompt token 7 is outside"):
        generate_with_trees(target, tree, sequential_one_hot, (7,), depth=1, stops=Stops(3), chance=SampledChance(0))


class TooDeep:
    def draft(self, context, k, chance):
        tree = TokenTree.chain(context[-1], [0] * (k + 1))
        return Draft.chosen(tree.tokens, tree)


def test_a_tree_deeper_than_asked_for_is_refused():
    target = TreeTarget(tiny(vocabulary=7))
    with pytest.raises(ValueError, match="a tree 3 deep where at most 2"):
        generate_with_trees(target, TooDeep(), sequential_one_hot, (1,), depth=2, stops=Stops(9), chance=SampledChance(0))
