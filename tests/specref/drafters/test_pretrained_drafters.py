"""The family's Medusa heads and EAGLE nets: small, loadable, better than untrained, lossless in long runs of the reference."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from drafting import judged
from safetensors import safe_open
from transformers import AutoConfig, AutoTokenizer

from specref import pretrained
from specref.draft import Draft
from specref.drafters import eagle
from specref.drafters.medusa import MedusaDrafter, MedusaHeads, MedusaTreeDrafter, best_choices
from specref.laws import NO_LAW
from specref.models import softmax
from specref.pretrained import measure, measure_drafters, train_drafters
from specref.rules import Verified, chain
from specref.rules.block import block
from specref.rules.tree import recursive_rejection, sequential_one_hot, traversal
from specref.rules.typical import typical
from specref.tree import laws_without_replacement
from specref.tree_attention import TreeTarget

PROMPT = 16
PARENTS = [-1, 0, 0, 0, 1, 1, 4]


@pytest.fixture(scope="module")
def family() -> SimpleNamespace:
    """The target, what drafts for it, and what it wrote after 24 held-out prompts."""
    target = measure.load(pretrained.path("target"))
    tokenizer = AutoTokenizer.from_pretrained(pretrained.path("target"), local_files_only=True)
    tokens = measure.documents_as_tokens(pretrained.held_out(), tokenizer)
    written = measure.target_writes(target, tokens[:24], seed=1, prompt=PROMPT, new=32)
    heads = MedusaHeads.load(pretrained.path("medusa"))
    nets = {name: eagle.load(pretrained.path(name), target) for name in ("eagle", "eagle3")}
    prompts = [tuple(row[:PROMPT].tolist()) for row in tokens if (row[:PROMPT] != tokenizer.pad_token_id).all()]
    return SimpleNamespace(target=target, heads=heads, **nets, written=written, prompts=prompts)


@pytest.mark.parametrize("name", pretrained.drafter_names())
def test_a_folder_is_small_and_holds_safetensors_only(name):
    files = list(pretrained.path(name).iterdir())
    assert {file.name for file in files} == {"config.json", "model.safetensors"}
    assert sum(file.stat().st_size for file in files) < 4_000_000
    with safe_open(pretrained.path(name) / "model.safetensors", framework="pt") as weights:
        assert all(torch.isfinite(weights.get_tensor(key)).all() for key in weights.keys())  # noqa: SIM118


def test_the_configs_say_what_engines_look_for():
    medusa = json.loads((pretrained.path("medusa") / "config.json").read_text())
    assert (medusa["architectures"], medusa["medusa_num_heads"], medusa["vocab_size"]) == (["MedusaModel"], 4, 114)
    plain, third = (AutoConfig.from_pretrained(pretrained.path(name)) for name in ("eagle", "eagle3"))
    assert (plain.architectures, plain.num_hidden_layers) == (["EagleLlamaForCausalLM"], 1)
    assert (third.architectures, third.draft_vocab_size, third.vocab_size) == (["LlamaForCausalLMEagle3"], 96, 114)
    assert third.eagle_aux_hidden_state_layer_ids == [1, 2, 3]


def test_trained_heads_beat_untrained_ones(family):
    trained = measure_drafters.medusa_acceptance(family.target, family.heads, family.written)
    untrained = measure_drafters.medusa_acceptance(
        family.target, train_drafters.untrained_medusa(family.target), family.written
    )
    assert trained[0] > 0.35
    assert trained[0] == max(trained)
    assert all(after > before + 0.08 for after, before in zip(trained, untrained))


@pytest.mark.parametrize("name", ["eagle", "eagle3"])
def test_trained_nets_beat_untrained_ones_and_the_heads(family, name):
    net = getattr(family, name)
    trained = measure_drafters.eagle_acceptance(family.target, net, family.written)
    random = type(net)(family.target, net.config, *([(net.t2d.nonzero()[:, 0]).tolist()] if name == "eagle3" else []))
    untrained = measure_drafters.eagle_acceptance(family.target, random, family.written)
    assert trained[0] > 0.7
    assert all(after > before + 0.2 for after, before in zip(trained, untrained))
    heads = measure_drafters.medusa_acceptance(family.target, family.heads, family.written)
    assert all(net_s > heads_s for net_s, heads_s in zip(trained, heads))  # the nets know the tokens drafted before


def test_a_net_that_is_not_shifted_by_one_place_is_accepted_less(family):
    """A known fault: each feature paired with its own token instead of the next one."""
    read = train_drafters.Read(family.target, family.written)
    features = read.features(family.eagle.feature_layers)
    real = family.written[:, 2:] != 0

    def acceptance(features, tokens):
        with torch.no_grad():
            (guesses,) = family.eagle.unrolled(features, tokens, steps=1)
            q = family.eagle.logits(guesses).double().softmax(-1)
        p = read.logits[:, 1:-1].double().softmax(-1)
        return torch.minimum(p, q[:, : p.shape[1]]).sum(-1)[real].mean().item()

    right = acceptance(features, family.written)
    wrong = acceptance(features[:, 1:], family.written[:, :-1])  # pairs (f_(i+1), t_(i+1))
    assert wrong < right - 0.2


def test_the_training_script_makes_drafters_that_can_be_loaded(tmp_path, monkeypatch, family):
    monkeypatch.setattr("specref.pretrained.train.ROWS", 2)
    monkeypatch.setattr(train_drafters, "TRAINING", dict.fromkeys(pretrained.drafter_names(), (1, 24)))
    monkeypatch.setattr("sys.argv", ["train_drafters", "--out", str(tmp_path)])
    train_drafters.main()
    assert len(MedusaHeads.load(tmp_path / "medusa").blocks) == 4
    for name in ("eagle", "eagle3"):
        assert eagle.load(tmp_path / name, family.target).state_dict().keys() == getattr(family, name).state_dict().keys()


class ChosenAsDrawn(eagle.EagleDrawnTree):
    """A known fault: the most probable tokens, said to have been drawn without replacement."""

    def _below(self, root, k, chance):
        tree = eagle.ranked_tree(
            root, self.reader.laws, [choice for choice in [(0,), (1,), (0, 0), (0, 1)] if len(choice) <= k]
        )
        inner = [node for node in range(len(tree)) if tree.children(node)]
        q = {node: self.reader.law(tree.spells(node)) for node in inner}
        return Draft.claimed(tree.tokens, [NO_LAW, *laws_without_replacement(tree, q)[1:]], tree)


def unverified(p, draft, chance):
    """A fault: every draft is kept."""
    return Verified(len(draft.tokens), chance.picks(p[-1], slot=("emit",)))


def q_of_net(net, target):
    def laws(tokens):
        read = train_drafters.Read(target, torch.tensor([tokens]))
        with torch.no_grad():
            (guesses,) = net.unrolled(read.features(net.feature_layers), read.tokens, steps=1)
        rows = softmax(net.logits(guesses)[0, :-1].detach().double().numpy())
        return np.concatenate([np.full((2, rows.shape[1]), 1 / rows.shape[1]), rows])

    return laws


def q_of_heads(heads, target):
    def laws(tokens):
        with torch.no_grad():
            rows = softmax(heads(train_drafters.Read(target, torch.tensor([tokens])).states[-1])[0, 0, :-2].double().numpy())
        return np.concatenate([np.full((2, rows.shape[1]), 1 / rows.shape[1]), rows])

    return laws


def cases(family, name):
    """{case: (drafter, rule, whether it drafts trees, whether it is lossless)} for one drafter of the family."""
    if name == "medusa":
        target = TreeTarget(family.target)
        read = train_drafters.Read(family.target, family.written)
        choices = best_choices(family.heads.accuracy(read.states[-1], family.written, ranks=8), nodes=16)
        tree, line = MedusaTreeDrafter(family.heads, target, choices), MedusaDrafter(family.heads, target)
        return target, {
            "tree": (tree, sequential_one_hot, True, True),
            "chain": (line, chain.one_hot_ratio, False, True),
            "typical": (tree, typical, True, False),
        }
    net = getattr(family, name)
    target = TreeTarget(family.target, net.feature_layers)
    drawn, line = eagle.EagleDrawnTree(net, target, PARENTS), eagle.EagleDrafter(net, target)
    return target, {
        "ratio": (line, chain.ratio, False, True),
        "block": (line, block, False, True),
        "recursive_rejection": (drawn, recursive_rejection, True, True),
        "traversal": (drawn, traversal, True, True),
        "growing": (eagle.EagleGrowingTree(net, target, top_k=5, nodes=16), sequential_one_hot, True, True),
        "chosen as drawn": (ChosenAsDrawn(net, target, PARENTS), recursive_rejection, True, False),
        "unverified": (line, unverified, False, False),
    }


@pytest.mark.long
@pytest.mark.parametrize("name", pretrained.drafter_names())
def test_the_judge_passes_lossless_rules_and_fails_the_others(family, name):
    """40 outputs of 64 tokens each, alpha 1e-6 a case; a leak of half the tokens to q would be seen with probability 99.9%."""
    target, its_cases = cases(family, name)
    q_of = q_of_heads(family.heads, family.target) if name == "medusa" else q_of_net(getattr(family, name), family.target)
    for case, (drafter, rule, trees, lossless) in its_cases.items():
        look, smallest = judged(family.target, q_of, drafter, rule, family.prompts[:40], target=target, trees=trees, tokens=64)
        assert smallest is not None, case
        assert smallest < 0.5, case
        assert look.failed is not lossless, (name, case, look.named, smallest)
