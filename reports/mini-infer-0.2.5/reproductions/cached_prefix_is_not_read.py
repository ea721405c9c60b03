"""mini-infer 0.2.5: a prompt that was asked before is continued otherwise, with the prefix cache that is on by default.

Of a prompt whose first blocks are cached only the rest is read, without the cached keys and values, at positions that start
from 0. The model is random; no speculation is involved. Exit code 1 if the fault is there.
"""

import torch
from mini_infer.engine import InferenceEngine
from mini_infer.models.config import Qwen2Config
from mini_infer.models.qwen2 import Qwen2ForCausalLM

torch.set_num_threads(1)
torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 16}
config = Qwen2Config(vocab_size=64, num_key_value_heads=1, rope_theta=1e4, tie_word_embeddings=False, **sizes)
model, prompt = Qwen2ForCausalLM(config).eval(), torch.randint(0, 64, (40,)).tolist()
written = {}
for cached in (False, True):
    engine = InferenceEngine(model, config, enable_prefix_caching=cached, device=torch.device("cpu"))
    for time in ("first", "second"):
        sequence = engine.add_request(prompt, max_tokens=12, temperature=0.0)
        while engine.scheduler.has_unfinished_sequences():
            engine.step()
        written[cached, time] = sequence.output_token_ids
        print(f"prefix caching {cached}, {time} time: {sequence.output_token_ids}")
right = written[False, "first"] == written[False, "second"] == written[True, "first"]
raise SystemExit(int(right and written[True, "second"] != written[True, "first"]))
