"""speculative-decoding 0.2.0: in a batch, greedy speculative decoding writes other tokens than the same prompts one by one.

Rows that accept less are moved to the right, and what is left of them is not masked: `Decoder.forward` computes the mask from
`seq_start_pos`, and its layers are not given it. One row alone is right, and so are all without speculation. The model is
random. Exit code 1 if the fault is there.
"""

import torch
from speculative_decoding import Decoder, base_decoding, speculative_decoding

torch.set_num_threads(1)
torch.manual_seed(0)
target = Decoder(num_tokens=32, dim=32, depth=2, heads=2, dim_head=16).eval()
draft = Decoder(num_tokens=32, dim=16, depth=1, heads=1, dim_head=16).eval()
draft.token_emb.weight.data.copy_(target.token_emb.weight[:, :16])
draft.to_logits[1].weight.data.copy_(target.to_logits[1].weight[:, :16])  # so that some of its drafts are accepted
prompts, length, greedy = torch.randint(0, 32, (8, 12)), 76, {"temperature": 0.0, "filter_thres": 0.0}
alone = torch.cat([base_decoding(target, row[None], length, **greedy) for row in prompts])
one_by_one = torch.cat([speculative_decoding(target, draft, row[None], length, **greedy)[0] for row in prompts])
together = base_decoding(target, prompts, length, **greedy)
speculated, accepted = speculative_decoding(target, draft, prompts, length, **greedy)
print(f"accepted per round: {float(accepted):.2f} of 5")
for what, rows in (("speculation, one by one", one_by_one), ("a batch", together), ("speculation in a batch", speculated)):
    print(f"{what}: {int((rows != alone).any(dim=1).sum())} of 8 rows differ from plain decoding one by one")
raise SystemExit(int(bool((speculated != alone).any()) and bool((one_by_one == alone).all() & (together == alone).all())))
