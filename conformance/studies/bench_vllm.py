"""vLLM's verification on a CPU beside ours, in an environment that has vLLM: `python -m conformance.studies.bench_vllm`.

Both sides run in one process, in turn, on the same float32 inputs and draw their own random numbers. vLLM's `rejection_sample`
is handed the draft's laws, which its drafter made, and a bonus token per row, which its sampler drew; so it is timed twice, as
it is and with that work, which is ours too. Its native kernels are timed alone as well, against our rule on the same laws.
Prints JSON for `conformance.studies.bench`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from typing import Any

import torch
from torch import Tensor

from conformance.studies.bench_inputs import SIZES, Contender, Inputs, K, rounds
from specref.batched import Drafts, verify
from specref.batched import chain as batched_chain
from specref.batched.logits import ratio_from_logits
from specref.batched.status import require_good

OURS_FROM_LOGITS, OURS_FROM_LAWS = "batched ratio, float32, from logits", "batched ratio, float32, from laws"


def contenders(inputs: Inputs) -> list[Contender]:
    """vLLM's functions and ours."""
    from vllm.v1.sample import rejection_sampler as vllm
    from vllm.v1.sample.ops.topk_topp_sampler import random_sample

    B = len(inputs.tokens)
    p, q, _ = inputs.laws(torch.float32)
    flat_q = q.flatten(0, 1).contiguous()
    logits = inputs.target[:, :K].flatten(0, 1).contiguous()  # vLLM's caller has put the drafted positions together
    flat_p = logits.softmax(dim=-1)
    tokens = inputs.tokens.flatten().int()
    counts, ends = [K] * B, torch.arange(1, B + 1, dtype=torch.int32) * K
    settings = _settings(B)
    bonus = random_sample(p[:, K].contiguous(), {})[:, None]

    def rejection_sample(laws: Tensor, last: Tensor) -> Tensor:
        return vllm.rejection_sample(tokens, counts, K, ends, laws, logits, last, settings)  # type: ignore[no-any-return]

    def all_of_it() -> Tensor:
        last = random_sample(inputs.target[:, K].softmax(dim=-1), {})[:, None]
        return rejection_sample(inputs.draft.softmax(dim=-1).flatten(0, 1), last)

    def kernels_alone() -> Tensor:
        out = torch.full((B, K + 1), -1, dtype=torch.int32)
        numbers = vllm.generate_uniform_probs(B * K, counts, {}, torch.device("cpu"))
        drawn = vllm.sample_recovered_tokens(K, counts, ends, tokens, flat_q, flat_p, settings, torch.device("cpu"))
        greedy = torch.zeros(B, dtype=torch.bool)
        vllm._rejection_random_sample(out, ends, tokens, flat_q, flat_p, bonus, drawn, numbers, greedy, K, None)
        return out

    def ours_from_logits() -> None:
        result = ratio_from_logits(inputs.target, inputs.draft, Drafts(inputs.tokens), torch.rand(B, K + 1))
        require_good(result.status)

    def ours_from_laws() -> object:
        return verify(batched_chain.ratio, p, Drafts(inputs.tokens, q), torch.rand(B, K + 1))

    return [
        Contender(OURS_FROM_LOGITS, "logits of target and draft", ours_from_logits),
        Contender("vLLM, rejection_sample", "target logits, draft laws, bonus tokens", lambda: rejection_sample(flat_q, bonus)),
        Contender("vLLM, the same with draft softmax and bonus draw", "logits of target and draft", all_of_it),
        Contender(OURS_FROM_LAWS, "laws of target and draft", ours_from_laws),
        Contender("vLLM, its kernels alone", "laws of target and draft, bonus tokens", kernels_alone),
    ]


def _settings(B: int) -> Any:
    """What vLLM wants to know of B requests at temperature 1 and nothing else."""
    from vllm.v1.sample.logits_processor import LogitsProcessors
    from vllm.v1.sample.metadata import SamplingMetadata

    known: dict[str, Any] = {
        "temperature": torch.ones(B),
        "all_greedy": False,
        "all_random": True,
        "generators": {},
        "no_penalties": True,
        "output_token_ids": [],
        "bad_words_token_ids": {},
        "logitsprocs": LogitsProcessors(),
    }
    return SamplingMetadata(**dict.fromkeys(field.name for field in dataclasses.fields(SamplingMetadata)) | known)


def main(arguments: list[str] | None = None) -> int:
    """Print vLLM's version and, per size, the processor seconds of every contender."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    import vllm
    from vllm.platforms import current_platform

    current_platform.register_triton_kernel_overrides()  # as its workers do: native kernels where Triton has no CPU
    found = [
        [dataclasses.asdict(one) for one in rounds(contenders(Inputs.random(B, V, options.seed)), options.rounds)]
        for V, B in SIZES
    ]
    print(json.dumps({"vllm": vllm.__version__, "torch": torch.__version__, "timed": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
