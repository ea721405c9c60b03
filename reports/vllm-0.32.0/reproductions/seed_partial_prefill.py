"""vLLM 0.32.0, CPU: a request with a seed fails where its prompt is read in more than one part. Speculation has no part in it.

RuntimeError: CPU Generator does not use offset. Exit code 1 if the fault is there.
"""

import os
import sys
import tempfile

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "TORCHDYNAMO_DISABLE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
import transformers
from vllm import LLM, SamplingParams

sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 32}
config = transformers.LlamaConfig(vocab_size=64, num_key_value_heads=2, **sizes)
folder = tempfile.mkdtemp()
transformers.LlamaForCausalLM(config).save_pretrained(folder)
options = {"skip_tokenizer_init": True, "dtype": "float32", "enforce_eager": True, "max_model_len": 128}
small = {"max_num_seqs": 4, "max_num_batched_tokens": 16}  # the prompt has 32 tokens
llm = LLM(folder, kv_cache_memory_bytes=2**26, **options, **small)
for seed in (None, 7):
    settings = SamplingParams(max_tokens=4, seed=seed, ignore_eos=True, detokenize=False)
    try:
        output = llm.generate([{"prompt_token_ids": list(range(32))}], settings, use_tqdm=False)
        print(f"seed {seed}: {output[0].outputs[0].token_ids}")
    except RuntimeError as error:
        print(f"seed {seed}: RuntimeError: {error}")
        sys.exit(1)
