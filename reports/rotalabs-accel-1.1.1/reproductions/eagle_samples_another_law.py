"""rotalabs-accel 1.1.1: `eagle_verify`, sampling, does not give the target's law, after a rejection nor after full acceptance.

A rejected draft's place is drawn from max(0, p - q(x)), the draft's one probability taken from every token's, in place of
max(0, p - q); and after k accepted drafts the next token is the target's best. Target and draft give the same laws, p and q,
after every text. Exit code 1 if the fault is there.
"""

from types import SimpleNamespace

import torch
from rotalabs_accel.speculative import eagle_verify

N, P, Q = 20_000, torch.tensor([0.4, 0.4, 0.2]), torch.tensor([0.1, 0.1, 0.8])


def target(ids, **options):
    """Logits `[1, n, 3]`."""
    return SimpleNamespace(logits=P.log().expand(*ids.shape, 3), past_key_values=None)


torch.manual_seed(0)
first, after = torch.zeros(3), torch.zeros(3)
for _ in range(N):
    drafts = torch.multinomial(Q, 1).view(1, 1)
    tokens, _, _ = eagle_verify(target, torch.zeros((1, 1), dtype=torch.long), drafts, Q[drafts], None, use_sampling=True)
    first[tokens[0]] += 1
    if len(tokens) > 1:
        after[tokens[1]] += 1
print(f"the first token of a round: {(first / N).tolist()}, the target's law is {P.tolist()}")
print(f"the token after an accepted draft: {(after / after.sum()).tolist()}, the target's law is {P.tolist()}")
raise SystemExit(int(abs(first / N - P).sum() > 0.1 and after[0] == after.sum()))
