"""mlx-lm 0.32.2: with a draft model, of the prompt `repetition_penalty` sees the last token only; without one, all.

`speculative_generate_step` starts the tokens that processors are given at what is left of the prompt after the prefill, one
token; `generate_step` keeps all that it has read. The model is random, and decodes greedily. Exit code 1 if the fault is there.
"""

import mlx.core as mx
from mlx_lm.generate import generate_step, speculative_generate_step
from mlx_lm.models.llama import Model, ModelArgs
from mlx_lm.sample_utils import make_logits_processors

NEW, shape = 16, {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64, "num_attention_heads": 2}
mx.random.seed(0)
model = Model(ModelArgs("llama", rms_norm_eps=1e-6, vocab_size=24, **shape))
found = {}
for penalty in (None, 2.0):
    different = 0
    for start in range(8):
        prompt = mx.array([start, *range(12, 24)])
        settings = {"max_tokens": NEW, "logits_processors": make_logits_processors(repetition_penalty=penalty)}
        usual = [int(token) for token, _ in generate_step(prompt, model, **settings)]
        out = [int(token) for token, _, _ in speculative_generate_step(prompt, model, model, **settings)]
        different += out != usual
        of_prompt = [sum(token >= 12 for token in tokens) for tokens in (usual, out)]
        print(f"penalty {penalty}: {of_prompt[0]} tokens of the prompt without speculation, {of_prompt[1]} with it")
    found[penalty] = different
print(f"outputs that differ with speculation, of 8: {found}")
raise SystemExit(int(found[None] == 0 < found[2.0]))
