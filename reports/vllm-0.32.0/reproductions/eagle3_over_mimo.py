"""vLLM 0.32.0, CPU: EAGLE-3 heads over a MiMo target are taken, and then end the engine; over a Qwen2 they draft.

`MiMoForCausalLM` inherits from Qwen2's that it supports EAGLE-3, but `MiMoModel.forward` gives no states of the layers between,
which the runner unpacks. Exit code 1 if the fault is there.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "TORCHDYNAMO_DISABLE": "1", "VLLM_LOGGING_LEVEL": "CRITICAL"}
import transformers
from vllm import LLM, SamplingParams

from specref import pretrained

sizes = {"vocab_size": 114, "hidden_size": 128, "intermediate_size": 416, "max_position_embeddings": 512}
heads = {"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}
folder = Path(tempfile.mkdtemp())
transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**sizes, **heads)).save_pretrained(folder)
config = json.loads((folder / "config.json").read_text())
heads = {"method": "eagle3", "model": str(pretrained.path("target").parent / "eagle3"), "num_speculative_tokens": 3}
options = {"skip_tokenizer_init": True, "dtype": "float32", "enforce_eager": True, "max_model_len": 128}
settings = SamplingParams(max_tokens=8, temperature=0, ignore_eos=True, detokenize=False)
for architecture in ("Qwen2ForCausalLM", "MiMoForCausalLM"):
    (folder / "config.json").write_text(json.dumps(config | {"architectures": [architecture]}))
    try:
        llm = LLM(str(folder), speculative_config=heads, kv_cache_memory_bytes=2**26, **options)
        answer = llm.generate([{"prompt_token_ids": [1, 2, 3]}], settings, use_tqdm=False)[0]
        print(f"{architecture}: {answer.outputs[0].token_ids}")
        del llm
    except ValueError as error:
        print(f"{architecture}: ValueError: {error}")
        sys.exit(int(architecture == "MiMoForCausalLM"))
