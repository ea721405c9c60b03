"""rotalabs-accel 1.1.1: greedy EAGLE and Medusa write other tokens than the target alone, and more than `max_new_tokens`.

Rejected drafts stay in the target's cache, and what is read again stands in it twice: `eagle_decode` reads the last token
before drafting and once more to verify, `medusa_decode` the whole text in every round. The target is random. Exit code 1 if the
fault is there.
"""

from types import SimpleNamespace

import torch
from rotalabs_accel.speculative import EAGLEConfig, EAGLEModel, MedusaConfig, MedusaModel, eagle_decode, medusa_decode
from transformers import LlamaConfig, LlamaForCausalLM

NEW, cpu, wrong, longer = 24, torch.device("cpu"), 0, 0
shape = {"vocab_size": 12, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
torch.manual_seed(0)
target = LlamaForCausalLM(LlamaConfig(**shape, initializer_range=0.3, eos_token_id=None)).eval()
eagle, medusa = EAGLEModel(target).eval(), MedusaModel(target, num_heads=3).eval()
for start in range(6):
    prompt = torch.tensor([[start, 5, 6, 7]])
    tokenizer = SimpleNamespace(encode=lambda text, return_tensors, ids=prompt: ids, eos_token_id=-1)
    tokenizer.decode = lambda ids, **options: ids[4:].tolist()
    settings = {"do_sample": False, "max_new_tokens": NEW, "pad_token_id": 0, "attention_mask": torch.ones_like(prompt)}
    usual = target.generate(prompt, **settings)[0, 4:].tolist()
    by_eagle, _ = eagle_decode(eagle, tokenizer, "text", EAGLEConfig(max_new_tokens=NEW), cpu)
    by_medusa, _ = medusa_decode(medusa, target, tokenizer, "text", MedusaConfig(num_heads=3, max_new_tokens=NEW), cpu)
    for name, out in (("EAGLE", by_eagle), ("Medusa", by_medusa)):
        same = next((i for i in range(NEW) if out[i] != usual[i]), NEW)
        wrong, longer = wrong + (same < NEW), longer + (len(out) > NEW)
        print(f"{name}, prompt {start}: the target's own tokens in the first {same} of {NEW}; {len(out)} written")
raise SystemExit(int(wrong > 0 and longer > 0))
