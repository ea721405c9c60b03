"""Universal assisted sampling: drafted tokens and the law claimed for them are renumbered in two different orders.

The assistant's pruned head follows the order of `get_vocab()` (any order), its logits are laid out in the order of ids.
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
    """A random model, whose laws are flat enough for the wrong order to matter, whichever it is."""
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=size, **shape, initializer_range=0.2, eos_token_id=None, bos_token_id=None)
    return LlamaForCausalLM(config).eval()


torch.manual_seed(0)
target, assistant, N = model(12), model(14), 1500
named = {"assistant_model": assistant, "tokenizer": tokenizer(12, 0), "assistant_tokenizer": tokenizer(14, 3)}
ids = torch.tensor([[1, 2, 3, 4]])
law = target(ids).logits[0, -1].softmax(-1)
settings = {"do_sample": True, "top_k": 0, "max_new_tokens": 3, "pad_token_id": 0, "attention_mask": torch.ones_like(ids)}
found = {}
for label, more in (("no speculation", {}), ("universal assisted", named)):
    counts = torch.zeros(12)
    for _ in range(N):
        counts[target.generate(ids, **settings, **more)[0, 4]] += 1
    found[label] = float((counts / N - law).abs().sum() / 2)
    print(f"{label}: total variation of the first token to the target's law {found[label]:.3f}")
raise SystemExit(int(found["no speculation"] < 0.1 < found["universal assisted"]))
