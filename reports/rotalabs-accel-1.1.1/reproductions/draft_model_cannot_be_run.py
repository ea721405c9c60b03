"""rotalabs-accel 1.1.1: `speculative_decode` ends with a TypeError, greedy or sampled, before its first draft.

It calls `sample_from_logits` with `use_sampling`, which that function does not have. Exit code 1 if the fault is there.
"""

from types import SimpleNamespace

import torch
from rotalabs_accel.speculative import DecodingMode, SpeculativeConfig, speculative_decode
from transformers import LlamaConfig, LlamaForCausalLM

shape = {"vocab_size": 32, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
model, prompt = LlamaForCausalLM(LlamaConfig(**shape)).eval(), torch.tensor([[1, 2, 3]])
tokenizer = SimpleNamespace(encode=lambda text, return_tensors: prompt, decode=lambda ids, **options: ids, eos_token_id=-1)
raised = []
for mode in DecodingMode:
    config = SpeculativeConfig(max_new_tokens=8, mode=mode)
    try:
        speculative_decode(model, model, tokenizer, "text", config, torch.device("cpu"))
    except TypeError as error:
        raised.append(error)
        print(f"{mode.value}: TypeError: {error}")
raise SystemExit(int(len(raised) == len(DecodingMode)))
