"""flashspec 0.3.1: `SamplingConfig.top_p` ("Nucleus sampling threshold. Set to 1.0 to disable.") changes nothing when sampling.

Its rejection variants do not read it; only the typical variant does, as another setting. After every text token i has a
probability proportional to 0.7 ** i: the smallest set that holds 0.5 is tokens 0 and 1. Exit code 1 if the fault is there.
"""

from types import SimpleNamespace

import torch
from flashspec import BanditConfig, FlashSpecConfig, SamplingConfig, SpeculativeEngine
from flashspec.engine import HuggingFaceDrafter, TargetModel


class Constant(torch.nn.Module):
    """The same law after every text."""

    config = SimpleNamespace(vocab_size=8)

    def forward(self, ids, **options):
        """Logits `[1, n, 8]`."""
        return SimpleNamespace(logits=(0.7 ** torch.arange(8.0)).log().expand(*ids.shape, 8))


torch.manual_seed(0)
cpu, outside = torch.device("cpu"), {}
for top_p in (1.0, 0.5):
    sampling, one = SamplingConfig(gamma=4, top_p=top_p, seed=1), BanditConfig(n_arms=1)
    config = FlashSpecConfig(device="cpu", dtype="float32", drafter_strategy="bandit", sampling=sampling, bandit=one)
    drafter, target = HuggingFaceDrafter("d", cpu, model=Constant()), TargetModel("t", cpu, torch.float32, model=Constant())
    ids = SpeculativeEngine(config, [drafter], target).generate(torch.zeros((1, 1), dtype=torch.long), 1000).output_ids
    outside[top_p] = float((ids > 1).float().mean())
    print(f"top_p {top_p}: {outside[top_p]:.3f} of the tokens are not among the first two")
raise SystemExit(int(outside[0.5] > 0))
