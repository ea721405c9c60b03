"""vLLM 0.32.0, CPU: rejection_sample_method="block" is accepted and changes nothing, and drawn drafts are silently chosen ones.

The runner that CPUs have knows no block verification; where the method is not "standard" it also ignores
draft_sample_method="probabilistic". Both are settings of the speculation: there is no side with it off, and the standard method
stands beside it. Exit code 1 if the fault is there.
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
drawn = {"method": "draft_model", "model": folder, "num_speculative_tokens": 3, "draft_sample_method": "probabilistic"}
drafts_drawn = {}
for method in ("standard", "block"):
    speculation = drawn | {"rejection_sample_method": method}
    llm = LLM(folder, kv_cache_memory_bytes=2**26, speculative_config=speculation, **options)  # no error and no warning
    runner = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
    verifier = runner.rejection_sampler
    knows = "block" in str(vars(verifier)) or "V2" in type(runner).__name__
    drafts_drawn[method] = runner.drafter._enable_probabilistic_draft_probs
    print(f"{method}: drafts are drawn: {drafts_drawn[method]}; {type(verifier).__module__} knows block verification: {knows}")
sys.exit(int(not knows and drafts_drawn["standard"] and not drafts_drawn["block"]))
