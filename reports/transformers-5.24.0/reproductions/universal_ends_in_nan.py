"""Universal assisted sampling with top-k 1: a drafted token of claimed probability 0 is rejected, and nothing is left to draw.

Both laws are then one token. Where it is the same one, p / q of another drafted token is 0 / 0, and the residual p - q is 0.
"""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast


def tokenizer(size: int, shift: int) -> PreTrainedTokenizerFast:
    """`size` letters; the first 12 are in both vocabularies, under other ids."""
    words = Tokenizer(models.WordLevel({chr(97 + i): (i + shift) % size for i in range(size)}, unk_token="a"))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token="a")


def model(size: int) -> LlamaForCausalLM:
    """A random model."""
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=size, **shape, initializer_range=0.5, eos_token_id=None, bos_token_id=None)
    return LlamaForCausalLM(config).eval()


ids, crashes = torch.tensor([[1, 2, 3, 4]]), {"no speculation": 0, "universal assisted": 0}
settings = {"do_sample": True, "top_k": 1, "max_new_tokens": 8, "pad_token_id": 0, "attention_mask": torch.ones_like(ids)}
for seed in range(20):
    torch.manual_seed(seed)
    target, assistant = model(12), model(14)
    more = {"assistant_model": assistant, "tokenizer": tokenizer(12, 0), "assistant_tokenizer": tokenizer(14, 3)}
    for label, named in (("no speculation", {}), ("universal assisted", more)):
        try:
            target.generate(ids, **settings, **named)
        except RuntimeError as error:
            crashes[label] += 1
            print(f"{label}, models of seed {seed}: {error}")
raise SystemExit(int(crashes["universal assisted"] > crashes["no speculation"] == 0))
