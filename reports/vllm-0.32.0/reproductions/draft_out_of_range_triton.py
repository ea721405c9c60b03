"""vLLM 0.32.0: the Triton kernels read a drafted id above the vocabulary as an index into the target's law, unchecked.

It is accepted or rejected by what lies behind the row, here the next row, so that it can be emitted. A negative id is rejected.
By Triton's interpreter, without a GPU. Without speculation nobody hands over ids. Exit code 1 if the fault is there.
"""

import os
import sys
from types import SimpleNamespace

os.environ |= {"TRITON_INTERPRET": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
import triton.backends

triton.backends.backends["cpu"] = SimpleNamespace(driver=SimpleNamespace(is_active=lambda: True))
import torch  # noqa: E402
from vllm.v1.sample.rejection_sampler import rejection_sample  # noqa: E402

B, V = 128, 4
logits = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).log().repeat(B, 1)
settings = SimpleNamespace(all_greedy=False, all_random=True, temperature=torch.ones(B), generators={})
ends, bonus, outside = torch.arange(1, B + 1, dtype=torch.int32), torch.zeros((B, 1), dtype=torch.int32), set()
for draft in (1, -1, 4, 5):
    for kind, q in (("chosen", None), ("drawn", torch.full((B, V), 0.25))):
        drafts = torch.full((B,), draft, dtype=torch.int32)
        out = rejection_sample(drafts, [1] * B, 1, ends, q, logits.clone(), bonus, settings)[:, 0].tolist()
        outside |= {(draft, token) for token in out if not 0 <= token < V}
        print(f"drafted {draft} ({kind}), V = {V}: emitted {sorted(set(out))}")
sys.exit(int(bool(outside)))
