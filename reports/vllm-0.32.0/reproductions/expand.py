"""vLLM 0.32.0, CPU: each request's temperature is to be written at all of its drafted tokens; it never arrives.

`_expand_kernel_impl` hands its kernel an int64 copy of the float output and drops the copy, so what is read as temperature,
top-k and top-p of the verification is whatever the memory held. Public: vllm-project/vllm issues 42638 and 55005.
Exit code 1 if the fault is there.
"""

import sys

import torch
from vllm.platforms import current_platform
from vllm.v1.sample.rejection_sampler import expand_batch_to_tokens

current_platform.import_kernels()
current_platform.register_triton_kernel_overrides()
temperatures, ends = torch.tensor([0.5, 0.7]), torch.tensor([2, 5], dtype=torch.int32)
wanted = torch.tensor([0.5, 0.5, 0.7, 0.7, 0.7])
held = [torch.full((5,), 123.0) for _ in range(64)]  # so that the freed memory holds something to be recognised
del held
found = expand_batch_to_tokens(temperatures, ends, 5)
print("wanted", wanted.tolist(), "found", found.tolist())
sys.exit(int(not torch.equal(found, wanted)))
