"""vLLM 0.32.0, CPU: after an `LLM` that has looked up n-grams, no other `LLM` can be started in the same process.

Starting one looks through all attributes of all modules, and calls `vars(...).get` on one of Numba's, which has none.
Exit code 1 if the fault is there.
"""

import os
import sys
import tempfile

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "TORCHDYNAMO_DISABLE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
import transformers
from vllm import LLM

sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 32}
config = transformers.LlamaConfig(vocab_size=64, num_key_value_heads=2, **sizes)
folder = tempfile.mkdtemp()
transformers.LlamaForCausalLM(config).save_pretrained(folder)
options = {"skip_tokenizer_init": True, "dtype": "float32", "enforce_eager": True, "max_model_len": 128}
lookup = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
for name, speculation in (("off", None), ("off again", None), ("ngram", lookup), ("off after ngram", None)):
    try:
        LLM(folder, kv_cache_memory_bytes=2**26, speculative_config=speculation, **options)
        print(f"{name}: started")
    except AttributeError as error:
        print(f"{name}: AttributeError: {error}")
        sys.exit(1)
