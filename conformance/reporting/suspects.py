"""The faults that the bets of the bank stand for, in plain words, with public reports of each.

The bet that holds the wealth names the fault; this says what that name means.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Suspect(NamedTuple):
    """A fault in words that complete "the engine behaves as if ...", and public reports of it."""

    words: str
    reports: tuple[str, ...] = ()


SUSPECTS = {
    "leak to the draft": Suspect(
        "drafts were let through that should have been rejected, so that part of the output follows the draft model",
        ("huggingface/transformers 28508", "vllm-project/vllm 35355", "NVIDIA/TensorRT-LLM 3865"),
    ),
    "residual overused": Suspect(
        "drafts were rejected that should have been kept, so that the output leans away from the draft"
    ),
    "resample from the target": Suspect(
        "the token after a rejection were drawn from p again, and not from the residual max(p - q, 0)",
        ("ShopeeLLM/Spec-RL 14",),
    ),
    "same coin": Suspect(
        "the random number that rejected the draft were used again to draw the token after it", ("sgl-project/sglang 7207",)
    ),
    "absolute residual": Suspect("the residual were |p - q|, and not max(p - q, 0)"),
    "ratio upside down": Suspect(
        "drafts were kept with probability min(1, q/p), and not min(1, p/q)", ("1bit-MONSTER/1bit-MONSTER 637",)
    ),
    "unnormalised residual": Suspect(
        "the residual were drawn from without being normalised: what is missing falls on the last token"
    ),
    "argmax draft": Suspect(
        "drafts were the draft model's first choice, and verified as if they had been drawn from q",
        ("jaymody/speculative-sampling 3",),
    ),
    "truncated draft, whole q": Suspect(
        "drafts were drawn from the head of q, and verified with the whole q", ("huggingface/transformers 47932",)
    ),
    "one kept token too few": Suspect("top-k, top-p or min-p kept one token too few"),
    "rejected drafts let through": Suspect("drafts were kept that the accept test should have rejected"),
    "accepted drafts refused": Suspect("drafts were rejected that the accept test should have kept"),
    "accept coin drew the draft": Suspect("the random number that drew a draft were used again to accept it"),
}
TEMPERATURE = Suspect(
    "tokens were sampled at temperature {degrees} times the one asked for",
    ("vllm-project/vllm 9834", "jaymody/speculative-sampling 9"),
)


def suspect(holder: str) -> Suspect | None:
    """Whom the name of a bet accuses; None for a bet that stands for no fault known by name.

    >>> suspect("same coin, size 0.97").words
    'the random number that rejected the draft were used again to draw the token after it'
    >>> suspect("temperature 0.909, size 0.999").words
    'tokens were sampled at temperature 0.909 times the one asked for'
    """
    heat = re.match(r"(?:target at )?temperature ([\d.]+)", holder)
    if heat:
        return TEMPERATURE._replace(words=TEMPERATURE.words.format(degrees=heat[1]))
    return next((found for name, found in SUSPECTS.items() if holder.startswith(name)), None)
