"""Assisted generation reads the whole prompt again on top of a cache that already holds a part of it: another model answers.

`generate` takes a filled cache with the whole prompt (the turns of a chat, a shared prefix): without speculation it reads what
is new, with speculation everything, so that the first part stands in the cache twice.
"""

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

shape = {"vocab_size": 32, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
torch.manual_seed(0)
model, assistant = (LlamaForCausalLM(LlamaConfig(**shape, initializer_range=0.3, eos_token_id=None)).eval() for _ in range(2))

found = False
for start in range(3):
    prompt = torch.tensor([[start + 5, 6, 7, 8, 9, start + 5, 6, 7, 8, 9]])
    settings = {"do_sample": False, "max_new_tokens": 8, "pad_token_id": 0, "attention_mask": torch.ones_like(prompt)}
    usual = model.generate(prompt, **settings)[0, prompt.shape[1] :].tolist()
    for speculation in ({}, {"prompt_lookup_num_tokens": 4}, {"assistant_model": assistant}):
        cache = DynamicCache(config=model.config)
        with torch.no_grad():
            model(prompt[:, :6], cache=cache, use_cache=True)
        out = model.generate(prompt, cache=cache, **speculation, **settings)[0, prompt.shape[1] :].tolist()
        found |= bool(speculation) and out != usual
        read = prompt.shape[1] + len(out) - 1
        print(start, list(speculation) or "no speculation", "as usual" if out == usual else "another output", end=", ")
        print(f"the cache holds {int(cache.get_seq_length())} entries of {read} tokens read")
raise SystemExit(int(found))
