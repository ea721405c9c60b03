"""Stop strings are looked for at the end of a round only; an assistant refuses them although a tokenizer is given."""

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

letters = Tokenizer(models.WordLevel({chr(97 + number): number for number in range(26)}, unk_token="z"))
letters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
letters.decoder = decoders.Fuse()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=letters, unk_token="z")
shape = {"vocab_size": 26, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}


def made(seed: int) -> LlamaForCausalLM:
    """A random model."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**shape, initializer_range=0.3, eos_token_id=None, bos_token_id=None)).eval()


model, assistant = made(0), made(1)
settings = {"do_sample": False, "max_new_tokens": 24, "pad_token_id": 0}
found = False
for start in range(4):
    ids = torch.tensor([[start, 1, 2, 3]])
    ids = model.generate(ids, attention_mask=torch.ones_like(ids), **settings)  # it has begun to repeat itself
    named = {"attention_mask": torch.ones_like(ids), "tokenizer": tokenizer, **settings}
    usual = model.generate(ids, **named)[0, ids.shape[1] :].tolist()
    stop = tokenizer.decode(usual[1:2])
    for speculation in ({}, {"prompt_lookup_num_tokens": 4}, {"assistant_model": assistant}):
        try:
            out = model.generate(ids, stop_strings=[stop], **speculation, **named)[0, ids.shape[1] :]
            found |= tokenizer.decode(out).index(stop) + 1 < len(out)
            print(start, list(speculation) or "no speculation", f"stop at {stop!r}: {tokenizer.decode(out)}")
        except ValueError as refused:
            print(start, list(speculation), str(refused)[:90])
raise SystemExit(int(found))
