"""Guidance keeps a cache of its own, fed at every call. Speculation calls it for drafts too, and takes none of them back."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

shape = {"vocab_size": 32, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
torch.manual_seed(0)
model, assistant = (LlamaForCausalLM(LlamaConfig(**shape, initializer_range=0.3, eos_token_id=None)).eval() for _ in range(2))
SCALE, NEW = 1.5, 24


def guided(prompt: list[int]) -> list[int]:
    """Greedy decoding by the definition of guidance, without any cache: the second sequence begins at the last prompt token."""
    tokens = list(prompt)
    for _ in range(NEW):
        with torch.no_grad():
            with_prompt, without = (
                model(torch.tensor([ids]), use_cache=False).logits[0, -1].log_softmax(-1)
                for ids in (tokens, tokens[len(prompt) - 1 :])
            )
        tokens.append(int((SCALE * (with_prompt - without) + without).argmax()))
    return tokens[len(prompt) :]


found = False
for start in range(4):
    ids = torch.tensor([[start + 5, 6, 7, 8, start + 5, 6, 7, 8]])
    settings = {"do_sample": False, "max_new_tokens": NEW, "pad_token_id": 0, "attention_mask": torch.ones_like(ids)}
    right = guided(ids[0].tolist())
    for speculation in ({}, {"prompt_lookup_num_tokens": 4}, {"assistant_model": assistant}):
        out = model.generate(ids, guidance_scale=SCALE, **speculation, **settings)[0, ids.shape[1] :].tolist()
        same = next((i for i in range(NEW) if out[i] != right[i]), NEW)
        found |= bool(speculation) and same < NEW
        print(start, list(speculation) or "no speculation", f"right in the first {same} of {NEW} tokens")
raise SystemExit(int(found))
