"""Guidance keeps a cache of its own that rejected drafts never leave (guidance_scale.py): on GPT-2 it passes the last position.

GPT-2 has an embedding for each position. Texts that fit well without speculation end in an IndexError with it.
"""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
shape = {"vocab_size": 32, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 40}
config = GPT2Config(**shape, initializer_range=0.3, eos_token_id=None, bos_token_id=None)
model, assistant = (GPT2LMHeadModel(config).eval() for _ in range(2))

raised = {"no speculation": 0, "prompt lookup": 0, "assistant": 0}
for start in range(4):
    ids = torch.tensor([[start + 5, 6, 7, 8, start + 5, 6, 7, 8]])
    settings = {"do_sample": False, "max_new_tokens": 24, "pad_token_id": 0, "attention_mask": torch.ones_like(ids)}
    for label, speculation in zip(raised, ({}, {"prompt_lookup_num_tokens": 4}, {"assistant_model": assistant})):
        for scale in (None, 1.5):
            try:
                model.generate(ids, guidance_scale=scale, **speculation, **settings)
                print(start, label, f"guidance {scale}: finished, {ids.shape[1] + 24} of {config.n_positions} positions")
            except IndexError as error:
                raised[label] += scale is not None
                print(start, label, f"guidance {scale}: IndexError: {error}")
raise SystemExit(int(raised["no speculation"] == 0 < max(raised.values())))
