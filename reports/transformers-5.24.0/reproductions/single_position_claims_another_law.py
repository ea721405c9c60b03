"""A Gemma 4 assistant drafts its best token and hands over its whole law as the one that it drew from."""

import torch
from transformers import (
    Gemma4AssistantConfig,
    Gemma4AssistantForCausalLM,
    Gemma4ForCausalLM,
    Gemma4TextConfig,
)

V, N = 12, 1000
text = {"vocab_size": V, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
text |= {"num_key_value_heads": 2, "head_dim": 16, "global_head_dim": 16, "initializer_range": 0.15, "sliding_window": 16}
text |= {"layer_types": ["sliding_attention", "full_attention"], "hidden_size_per_layer_input": 0}
text |= {"vocab_size_per_layer_input": 0, "pad_token_id": 0, "eos_token_id": None, "bos_token_id": None}
torch.manual_seed(0)
target = Gemma4ForCausalLM(Gemma4TextConfig(**text)).eval()
shared = Gemma4TextConfig(**text, num_kv_shared_layers=2)
assistant = Gemma4AssistantForCausalLM(Gemma4AssistantConfig(text_config=shared, backbone_hidden_size=32)).eval()
for model in (target, assistant):
    model.generation_config.eos_token_id, model.generation_config.num_assistant_tokens = None, 4
ids = torch.tensor([[1, 2, 3, 4]])
settings = {"do_sample": True, "top_k": 0, "max_new_tokens": 4, "pad_token_id": 0, "attention_mask": torch.ones_like(ids)}
with torch.no_grad():  # the law of the second token, which is the first that is drafted: the sum over all first tokens
    first = target(ids).logits[0, -1].softmax(-1)
    pairs = torch.cat([ids.expand(V, -1), torch.arange(V)[:, None]], dim=1)
    law = first @ target(pairs).logits[:, -1].softmax(-1)
found = {}
for label, more in (("no speculation", {}), ("single position", {"assistant_model": assistant})):
    counts = torch.zeros(V)
    for _ in range(N):
        counts[target.generate(ids, **settings, **more)[0, 5]] += 1
    found[label] = float((counts / N - law).abs().sum() / 2)
    print(f"{label}: total variation of the second token to the target's law {found[label]:.3f}")
raise SystemExit(int(found["no speculation"] < 0.1 < found["single position"]))
