"""Early exit sets the model's number of layers and does not set it back if anything raises: the model is then unusable.

GPT-2 (like GPT-NeoX, OPT, BLOOM, Falcon, Cohere2, gpt-oss and others) reads all its layers whatever that number says, so that
the cache made for fewer layers is too small. It is not refused: it crashes, and so does plain generation from then on.
"""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_embd=32, n_layer=2, n_head=2)).eval()
prompt = torch.tensor([[5, 6, 7]])
settings = {"do_sample": False, "max_new_tokens": 8, "pad_token_id": 0, "attention_mask": torch.ones_like(prompt)}

print("before:", model.generate(prompt, **settings)[0, 3:].tolist(), "layers", model.config.num_hidden_layers)
for speculation in ({"assistant_early_exit": 1}, {}):
    try:
        print(speculation, model.generate(prompt, **speculation, **settings))
    except IndexError as crash:
        print(speculation or "no speculation", "IndexError:", crash, "- layers", model.config.num_hidden_layers)
