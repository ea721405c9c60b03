"""lucidrains' speculative-decoding: the ratio rule over the package's own `Decoder`, one prompt at a time or several together.

The decoder is the package's (its attention, rotations, cache and mask), with the weights of the model under audit; only the
feed-forward nets are that model's, since the package's are of another form. It knows no ends: the adapter cuts outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from speculative_decoding import Decoder, base_decoding, speculative_decoding, speculative_decoding_with_same_model
from transformers import AutoModelForCausalLM

from conformance.engines.adapting import alike, filled_up, refuse_others
from conformance.engines.small.rounds import KNOWN
from conformance.protocols import Engine, Mode, Models, Output, Request, Tokens

TOGETHER = {"rows": 8}
"""Prompts are decoded together, so many at once: those of one length, and others made from them."""


class Lucidrains(Engine):
    """Its three functions; torch's generator is set to the seed of a batch's first request."""

    name = "speculative-decoding"
    version = version("speculative-decoding")

    def __init__(self, models: Models) -> None:
        torch.set_num_threads(1)
        self._folders = models
        self._target, self._draft = decoder_of(models.target), decoder_of(models.draft)

    def modes(self, k: int) -> Sequence[Mode]:
        """See `Engine.modes`."""
        drafted: dict[str, Any] = {"small_net": True, "gamma": k}
        return (
            Mode("off", rule="target"),
            Mode("draft model", drafted, "ratio", "draft model", exact_draft=True),
            Mode("off, batches", rule="target", options=TOGETHER),
            Mode("draft model, batches", drafted, "ratio", "draft model", exact_draft=True, options=TOGETHER),
            Mode("early exit", {"gamma": k}, "ratio"),
        )

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Engine.generate`."""
        for request in requests:
            refuse_others(request.settings, (*KNOWN, "top_k"), "this engine has no such setting")
        written: dict[int, Tokens] = {}
        for batch in alike(requests, mode.options.get("rows", 1)):
            tokens = self._decoded(mode, [requests[at] for at in batch])
            written |= {at: requests[at].settings.stops().cut((), row) for at, row in zip(batch, tokens)}
        for at in range(len(requests)):
            yield Output(written[at])

    def close(self) -> None:
        """See `Engine.close`."""

    def _decoded(self, mode: Mode, batch: Sequence[Request]) -> list[Tokens]:
        settings = batch[0].settings
        torch.manual_seed(batch[0].seed)
        prompt = torch.tensor(filled_up([request.prompt for request in batch], mode.options.get("rows", 1)))
        length = prompt.shape[1] + settings.max_tokens
        kept = settings.top_k or self._target.token_emb.num_embeddings
        how = {
            "temperature": float(settings.temperature),
            "filter_thres": threshold(kept, self._target.token_emb.num_embeddings),
        }
        asked = dict(mode.speculation)
        if not asked:
            new = base_decoding(self._target, prompt, length, **how)
        elif asked.pop("small_net", False):
            new, _ = speculative_decoding(self._target, self._draft, prompt, length, **asked, **how)
        else:
            net = decoder_of(self._folders.target, early_exit_layer=2)
            new, _ = speculative_decoding_with_same_model(net, prompt, length, **asked, **how)
        return [tuple(row) for row in new[: len(batch)].tolist()]


def decoder_of(folder: Path, **options: Any) -> Decoder:
    """A `Decoder` that computes what the Llama in `folder` does. A key-value head that is shared is repeated."""
    llama = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32).eval()
    config, model = llama.config, llama.model
    V, width, heads, size = config.vocab_size, config.hidden_size, config.num_attention_heads, config.head_dim
    net = Decoder(num_tokens=V, dim=width, depth=config.num_hidden_layers, heads=heads, dim_head=size, **options)
    net.token_emb, net.to_logits = model.embed_tokens, torch.nn.Sequential(model.norm, llama.lm_head)
    net.rotary_emb.inv_freq = model.rotary_emb.inv_freq
    for ours, theirs in zip(net.layers, model.layers, strict=True):
        read = theirs.self_attn
        shared = [part.weight.view(-1, size, width) for part in (read.k_proj, read.v_proj)]
        keys, values = (part.repeat_interleave(heads // len(part), dim=0).reshape(-1, width) for part in shared)
        ours[0].norm, ours[0].to_out = theirs.input_layernorm, read.o_proj
        ours[0].to_qkv.weight = torch.nn.Parameter(torch.cat((read.q_proj.weight, keys, values)))
        ours[1] = torch.nn.Sequential(theirs.post_attention_layernorm, theirs.mlp)
    return net.eval()


def threshold(kept: int, V: int) -> float:
    """The `filter_thres` with which `kept` of V tokens are: the engine keeps ceil((1 - filter_thres) V)."""
    return 1 - (kept - 0.5) / V
