"""One sampled call with `assistant_tokenizer` prunes the assistant's head for good: other uses of it crash from then on."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast


def made(size: int) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """A random model over `size` letters, and its tokenizer."""
    words = Tokenizer(models.WordLevel({chr(97 + number): number for number in range(size)}, unk_token="a"))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=size, **shape, eos_token_id=None, bos_token_id=None)
    return LlamaForCausalLM(config).eval(), PreTrainedTokenizerFast(tokenizer_object=words, unk_token="a")


torch.manual_seed(0)
(target, tokenizer), (assistant, other) = made(12), made(14)
ids = torch.tensor([[1, 2, 3, 4]])
settings = {"max_new_tokens": 8, "pad_token_id": 0, "attention_mask": torch.ones_like(ids)}
named = {"assistant_model": assistant, "tokenizer": tokenizer, "assistant_tokenizer": other}
found = False
for what, model, more in (
    ("greedy, assisted", target, {"do_sample": False, **named}),
    ("sampled, assisted", target, {"do_sample": True, **named}),
    ("greedy, assisted", target, {"do_sample": False, **named}),
    ("the assistant alone", assistant, {"do_sample": False}),
):
    try:
        print(what, model.generate(ids, **settings, **more)[0, 4:].tolist())
    except RuntimeError as crash:
        found |= model is assistant
        print(what, "RuntimeError:", crash)
raise SystemExit(int(found))
