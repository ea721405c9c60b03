"""vLLM 0.32.0, CPU: laws with NaN or infinities are verified without a word, and a token is emitted.

They are handed to the function that verifies, and, as without speculation, to the sampler, which says nothing either.
The setting VLLM_RAISE_ON_LOGIT_NANS, off by default, is for runners, which call both. Exit code 1 if the fault is there.
"""

import sys
from types import SimpleNamespace

import torch
from vllm.platforms import current_platform
from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler
from vllm.v1.sample.rejection_sampler import rejection_sample

current_platform.import_kernels()
current_platform.register_triton_kernel_overrides()
B, V, NAN, INFINITE = 256, 4, float("nan"), float("inf")
drafts, ends = torch.ones(B, dtype=torch.int32), torch.arange(1, B + 1, dtype=torch.int32)  # each row drafts token 1
settings = SimpleNamespace(all_greedy=False, all_random=True, temperature=torch.ones(B), generators={})
laws = {"a law": [0.1, 0.2, 0.3, 0.4], "NaN at the draft": [0.25, NAN, 0.5, 0.25], "all NaN": [NAN] * V}
laws["an infinity at the draft"] = [0.0, INFINITE, 0.5, 0.0]
answered = 0
for name, law in laws.items():
    logits = torch.tensor([law]).log().repeat(B, 1)
    print(f"{name}: without speculation tokens", sorted(set(TopKTopPSampler()(logits.clone(), {}, None, None)[0].tolist())))
    for kind, q in (("chosen", None), ("drawn", torch.full((B, V), 0.25))):
        bonus = torch.zeros((B, 1), dtype=torch.int32)
        out = rejection_sample(drafts, [1] * B, 1, ends, q, logits.clone(), bonus, settings)
        print(f"  {kind} drafts: {int((out[:, 1] >= 0).sum())} of {B} accepted, tokens", sorted(set(out[:, 0].tolist())))
        answered += name != "a law" and bool((out[:, 0] >= 0).all())
sys.exit(int(answered > 0))
