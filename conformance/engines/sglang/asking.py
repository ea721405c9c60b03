"""What SGLang's own `/generate` is asked, and what it answers, token ids in and out.

As documented in sglang 0.5.23 (`GenerateReqInput`, `SamplingParams`): without a tokenizer the answer holds `output_ids` and
`meta_info`, which has the reason of the end, `output_token_logprobs` as [value, id, text], and the request's counts of
speculation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from conformance.engines.adapting import refuse
from conformance.engines.http_server import with_its_end
from conformance.protocols import Output, Request

TEXTS = ("bad_words", "stop_sequences", "min_tokens")
"""Settings for which SGLang has nothing, or needs a tokenizer."""
COUNTS = {"spec_verify_ct": "rounds", "spec_num_proposed_drafts": "draft_tokens", "spec_num_correct_drafts": "accepted"}


def generate_request(request: Request) -> dict[str, Any]:
    """The body that asks for one continuation. Raises Unsupported, naming it, for a setting that cannot be asked for.

    >>> from specref.processors import SamplingSettings
    >>> body = generate_request(Request((1, 2), SamplingSettings(max_tokens=8, top_k=40, eos=(2,)), seed=7))
    >>> body["input_ids"], body["sampling_params"]["top_k"], body["sampling_params"]["stop_token_ids"]
    ([1, 2], 40, [2])
    """
    settings = request.settings
    refuse(settings, TEXTS, "SGLang takes it only with a tokenizer, which is off here, so that ids go in and come out")
    refuse(settings, ("seed",), "SGLang obeys seeds only with --enable-deterministic-inference")
    asked: dict[str, Any] = {
        "max_new_tokens": settings.max_tokens,
        "temperature": float(settings.temperature),
        "top_k": settings.top_k or -1,  # -1 keeps all
        "top_p": float(settings.top_p),
        "min_p": float(settings.min_p),
        "repetition_penalty": float(settings.repetition_penalty),
        "presence_penalty": float(settings.presence_penalty),
        "frequency_penalty": float(settings.frequency_penalty),
    }
    if settings.eos:
        asked["stop_token_ids"] = list(settings.eos)
    if settings.logit_bias:
        asked["logit_bias"] = {str(token): float(bias) for token, bias in settings.logit_bias.items()}
    return {"input_ids": list(request.prompt), "sampling_params": asked, "return_logprob": True, "stream": False}


def read_generated(answer: Any) -> Output:
    """The output that an answer holds. Raises ValueError if it is none.

    >>> said = {"finish_reason": {"type": "stop", "matched": 2}, "output_token_logprobs": [[-0.5, 5, None], [-0.25, 2, None]]}
    >>> read_generated({"output_ids": [5, 2], "meta_info": said})
    Output(tokens=(5, 2), rounds=None, logprobs=(-0.5, -0.25))
    """
    try:
        said, tokens = answer["meta_info"], tuple(answer["output_ids"])
        logprobs = tuple(float(value) for value, *_ in said["output_token_logprobs"])
        reason = said["finish_reason"]
        end = {"finish_reason": reason["type"], "matched_stop": reason.get("matched")}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError(f"the server's answer is no continuation: {str(answer)[:80]!r}") from None
    ends = {end["matched_stop"]} if type(end["matched_stop"]) is int else set()
    return replace(with_its_end(Output(tokens), {"choices": [end]}, ends), logprobs=logprobs)


def counts_of(answer: Any) -> dict[str, float]:
    """The answer's own counts of its speculation, under the names of `Engine.metrics`.

    >>> counts_of({"output_ids": [5, 6, 2], "meta_info": {"spec_verify_ct": 1, "spec_num_correct_drafts": 2}})
    {'emitted': 3.0, 'rounds': 1.0, 'accepted': 2.0}
    """
    said = answer["meta_info"]
    counts = {name: float(said[theirs]) for theirs, name in COUNTS.items() if theirs in said}
    return {"emitted": float(len(answer["output_ids"])), **counts}
