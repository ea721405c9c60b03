"""rotalabs-accel 1.1.1: `tree_speculative_decode` reads the last token and the tree alone: no text, no mask.

The target continues a text with the sum of all its tokens modulo 16, almost surely; so does the draft. `verify_tree` calls
the target with the last token and all of the tree's, in one row and without a mask. Exit code 1 if the fault is there.
"""

from types import SimpleNamespace

import torch
from rotalabs_accel.speculative import TreeSpecConfig, tree_speculative_decode


def model(ids, **options):
    """Logits `[1, n, 16]`."""
    return SimpleNamespace(logits=20.0 * torch.nn.functional.one_hot(ids.cumsum(1) % 16, 16))


torch.manual_seed(0)
wrong = written = 0
for start in range(20):
    prompt = torch.tensor([[start % 16, 3, 5]])
    tokenizer = SimpleNamespace(encode=lambda text, return_tensors, ids=prompt: ids, eos_token_id=-1)
    tokenizer.decode = lambda ids, **options: ids.tolist()
    tokens, _ = tree_speculative_decode(model, model, tokenizer, "text", TreeSpecConfig(max_new_tokens=16), torch.device("cpu"))
    places = range(3, len(tokens))
    wrong += sum(tokens[place] != sum(tokens[:place]) % 16 for place in places)
    written += len(places)
print(f"{wrong} of {written} tokens are not the sum of those before")
raise SystemExit(int(wrong > written / 10))
