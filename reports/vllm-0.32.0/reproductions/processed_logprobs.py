"""vLLM 0.32.0, CPU: with speculation, processed log-probabilities of drafted tokens are not those of the temperature asked for.

It does not reach the verification of drafts (see expand.py), whose logits they are taken from. Each is compared with that
of transformers, at temperature 0.5. Exit code 1 if the fault is there.
"""

import os
import sys
import tempfile

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "TORCHDYNAMO_DISABLE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
import torch
import transformers
from vllm import LLM, SamplingParams

torch.manual_seed(0)
sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 32}
config = transformers.LlamaConfig(vocab_size=64, num_key_value_heads=2, initializer_range=0.2, **sizes)
model, folder, HEAT = transformers.LlamaForCausalLM(config).eval(), tempfile.mkdtemp(), 0.5
model.save_pretrained(folder)
options = {"skip_tokenizer_init": True, "dtype": "float32", "enforce_eager": True, "max_model_len": 128}
draft, wrong = {"method": "draft_model", "model": folder, "num_speculative_tokens": 3}, []
settings = SamplingParams(max_tokens=24, temperature=HEAT, logprobs=0, ignore_eos=True, detokenize=False)
for name, speculation in (("off", None), ("draft_model", draft)):
    options |= {"speculative_config": speculation, "logprobs_mode": "processed_logprobs"}
    llm, wrong = LLM(folder, kv_cache_memory_bytes=2**26, **options), [*wrong, 0]
    for asked in llm.generate([{"prompt_token_ids": [i, 1, 2, 3]} for i in range(16)], settings, use_tqdm=False):
        new = list(asked.outputs[0].token_ids)
        law = model(torch.tensor([[*asked.prompt_token_ids, *new]])).logits[0, 3:-1].div(HEAT).log_softmax(-1)
        for at, (token, said) in enumerate(zip(new, asked.outputs[0].logprobs)):
            wrong[-1] += not abs(said[token].logprob - float(law[at, token])) < 1e-3
    print(f"{name}: {wrong[-1]} of {16 * 24} log-probabilities are not those of temperature {HEAT}")
    del llm  # what it leaves behind is cleared away before the next one starts
sys.exit(int(wrong[0] == 0 < wrong[1]))
