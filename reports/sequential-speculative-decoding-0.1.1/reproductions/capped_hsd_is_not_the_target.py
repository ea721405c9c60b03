"""sequential-speculative-decoding 0.1.1: the first token of a "capped HSD" round does not follow the target's law.

Target and draft give the same law after every text, p and q. The standard and the naive rule give p, the capped one gives q.
Exit code 1 if the fault is there.
"""

from types import SimpleNamespace

import torch
from seqspecdecod.capped_hsd import capped_hsd_step
from seqspecdecod.naive_hsd import naive_hsd_step
from seqspecdecod.standard_sd import standard_speculative_step

N, P, Q = 8_000, torch.tensor([0.6, 0.3, 0.1]), torch.tensor([0.2, 0.3, 0.5])

target, draft = (lambda ids, p=p: SimpleNamespace(logits=p.log().expand(*ids.shape, 3)) for p in (P, Q))
torch.manual_seed(0)
torch.set_num_threads(1)
found, heat = {}, {"draft_temperature": 1.0, "target_temperature": 1.0}
for step in (standard_speculative_step, naive_hsd_step, capped_hsd_step):
    counts = torch.zeros(3)
    for _ in range(N):
        after, _, _ = step(draft, target, torch.zeros((1, 1), dtype=torch.long), gamma=3, **heat)
        counts[after[0, 1]] += 1
    found[step.__name__] = 0.5 * float((counts / N - P).abs().sum())
    print(f"{step.__name__}: first token {(counts / N).tolist()}, total variation {found[step.__name__]:.3f}")
raise SystemExit(int(found["capped_hsd_step"] > 0.05))
