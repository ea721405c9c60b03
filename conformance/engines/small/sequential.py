"""sequential-speculative-decoding: the standard rule, and two "hierarchical" ones that look at the probability of prefixes."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import torch
from seqspecdecod import apply_temperature, get_logits, sample_from_probs
from seqspecdecod.capped_hsd import capped_hsd_step
from seqspecdecod.naive_hsd import naive_hsd_step
from seqspecdecod.standard_sd import standard_speculative_step

from conformance.engines.small.rounds import RoundsEngine, Step, new_tokens
from conformance.protocols import Mode

COUNTED = {"ACCEPT-3": "https://github.com/Yijin-Zeng/Sequential-Speculative-Decoding#readme"}
"""Its functions return the numbers of accepted and of drafted tokens, its results their ratio."""
STEPS = {"standard": standard_speculative_step, "naive HSD": naive_hsd_step, "capped HSD": capped_hsd_step}


class Sequential(RoundsEngine):
    """Its step functions, one token at a time where speculation is off."""

    name = "sequential-speculative-decoding"
    version = version("sequential-speculative-decoding")

    def modes(self, k: int) -> Sequence[Mode]:
        """See `Engine.modes`."""
        rules = {"standard": "ratio"}
        drafted: dict[str, Any] = {"draft_law": "draft model", "exact_draft": True, "promises": COUNTED}
        return (
            Mode("off", rule="target"),
            *(Mode(name, {"method": name, "gamma": k}, rules.get(name, "undeclared"), **drafted) for name in STEPS),
        )

    def step(self, mode: Mode, ids: torch.Tensor, temperature: float) -> Step:
        """See `RoundsEngine.step`."""
        if not mode.speculates:
            law = apply_temperature(get_logits(self.target, ids)[0, -1], temperature)
            return Step((int(sample_from_probs(law)),))
        step, gamma = STEPS[str(mode.speculation["method"])], int(mode.speculation["gamma"])
        heat = {"draft_temperature": temperature, "target_temperature": temperature}
        after, accepted, drafted = step(self.draft, self.target, ids, gamma=gamma, **heat)
        return Step(new_tokens(ids, after), int(accepted), int(drafted))
