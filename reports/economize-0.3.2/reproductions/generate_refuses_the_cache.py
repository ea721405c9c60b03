"""economize 0.3.2: `generate`, called as its README has it, raises with transformers 5.24.0, speculation on or off.

transformers prepares a cache and hands it over as `cache`; economize knows it as `past_key_values`, and takes it for an input
of the caller's. With `use_cache=False`, and by `decode`, the base model's own tokens come. Exit code 1 if the fault is there.
"""

import economize
import torch
from economize.techniques.lookup import LookupConfig
from transformers import LlamaConfig, LlamaForCausalLM

shape = {"vocab_size": 32, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
torch.manual_seed(0)
torch.set_num_threads(1)
base, NEW = LlamaForCausalLM(LlamaConfig(**shape, eos_token_id=None, bos_token_id=None)).eval(), 16
ids, raised = torch.tensor([[1, 2, 3, 1, 2, 3]]), []
usual = base.generate(ids, max_new_tokens=NEW, do_sample=False)[0, ids.shape[1] :].tolist()
for name, technique in (("off", ()), ("lookup", (LookupConfig(),))):
    model = economize.apply(base, *technique)
    for more in ({}, {"use_cache": False}):
        try:
            tokens = model.generate(ids, max_new_tokens=NEW, do_sample=False, **more)[0, ids.shape[1] :].tolist()
            print(f"{name}, generate {more}: the base model's tokens: {tokens == usual}")
        except economize.ConfigError as error:
            raised.append((name, *more))
            print(f"{name}, generate {more}: {type(error).__name__}: {error}")
    print(f"{name}, decode: the base model's tokens: {model.decode(ids[0], NEW).tokens.tolist()[-NEW:] == usual}")
raise SystemExit(int(raised == [("off",), ("lookup",)]))
