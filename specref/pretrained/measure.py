"""Measure the model family: how uncertain the target is, and how often it accepts each draft.

    python -m specref.pretrained.measure [--family DIR]

prints the figures of README.md. Everything is computed from whole next-token laws at temperature 1; chance enters only
through the contexts that the target samples.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast

from specref.pretrained import held_out, names, path


def load(folder: Path) -> PreTrainedModel:
    """One model of a family, ready to evaluate, in float32.

    >>> load(path("draft")).config.vocab_size
    114
    """
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    return model.eval()


def documents_as_tokens(documents: list[str], tokenizer: PreTrainedTokenizerFast, longest: int = 256) -> Tensor:
    """<bos> text <eos> of each document, cut after `longest` tokens and padded on the right: [documents, longest].

    >>> tokenizer = AutoTokenizer.from_pretrained(path("target"))
    >>> documents_as_tokens(["ab"], tokenizer, longest=6).tolist() == [[1, *tokenizer.encode("ab"), 2, 0, 0]]
    True
    """
    pad = tokenizer.pad_token_id
    rows = [[tokenizer.bos_token_id, *tokenizer.encode(text), tokenizer.eos_token_id][:longest] for text in documents]
    return torch.tensor([row + [pad] * (longest - len(row)) for row in rows])


def target_writes(target: PreTrainedModel, tokens: Tensor, seed: int, prompt: int = 16, new: int = 64) -> Tensor:
    """What the target samples at temperature 1 after the first `prompt` tokens of each row: [rows, prompt + new].

    Rows that end early are padded; rows whose document is shorter than the prompt are left out.

    >>> target_writes(load(path("draft")), torch.full((2, 5), 40), seed=0, prompt=3, new=4).shape[0]
    2
    """
    pad = target.config.pad_token_id
    prompts = tokens[(tokens[:, :prompt] != pad).all(dim=1)][:, :prompt]
    torch.manual_seed(seed)
    written: Tensor = target.generate(
        prompts, attention_mask=torch.ones_like(prompts), do_sample=True, temperature=1.0, top_k=0, max_new_tokens=new
    )
    return written


@torch.no_grad()
def next_laws(model: PreTrainedModel, tokens: Tensor) -> Tensor:
    """The law of every token given those before it in its row: [rows, length - 1, V], float64.

    >>> laws = next_laws(load(path("draft")), torch.tensor([[1, 40, 41]]))
    >>> laws.shape, laws.sum(-1).round(decimals=6).tolist()
    (torch.Size([1, 2, 114]), [[1.0, 1.0]])
    """
    laws: Tensor = model(input_ids=tokens[:, :-1]).logits.double().softmax(-1)
    return laws


def entropy_and_cross_entropy(model: PreTrainedModel, tokens: Tensor) -> tuple[float, float]:
    """Nats per token: the mean entropy of the model's own laws in these contexts, and its loss on what really follows.

    >>> entropy, loss = entropy_and_cross_entropy(load(path("draft")), torch.tensor([[1, 40, 41]]))
    >>> 0 < entropy < 4.8 and loss > 0                              # ln 114 = 4.74
    True
    """
    laws, following = next_laws(model, tokens), tokens[:, 1:]
    real = following != model.config.pad_token_id
    entropy = -torch.xlogy(laws, laws).sum(-1)
    loss = -laws.gather(-1, following[..., None])[..., 0].log()
    return entropy[real].mean().item(), loss[real].mean().item()


def acceptance(target: PreTrainedModel, draft: PreTrainedModel, written: Tensor, prompt: int = 16) -> Tensor:
    """sum_v min(p(v), q(v)) in every context that the target wrote after the prompt: [contexts], float64.

    This is the probability that one token of the draft is accepted there
    (Leviathan et al. 2023, arXiv:2211.17192, section 3.2).

    >>> model = load(path("draft"))
    >>> acceptance(model, model, torch.tensor([[1, 40, 41, 42]]), prompt=2).round(decimals=6).tolist()      # p = q
    [1.0, 1.0]
    """
    shared = torch.minimum(next_laws(target, written), next_laws(draft, written)).sum(-1)
    real = written[:, 1:] != target.config.pad_token_id
    return shared[:, prompt - 1 :][real[:, prompt - 1 :]]


def main() -> None:
    """The command line; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m specref.pretrained.measure", description="Measure the model family.")
    parser.add_argument("--family", type=Path, default=path("target").parent, help="folder that holds the models")
    family = parser.parse_args().family

    tokenizer = AutoTokenizer.from_pretrained(family / "target", local_files_only=True)
    loaded = {name: load(family / name) for name in names()}
    tokens = documents_as_tokens(held_out(family), tokenizer)
    written = target_writes(loaded["target"], tokens.repeat(4, 1), seed=1)
    ended = (written[:, 16:] == tokenizer.eos_token_id).any(dim=1).double().mean().item()

    print(f"V = {len(tokenizer)}; {len(tokens)} held-out documents, {int((tokens != tokenizer.pad_token_id).sum())} tokens")
    for name, model in loaded.items():
        entropy, loss = entropy_and_cross_entropy(model, tokens)
        print(f"{name}: {model.num_parameters():,} parameters; nats per token: entropy {entropy:.2f}, loss {loss:.2f}")
    print(f"target: {ended:.0%} of {len(written)} continuations of at most 64 tokens ended in <eos>")
    for name in names()[1:]:
        accepted = acceptance(loaded["target"], loaded[name], written)
        print(f"{name}: acceptance {accepted.mean().item():.3f} over {len(accepted)} contexts written by the target")
    print("\nA sample of the target:\n" + tokenizer.decode(written[0], skip_special_tokens=True))


if __name__ == "__main__":
    main()
