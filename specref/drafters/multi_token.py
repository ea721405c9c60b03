"""Multi-token-prediction heads that chain: head i reads what head i-1 made of the text, and the newest drafted token.

    h0_t = the target's last hidden state at position t
    hi_t = block_i( project( [norm(h(i-1)_t), norm(embedding of token t+i)] ) )      causal over t
    law of token t+i+1 = softmax( LM head( hi_t ) )

Unlike Medusa's heads, which look at h0 alone, each draft is conditioned on the drafts before it, so the heads have a draft law
q of their own and the ratio rule applies. Embedding and LM head are the target's. Source: DeepSeek-V3 2412.19437, section 2.2.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaModel

from specref.chance import Chance
from specref.draft import Draft
from specref.laws import Law
from specref.models import Tokens, softmax


class MultiTokenHeads(nn.Module):
    """`depth` chained heads for a frozen Llama-like `target` of transformers; a drafter once trained.

    When more than `depth` tokens are wanted, the last head goes on, fed with its own output: q stays the law that was drawn
    from, so this costs acceptance and never correctness. New heads are random; train them by minimising `loss`.

    >>> from specref.chance import SampledChance
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = dict(vocab_size=8, hidden_size=8, intermediate_size=8, num_attention_heads=2, num_hidden_layers=1)
    >>> heads = MultiTokenHeads(LlamaForCausalLM(LlamaConfig(**sizes)), depth=2)
    >>> draft = heads.draft((1, 5, 2), 3, SampledChance(0))
    >>> len(draft.tokens), draft.laws[0].shape
    (3, (8,))

    Raises ValueError for a depth below 1.
    """

    def __init__(self, target: Any, depth: int) -> None:
        super().__init__()
        if depth < 1:
            raise ValueError(f"depth is {depth}; there must be 1 head or more")
        self._target = [target.eval()]  # in a list, so that the target's weights are not among this module's own
        config = target.config
        self.heads = nn.ModuleList(_Head(config) for _ in range(depth))
        self.to(dtype=target.dtype, device=target.device)

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        """See `Drafter.draft`. The draft is empty after a context of one token, where the target has no hidden state yet.

        The newest token of the context has not been read by the target: head 1 pairs its embedding with the hidden state that
        predicted it.
        """
        if len(context) < 2:
            return Draft.claimed((), ())
        with torch.inference_mode():
            hidden = self._hidden(torch.tensor([context[:-1]]))
            return Draft.drawn(lambda so_far: self._law(hidden, context + so_far), k, chance)

    def loss(self, tokens: Tensor) -> Tensor:
        """The mean cross-entropy of all heads on `tokens [B, L]`, in nats; give its optimiser `self.parameters()`, the heads'.

        Raises ValueError for rows shorter than depth + 2.
        """
        length, depth = tokens.shape[1], len(self.heads)
        if length < depth + 2:
            raise ValueError(f"rows of {length} tokens are too short to train {depth} heads; give {depth + 2} or more")
        with torch.no_grad():
            hidden = self._hidden(tokens)
        losses = []
        for i in range(1, depth + 1):
            hidden = self._next_hidden(hidden[:, : length - i], tokens, i)
            logits = self._target[0].lm_head(hidden[:, :-1])
            losses.append(nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, i + 1 :].flatten()))
        return torch.stack(losses).mean()

    def _hidden(self, tokens: Tensor) -> Tensor:
        """The target's hidden states behind its final norm, `[B, L, d]`."""
        hidden: Tensor = self._target[0].model(input_ids=tokens.to(self._target[0].device), use_cache=False).last_hidden_state
        return hidden

    def _next_hidden(self, hidden: Tensor, tokens: Tensor, i: int) -> Tensor:
        """hi `[B, n, d]` from h(i-1) `[B, n, d]`: position t is joined with the embedding of token t + i."""
        n = hidden.shape[1]
        embedded = self._target[0].get_input_embeddings()(tokens[:, i : i + n].to(hidden.device))
        made: Tensor = self.heads[min(i, len(self.heads)) - 1](hidden, embedded)
        return made

    def _law(self, hidden: Tensor, tokens: Tokens) -> Law:
        """The law `[V]` of the token after `tokens`, through as many heads as tokens follow the `hidden` states `[1, n, d]`."""
        row = torch.tensor([tokens])
        for i in range(1, len(tokens) - hidden.shape[1] + 1):
            hidden = self._next_hidden(hidden, row, i)
        return softmax(self._target[0].lm_head(hidden[0, -1]).double().cpu().numpy())


class _Head(nn.Module):
    """One head: joins hidden state and embedding, then a decoder layer and a norm."""

    def __init__(self, target_config: Any) -> None:
        super().__init__()
        width = target_config.hidden_size
        self.hidden_norm, self.embedding_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.project = nn.Linear(2 * width, width, bias=False)
        config = copy.deepcopy(target_config)
        config.num_hidden_layers, config.vocab_size, config.pad_token_id = 1, 1, None  # it is fed embeddings, never ids
        self.block = LlamaModel(config)

    def forward(self, hidden: Tensor, embedded: Tensor) -> Tensor:
        joined = self.project(torch.cat([self.hidden_norm(hidden), self.embedding_norm(embedded)], dim=-1))
        made: Tensor = self.block(inputs_embeds=joined, use_cache=False).last_hidden_state
        return made
