"""The trained family is what its README claims: small, loadable offline, with the promised entropy and acceptance."""

from __future__ import annotations

import doctest
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from specref import pretrained
from specref.pretrained import measure, train

PROMPT = 16


@pytest.fixture(scope="module")
def family() -> SimpleNamespace:
    """The three models, the tokenizer, held-out tokens, and what the target wrote after 40 held-out prompts."""
    models = {name: measure.load(pretrained.path(name)) for name in pretrained.names()}
    tokenizer = AutoTokenizer.from_pretrained(pretrained.path("target"), local_files_only=True)
    tokens = measure.documents_as_tokens(pretrained.held_out()[:40], tokenizer)
    written = measure.target_writes(models["target"], tokens, seed=1, prompt=PROMPT, new=32)
    return SimpleNamespace(**models, tokenizer=tokenizer, tokens=tokens, written=written)


def test_doctests_of_the_package() -> None:
    failed, attempted = doctest.testmod(pretrained)
    assert attempted > 0
    assert failed == 0


def test_an_unknown_name_is_told_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'targett'.*target, draft, poor_draft"):
        pretrained.path("targett")


@pytest.mark.parametrize("name", pretrained.names())
def test_a_folder_is_small_and_holds_safetensors_only(name: str) -> None:
    files = [f for f in pretrained.path(name).rglob("*") if f.is_file()]
    assert sum(f.stat().st_size for f in files) < 4_000_000
    assert {f.name for f in files} == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    with safe_open(pretrained.path(name) / "model.safetensors", framework="pt") as weights:
        assert all(torch.isfinite(weights.get_tensor(key)).all() for key in weights.keys())  # noqa: SIM118


@pytest.mark.parametrize("name", pretrained.names())
def test_a_folder_loads_offline_as_a_llama_and_a_fast_tokenizer(name: str) -> None:
    folder = pretrained.path(name)
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    generation = GenerationConfig.from_pretrained(folder, local_files_only=True)
    assert model.config.model_type == "llama"
    assert model.dtype == torch.float32
    assert tokenizer.is_fast
    assert len(tokenizer) == model.config.vocab_size
    for key in ("pad_token_id", "bos_token_id", "eos_token_id"):
        assert getattr(tokenizer, key) == getattr(model.config, key) == getattr(generation, key)


@pytest.mark.parametrize("name", pretrained.names())
def test_the_vocabulary_size_is_unlike_every_other_width(name: str) -> None:
    config = json.loads((pretrained.path(name) / "config.json").read_text())
    assert config["vocab_size"] == 114
    assert [key for key, value in config.items() if value == 114] == ["vocab_size"]
    assert config["head_dim"] * config["num_attention_heads"] == config["hidden_size"]
    assert config["head_dim"] in (32, 64)
    assert config["max_position_embeddings"] >= 256


def test_the_models_share_one_tokenizer() -> None:
    assert len({(pretrained.path(name) / "tokenizer.json").read_bytes() for name in pretrained.names()}) == 1


def test_decoding_what_was_encoded_gives_the_text_back(family: SimpleNamespace) -> None:
    printable = "".join(map(chr, range(32, 127)))
    for text in [*pretrained.held_out(), printable, "", " ", "  a  ,  b .\n\n\tit 's \n", "“typographic” – …"]:
        assert family.tokenizer.decode(family.tokenizer.encode(text)) == text
    assert family.tokenizer.encode("ab") == [71, 72]  # 4 specials, tab, newline, then ASCII from 32: nothing added
    assert family.tokenizer.unk_token_id in family.tokenizer.encode("\u4e2d")


def test_training_refuses_a_byte_that_the_vocabulary_lacks(family: SimpleNamespace) -> None:
    assert train.encode(family.tokenizer, "ab") == [train.BOS, 71, 72, train.EOS]
    with pytest.raises(ValueError, match="outside the vocabulary"):
        train.encode(family.tokenizer, "\u4e2d")


def test_the_split_shares_no_paragraph() -> None:
    training, held_out = train.split(train.documents())
    paragraphs = {p for text in training for p in text.split("\n\n")}
    assert len(training) > 15 * len(held_out) > 0
    assert not paragraphs & {p for text in held_out for p in text.split("\n\n")}


def test_the_target_is_neither_certain_nor_clueless(family: SimpleNamespace) -> None:
    entropy, loss = measure.entropy_and_cross_entropy(family.target, family.tokens)
    assert 1.0 < entropy < 2.2
    assert loss < 2.2  # a law spread over the right tokens, not just a wide one


def test_the_target_learned_to_end(family: SimpleNamespace) -> None:
    """It ends a document where the held-out text ends one, and hardly anywhere else."""
    laws, following = measure.next_laws(family.target, family.tokens), family.tokens[:, 1:]
    eos = family.tokenizer.eos_token_id
    at_ends, elsewhere = following == eos, (following != eos) & (following != family.tokenizer.pad_token_id)
    assert laws[..., eos][at_ends].mean() > 0.2
    assert laws[..., eos][elsewhere].mean() < 0.02


def test_the_draft_is_often_accepted_and_the_poor_draft_seldom(family: SimpleNamespace) -> None:
    assert 0.6 < measure.acceptance(family.target, family.draft, family.written, PROMPT).mean() < 0.8
    assert 0.02 < measure.acceptance(family.target, family.poor_draft, family.written, PROMPT).mean() < 0.3


@pytest.mark.parametrize("name", ["draft", "poor_draft"])
def test_transformers_generates_with_a_draft_as_assistant(family: SimpleNamespace, name: str) -> None:
    prompt = family.tokens[:1, :PROMPT]
    torch.manual_seed(0)
    output = family.target.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        assistant_model=getattr(family, name),
        do_sample=True,
        temperature=1.0,
        top_k=0,
        min_new_tokens=24,
        max_new_tokens=24,
    )
    assert output.shape == (1, PROMPT + 24)
    assert torch.equal(output[:, :PROMPT], prompt)
    assert family.tokenizer.decode(output[0, PROMPT:])


def test_the_training_script_makes_a_family_that_can_be_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(train, "ROWS", 4)
    monkeypatch.setattr(train, "WINDOW", 64)
    monkeypatch.setattr("sys.argv", ["train", "--out", str(tmp_path), "--scale", "0.02"])
    train.main()
    for name in pretrained.names():
        model = measure.load(tmp_path / name)
        assert {key: getattr(model.config, key) for key in train.DRAFT_SHAPE} == (
            train.TARGET_SHAPE if name == "target" else train.DRAFT_SHAPE
        )
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "target", local_files_only=True)
    tokens = measure.documents_as_tokens(pretrained.held_out(tmp_path), tokenizer)
    untrained = measure.entropy_and_cross_entropy(train.untrained(train.TARGET_SHAPE).eval(), tokens[:8])[1]
    assert measure.entropy_and_cross_entropy(measure.load(tmp_path / "target"), tokens[:8])[1] < untrained - 0.5
    assert "documents held out" in capsys.readouterr().out
