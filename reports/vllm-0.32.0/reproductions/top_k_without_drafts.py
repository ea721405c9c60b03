"""vLLM 0.32.0, CPU: with a draft model, a request with top_k ends the engine; without one it is answered.

RuntimeError: max(): Expected reduction dim to be specified for input.numel() == 0, in `apply_top_k_only`, which is handed the
top-k of no row. Exit code 1 if the fault is there.
"""

import os
import sys
import tempfile

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "TORCHDYNAMO_DISABLE": "1", "VLLM_LOGGING_LEVEL": "CRITICAL"}
import transformers
from vllm import LLM, SamplingParams

sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 32}
config = transformers.LlamaConfig(vocab_size=64, num_key_value_heads=2, **sizes)
folder = tempfile.mkdtemp()
transformers.LlamaForCausalLM(config).save_pretrained(folder)
draft = {"method": "draft_model", "model": folder, "num_speculative_tokens": 4}
options = {"skip_tokenizer_init": True, "dtype": "float32", "enforce_eager": True, "max_model_len": 128}
ended = []
for name, speculation in (("off", None), ("draft_model", draft)):
    llm = LLM(folder, speculative_config=speculation, kv_cache_memory_bytes=2**26, **options)
    for asked in ({}, {"top_k": 1}):
        settings = SamplingParams(max_tokens=8, ignore_eos=True, detokenize=False, **asked)
        try:
            output = llm.generate([{"prompt_token_ids": [1, 2, 3]}], settings, use_tqdm=False)
            print(f"{name}, {asked}: {output[0].outputs[0].token_ids}")
        except RuntimeError as error:
            ended.append((name, *asked))
            print(f"{name}, {asked}: RuntimeError: {error}")
    del llm  # what it leaves behind is cleared away before the next one starts
sys.exit(int(ended == [("draft_model", "top_k")]))
