"""vLLM 0.32.0, CPU: with speculation, top_p=1e-6 must give the greedy output, and does not; without it does.

The sampling settings of a request do not reach the verification of drafts (see expand.py). Exit code 1 if the fault is there.
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
config = transformers.LlamaConfig(vocab_size=64, num_key_value_heads=2, initializer_range=0.5, **sizes)
folder = tempfile.mkdtemp()
transformers.LlamaForCausalLM(config).save_pretrained(folder)
lookup = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
options = {"skip_tokenizer_init": True, "dtype": "float32", "enforce_eager": True, "max_model_len": 128}
prompts, wrong = [{"prompt_token_ids": [i, 1, 2, 3, 1, 2, 3]} for i in range(16)], []
for name, speculation in (("off", None), ("ngram", lookup)):
    llm = LLM(folder, speculative_config=speculation, kv_cache_memory_bytes=2**26, **options)
    outputs = []
    for asked in ({"temperature": 0.0}, {"temperature": 1.0, "top_p": 1e-6}):
        settings = SamplingParams(max_tokens=24, ignore_eos=True, detokenize=False, **asked)
        outputs.append([list(one.outputs[0].token_ids) for one in llm.generate(prompts, settings, use_tqdm=False)])
    wrong.append(sum(greedy != truncated for greedy, truncated in zip(*outputs)))
    print(f"{name}: {wrong[-1]} of {len(prompts)} outputs at top_p=1e-6 are not the greedy ones, the first of which")
    print(f"  {outputs[0][0]} became {outputs[1][0]}")
    del llm  # what it leaves behind is cleared away before the next one starts
sys.exit(int(wrong[0] == 0 < wrong[1]))
