"""Prompt lookup drafts past the end of the output; a static cache has no room there, and the generation crashes."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
shape = {"vocab_size": 32, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
model = LlamaForCausalLM(LlamaConfig(**shape, initializer_range=0.3)).eval()
prompt = torch.tensor([[5, 6, 7, 8, 9] * 4])
settings = {"do_sample": False, "pad_token_id": 0, "attention_mask": torch.ones_like(prompt)}

found = False
for new in range(4, 12):
    for speculation in ({}, {"prompt_lookup_num_tokens": 4}):
        try:
            model.generate(prompt, max_new_tokens=new, cache_implementation="static", **speculation, **settings)
            print(new, speculation or "no speculation", "finished")
        except IndexError as crash:
            found |= bool(speculation)
            print(new, speculation, "IndexError:", crash)  # index_copy_(): index 24 is out of bounds ...
raise SystemExit(int(found))
