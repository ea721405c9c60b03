"""The SynthID watermark keeps the context of its last call. Speculation calls it for drafts too: greedy outputs change."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, SynthIDTextWatermarkingConfig

torch.manual_seed(0)
shape = {"vocab_size": 32, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
model = LlamaForCausalLM(LlamaConfig(**shape, initializer_range=0.3, eos_token_id=None)).eval()
mark = SynthIDTextWatermarkingConfig(keys=[654, 400, 836, 123, 340], ngram_len=3)
NEW = 24

found = False
for start in range(4):
    ids = torch.tensor([[start + 5, 6, 7, 8, start + 5, 6, 7, 8]])
    settings = {"do_sample": False, "max_new_tokens": NEW, "pad_token_id": 0, "attention_mask": torch.ones_like(ids)}
    usual = model.generate(ids, watermarking_config=mark, **settings)[0, ids.shape[1] :].tolist()
    for speculation in ({"prompt_lookup_num_tokens": 4}, {"assistant_early_exit": 1}):
        out = model.generate(ids, watermarking_config=mark, **speculation, **settings)[0, ids.shape[1] :].tolist()
        plain = model.generate(ids, **settings).equal(model.generate(ids, **speculation, **settings))
        same = next((i for i in range(NEW) if out[i] != usual[i]), NEW)
        found |= plain and same < NEW
        print(
            start, speculation, f"the first {same} of {NEW} tokens as without speculation; without the watermark equal: {plain}"
        )
raise SystemExit(int(found))
