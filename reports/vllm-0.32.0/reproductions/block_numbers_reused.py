"""vLLM 0.32.0, Model Runner V2: block verification reads a place's random number again in the next round.

A number is named by the request's seed and the place. A block looks ahead of what it keeps, so the next round meets numbers of
which it is known what they rejected. The target is a fair coin. By Triton's interpreter, without a GPU. Exit code 1 if so.
"""

import os
import sys
from types import SimpleNamespace

os.environ |= {"TRITON_INTERPRET": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
import triton.backends

triton.backends.backends["cpu"] = SimpleNamespace(driver=SimpleNamespace(is_active=lambda: True))
import torch  # noqa: E402
from vllm.triton_utils import tl, tldevice  # noqa: E402
from vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils import rejection_sample  # noqa: E402

tldevice.log1p = lambda x: tl.log(1 + x)  # the interpreter knows no device library
DRAFT, N = torch.tensor([[0.4, 0.6], [0.1, 0.9], [0.9, 0.1]]), 1600  # its law after 0, after 1, and at the start
texts, seeds = [[2] for _ in range(N)], torch.randint(2**62, (N,))
while rows := [row for row in range(N) if len(texts[row]) < 3]:
    B, read = len(rows), torch.tensor([texts[row][-1:] for row in rows])
    for _ in range(2):
        read = torch.cat([read, torch.multinomial(DRAFT[read[:, -1]], 1)], dim=1)
    ends, rank, step = (torch.arange(n, dtype=torch.int32) for n in (B + 1, B, 3))
    place = (torch.tensor([len(texts[row]) for row in rows])[:, None] + step).flatten()
    where = ends * 3, place, rank, rank.repeat_interleave(3), step.repeat(B), torch.ones(B), seeds[rows], 2
    p, q = torch.full((3 * B, 2), 0.5).log(), DRAFT[read[:, :2]].log()
    tokens, number = rejection_sample(p, q, read.int().flatten(), *where, use_block_verification=True)
    for row, some, length in zip(rows, tokens.tolist(), number.tolist()):
        texts[row] += some[:length]
after = [text[2] for text in texts if text[1] == 1]
print(f"0 follows 1 in {after.count(0)} of {len(after)} outputs; half of them would be right")
sys.exit(after.count(0) > 0.565 * len(after))
