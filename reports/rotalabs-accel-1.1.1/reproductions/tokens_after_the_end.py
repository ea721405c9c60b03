"""rotalabs-accel 1.1.1: outputs go on after the tokenizer's end, which is looked for once in a round; the rest is not cut.

The target's best token is 3, then 1, which ends an output, then 3 again; the draft knows it. Exit code 1 if the fault is there.
"""

from types import SimpleNamespace

import torch
from rotalabs_accel.speculative import TreeSpecConfig, tree_speculative_decode


def model(ids, **options):
    """Logits `[1, n, 4]`: 1 after 3, and 3 after all else."""
    return SimpleNamespace(logits=40.0 * torch.nn.functional.one_hot(torch.where(ids == 3, 1, 3), 4))


torch.manual_seed(0)
tokenizer = SimpleNamespace(encode=lambda text, return_tensors: torch.tensor([[0]]), decode=lambda ids, **options: ids.tolist())
tokenizer.eos_token_id = 1
config = TreeSpecConfig(branch_factor=1, max_depth=4, max_new_tokens=16)
tokens, _ = tree_speculative_decode(model, model, tokenizer, "text", config, torch.device("cpu"))
print(f"written: {tokens[1:]}, where 1 ends an output")
raise SystemExit(int(1 in tokens and tokens.index(1) + 1 < len(tokens)))
