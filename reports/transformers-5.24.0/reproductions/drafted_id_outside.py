"""A drafted id of -1 is taken for the last token: its probabilities are read, and it can be accepted; V is an IndexError."""

import torch
from transformers.generation.utils import _speculative_sampling

p = torch.tensor([0.1, 0.2, 0.3, 0.4]).log().repeat(1, 2, 1)
q = torch.full((1, 1, 4), 0.25).log()
found = set()
for drafted in (-1, 4):
    try:
        valid, accepted = _speculative_sampling(torch.tensor([[drafted]]), q, 1, p)
        print(f"drafted id {drafted}: {int(accepted)} accepted, emitted {valid.tolist()}")
        found |= {drafted} if int(accepted) == 1 else set()
    except IndexError as error:
        print(f"drafted id {drafted}: IndexError: {error}")
        found |= {drafted}
raise SystemExit(int(found == {-1, 4}))
