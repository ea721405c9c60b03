"""sequential-speculative-decoding 0.1.1: at temperature 0 a "capped HSD" round ends in a RuntimeError; the other rules go on.

Laws are then one token each. Where the target's token is another one than the draft's, nothing is divided by nothing, and the
next token is drawn from NaN. Without speculation, greedy tokens are the target's best. Exit code 1 if the fault is there.
"""

from types import SimpleNamespace

import torch
from seqspecdecod.capped_hsd import capped_hsd_step
from seqspecdecod.naive_hsd import naive_hsd_step
from seqspecdecod.standard_sd import standard_speculative_step

V, ROUNDS, greedy = 8, 50, {"draft_temperature": 0.0, "target_temperature": 0.0}
torch.manual_seed(0)
torch.set_num_threads(1)
tables = torch.randn(V, V), torch.randn(V, V)  # logits of target and draft after each token
target, draft = (lambda ids, table=table: SimpleNamespace(logits=table[ids]) for table in tables)
errors = {}
for step in (standard_speculative_step, naive_hsd_step, capped_hsd_step):
    ids, wrong, said = torch.zeros((1, 1), dtype=torch.long), 0, []
    for _ in range(ROUNDS):
        try:
            after, _, _ = step(draft, target, ids, gamma=3, **greedy)
        except RuntimeError as error:
            said.append(str(error))
            after = torch.randint(V, (1, 1))
        else:
            new, before = after[0, ids.shape[1] :], after[0, ids.shape[1] - 1 : -1]
            wrong += int((new != tables[0][before].argmax(-1)).sum())
        ids = after[:, -1:]
    errors[step.__name__] = len(said)
    print(f"{step.__name__}: {wrong} tokens are not the target's best, {len(said)} of {ROUNDS} rounds raise {said[:1]}")
raise SystemExit(int(errors["standard_speculative_step"] == errors["naive_hsd_step"] == 0 < errors["capped_hsd_step"]))
