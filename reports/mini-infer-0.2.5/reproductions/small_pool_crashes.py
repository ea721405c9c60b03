"""mini-infer 0.2.5: requests that fit one at a time end in a MemoryError together, although the README promises pre-emption.

Requests are let in while two blocks are free, however many they and those let in beside them will need; reading a prompt then
takes blocks without looking. ("the scheduler preempts lowest-priority sequences back to WAITING instead of crashing with OOM".)
Exit code 1 if the fault is there.
"""

import torch
from mini_infer.engine import InferenceEngine
from mini_infer.models.config import Qwen2Config
from mini_infer.models.qwen2 import Qwen2ForCausalLM

torch.set_num_threads(1)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 16}
config = Qwen2Config(vocab_size=64, num_key_value_heads=1, rope_theta=1e4, tie_word_embeddings=False, **sizes)
model, ended = Qwen2ForCausalLM(config).eval(), {}
for requests in (1, 4):
    engine = InferenceEngine(model, config, num_blocks=8, enable_prefix_caching=False, device=torch.device("cpu"))
    for start in range(requests):
        engine.add_request(list(range(start, start + 48)), max_tokens=16)
    try:
        while engine.scheduler.has_unfinished_sequences():
            engine.step()
        ended[requests] = "all written"
    except MemoryError as error:
        ended[requests] = f"MemoryError: {error}"
    print(f"{requests} requests of 4 blocks each, a pool of 8 blocks: {ended[requests]}")
raise SystemExit(int(ended[1] == "all written" and ended[4] != "all written"))
