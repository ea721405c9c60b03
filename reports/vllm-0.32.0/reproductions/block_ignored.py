"""vLLM 0.32.0, CPU: rejection_sample_method="block" is accepted and changes nothing, and drawn drafts are silently chosen ones.

The runner that CPUs have knows no block verification; where the method is not "standard" it also ignores
draft_sample_method="probabilistic". Exit code 1 if the fault is there.
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
asked = {"rejection_sample_method": "block", "draft_sample_method": "probabilistic"}
speculation = {"method": "draft_model", "model": folder, "num_speculative_tokens": 3, **asked}
llm = LLM(folder, kv_cache_memory_bytes=2**26, speculative_config=speculation, **options)  # neither an error nor a warning
runner = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
verifier = runner.rejection_sampler
knows = "block" in str(vars(verifier)) or "V2" in type(runner).__name__
print(f"{type(runner).__name__} with {type(verifier).__module__}: knows block verification: {knows}")
print("drafts are drawn:", runner.drafter._enable_probabilistic_draft_probs)
sys.exit(int(not knows))
