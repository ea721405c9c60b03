"""vLLM 0.32.0, CPU: a drafted id that is no token is read as an index into the target's law, unchecked.

Just above the vocabulary it is accepted or rejected by the memory behind the row, so that it can be emitted; far above, the
process is ended. The Triton kernels of the GPU build reject negative ids; neither checks the upper end.
Exit code 1 if the fault is there.
"""

import subprocess
import sys

CALL = """
import torch
from types import SimpleNamespace
from vllm.platforms import current_platform
from vllm.v1.sample.rejection_sampler import rejection_sample
current_platform.import_kernels()
current_platform.register_triton_kernel_overrides()
B, V = 64, 4
logits = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).log().repeat(B, 1)
drafts, ends = torch.full((B,), {draft}, dtype=torch.int32), torch.arange(1, B + 1, dtype=torch.int32)
settings = SimpleNamespace(all_greedy=False, all_random=True, temperature=torch.ones(B), generators={{}})
out = rejection_sample(drafts, [1] * B, 1, ends, None, logits, torch.zeros((B, 1), dtype=torch.int32), settings)
print("drafted {draft}, V = 4: emitted", sorted(set(out[:, 0].tolist())))
"""
bad = 0
for draft in (1, -1, 4, 2**31 - 1):
    done = subprocess.run([sys.executable, "-c", CALL.format(draft=draft)], capture_output=True, text=True, check=False)
    said = done.stdout.strip().splitlines()[-1:] or [f"drafted {draft}, V = 4: exit code {done.returncode}"]
    print(said[0])
    emitted = said[0].rpartition("[")[2].rstrip("]").split(", ")
    bad += done.returncode != 0 or any(not 0 <= int(token) < 4 for token in emitted)
sys.exit(int(bad > 0))
