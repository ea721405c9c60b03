"""One pass over a tree equals its paths run alone; a wrong mask or position shows; the cache keeps the accepted path."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from transformers import (
    DynamicCache,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from specref import tree_attention
from specref.chance import SampledChance
from specref.draft import Draft
from specref.models import TransformersModel
from specref.rules.tree import sequential_one_hot
from specref.tree import BadTree, TokenTree
from specref.tree_attention import TreeTarget, tree_pass

VOCABULARY = 13


def tiny_llama():
    """A Llama all in float64. transformers' own norm computes in float32 whatever the weights are, which would hide 1e-9."""
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 1}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, num_hidden_layers=2, initializer_range=0.3, **sizes))
    for parent in list(model.modules()):
        for name, module in parent.named_children():
            if type(module).__name__ == "LlamaRMSNorm":
                setattr(parent, name, nn.RMSNorm(module.weight.shape[0], eps=module.variance_epsilon))
    return model.double().eval()


def tiny_gpt2():
    """Learned absolute positions: a wrong position id changes the embedding itself."""
    config = GPT2Config(vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2, n_positions=64, initializer_range=0.3)
    return GPT2LMHeadModel(config).double().eval()


def random_tree(rng, root=None, largest=10):
    size = int(rng.integers(1, largest + 1))
    tokens = rng.integers(VOCABULARY, size=size)
    tokens[0] = tokens[0] if root is None else root
    return TokenTree(tokens, [-1, *(int(rng.integers(node)) for node in range(1, size))])


def alone(model, tokens):
    """The last logits of a plain pass over `tokens`: no cache, no mask, no position ids."""
    with torch.inference_mode():
        return model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1].numpy()


@pytest.mark.parametrize("make", [tiny_llama, tiny_gpt2])
def test_every_node_equals_its_path_run_alone(make):
    """200 random trees each for two architectures, half of them behind a cached prefix."""
    model, rng = make(), np.random.default_rng()
    for trial in range(200):
        prefix = rng.integers(VOCABULARY, size=int(rng.integers(1, 12)) if trial % 2 else 0).tolist()
        cache = DynamicCache()
        if prefix:
            tree_pass(model, TokenTree.chain(prefix[0], prefix[1:]), cache)
        tree = random_tree(rng)
        logits, _ = tree_pass(model, tree, cache)
        for node in range(len(tree)):
            wanted = alone(model, [*prefix, tree.tokens[0], *tree.spells(node)])
            assert np.abs(logits[node].numpy() - wanted).max() < 1e-9, (prefix, tree, node)


@pytest.mark.parametrize("make", [tiny_llama, tiny_gpt2])
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("ancestor_mask", lambda tree: np.tril(np.ones((len(tree), len(tree)), dtype=np.bool_))),  # all that came before
        ("position_ids", lambda tree, root=0: tuple(range(root, root + len(tree)))),  # the place in the flattened order
        ("position_ids", lambda tree, root=0: tree.depths),  # the prefix forgotten
    ],
)
def test_a_wrong_mask_or_position_shows(make, name, fault, monkeypatch):
    model, rng = make(), np.random.default_rng()
    tree = TokenTree([3, 1, 2, 5, 6], parents=[-1, 0, 0, 2, 2])
    prefix = rng.integers(VOCABULARY, size=6).tolist()
    cache = DynamicCache()
    tree_pass(model, TokenTree.chain(prefix[0], prefix[1:]), cache)
    monkeypatch.setattr(tree_attention.TokenTree, name, fault)
    logits, _ = tree_pass(model, tree, cache)
    assert np.abs(logits[4].numpy() - alone(model, [*prefix, 3, *tree.spells(4)])).max() > 1e-6


def test_a_target_equals_fresh_passes_over_rounds_of_any_kind():
    """Contexts that follow the tree, leave it, shrink, or start anew: logits and features stay those of a fresh model."""
    model, rng = tiny_llama(), np.random.default_rng()
    target = TreeTarget(model, layers=[0, 1, 2])
    context = tuple(rng.integers(VOCABULARY, size=4).tolist())
    for _ in range(60):
        tree = random_tree(rng, root=context[-1])
        laws = target.tree_laws(context, tree)
        node = int(rng.integers(len(tree)))
        plain = TransformersModel(model)
        np.testing.assert_allclose(laws[node], plain.next_law(context + tree.spells(node)), rtol=0, atol=1e-9)
        context = (*context, *tree.spells(node), int(rng.integers(VOCABULARY)))
        if rng.random() < 0.2 or len(context) > 30:
            context = (*context[: int(rng.integers(1, 5))], int(rng.integers(VOCABULARY)))
        before = context[:-1] or context
        fresh = TreeTarget(model, layers=[0, 1, 2]).features(before)
        np.testing.assert_allclose(target.features(before), fresh, rtol=0, atol=1e-9)


def test_features_are_what_enters_the_layers():
    model = tiny_llama()
    tokens = (1, 5, 2, 7)
    with torch.inference_mode():
        out = model(input_ids=torch.tensor([tokens]), output_hidden_states=True)
    features = TreeTarget(model, layers=[0, 1, 2]).features(tokens)
    torch.testing.assert_close(features[:, :16], model.model.embed_tokens(torch.tensor(tokens)))
    torch.testing.assert_close(features[:, 16:32], out.hidden_states[1][0])
    torch.testing.assert_close(model.lm_head(features[:, 32:]), out.logits[0])


def test_a_round_costs_one_pass(monkeypatch):
    """The target reads each node once: the accepted path is not read again, nor are the features computed anew."""
    rows = []
    monkeypatch.setattr(
        tree_attention, "tree_pass", lambda model, tree, *rest: rows.append(len(tree)) or tree_pass(model, tree, *rest)
    )
    target, chance, rng = (
        TreeTarget(tiny_llama()),
        SampledChance(int(np.random.default_rng().integers(2**32))),
        np.random.default_rng(),
    )
    context = (1, 5, 2)
    for round_number in range(5):
        chance.begin_round(len(context))
        target.features(context[:-1])
        tree = random_tree(rng, root=context[-1])
        before = len(rows)
        verified = sequential_one_hot(target.tree_laws(context, tree), Draft.chosen(tree.tokens, tree), chance)
        assert rows[before:] == [len(tree)]
        context = (*context, *(tree.tokens[node] for node in verified.path), verified.next_token)
        assert len(rows) == round_number + 2  # one for the prompt


def test_the_plain_interface_is_that_of_a_model():
    model = tiny_llama()
    target, plain = TreeTarget(model), TransformersModel(model)
    for context, drafted in [((1, 2), (3, 4, 5)), ((1, 2, 3, 9), ()), ((4,), (1, 1))]:
        np.testing.assert_allclose(target.next_laws(context, drafted), plain.next_laws(context, drafted), rtol=0, atol=1e-9)


def test_bad_input():
    target = TreeTarget(tiny_llama())
    with pytest.raises(BadTree, match=r"the root holds token 3, but the context ends with \(2,\)"):
        target.tree_laws((1, 2), TokenTree.chain(3, ()))
    with pytest.raises(ValueError, match="start the prompt with a BOS token"):
        target.next_law(())
    with pytest.raises(ValueError, match=r"layer 3 is outside 0\.\.2"):
        TreeTarget(tiny_llama(), layers=[3])
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    with pytest.raises(ValueError, match="MistralForCausalLM has another kind"):
        TreeTarget(MistralForCausalLM(MistralConfig(vocab_size=8, sliding_window=4, **sizes)))
