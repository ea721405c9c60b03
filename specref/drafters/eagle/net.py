"""The two draft nets. Both read pairs of a feature and the token after it, and answer with a guess at the next feature.

    EAGLE-1, 2   feature = what the target's LM head is given (d wide)
                 x = fc(cat(embedding, feature)) -> decoder layers -> guess; the target's LM head turns it into q
    EAGLE-3      feature = hidden states entering three of the target's layers (3d wide), which fc makes d wide
                 decoder layer whose attention reads cat(norm(embedding), norm(feature)) -> guess; norm, and a head of its own
                 over the most frequent tokens only: draft token d is the target's token d + d2t[d]

Embeddings are the frozen target's. The parameters bear the names that engines look for in the files.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm, LlamaRotaryEmbedding


class DraftNet(nn.Module, ABC):
    """What the two nets share. target: the frozen causal language model of transformers that they draft for.

    config: a LlamaConfig for the net's decoder layers; its width and vocabulary are the target's. layers: which hidden states
    of the target are the features, as in `specref.tree_attention.tree_pass`.
    """

    def __init__(self, target: Any, config: LlamaConfig, layers: Sequence[int]) -> None:
        super().__init__()
        self._target = [target.eval()]  # in a list, so that the target's weights are not among this module's own
        theirs = target.config.get_text_config()
        if (config.hidden_size, config.vocab_size) != (theirs.hidden_size, theirs.vocab_size):
            raise ValueError(
                f"the net is {config.hidden_size} wide over {config.vocab_size} tokens, "
                f"its target {theirs.hidden_size} over {theirs.vocab_size}"
            )
        self.config = copy.deepcopy(config)
        self.config._attn_implementation = "sdpa"
        self.feature_layers = tuple(layers)
        self.rotary = LlamaRotaryEmbedding(self.config)

    @property
    def target(self) -> Any:
        """The model that the net drafts for."""
        return self._target[0]

    @abstractmethod
    def fused(self, features: Tensor) -> Tensor:
        """The target's features `[.., len(feature_layers) d]` as wide as the net's own guesses, `[.., d]`."""

    @abstractmethod
    def forward(self, features: Tensor, tokens: Tensor, positions: Tensor, mask: Tensor, cache: DynamicCache) -> Tensor:
        """Guesses at the next features `[B, n, d]`, from n pairs.

        features `[B, n, d]`: fused ones of the target, or earlier guesses. tokens `[B, n]`: the token after each. positions
        `[1, n]`; mask `[1, 1, n, cached + n]`, added to attention scores; cache: of this net, grows by n.
        """

    @abstractmethod
    def logits(self, guesses: Tensor) -> Tensor:
        """Logits `[.., V]` over the target's tokens from guessed features `[.., d]`; -inf for tokens it cannot draft."""

    def rotated(self, hidden: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The rotary position embeddings for `positions [1, n]`."""
        both: tuple[Tensor, Tensor] = self.rotary(hidden, positions)
        return both

    def embedded(self, tokens: Tensor) -> Tensor:
        """The target's embeddings `[B, n, d]` of `tokens [B, n]`, not trained along."""
        with torch.no_grad():
            rows: Tensor = self.target.get_input_embeddings()(tokens)
        return rows

    def unrolled(self, features: Tensor, tokens: Tensor, steps: int) -> list[Tensor]:
        """The guesses of `steps` steps of drafting at every place of a text at once: `[B, L - 1, d]` each.

        features `[B, L, ..]` of the target, tokens `[B, L]`. Step 1 at place i reads the pair (f_i, t_(i+1)) after all pairs
        before it. Step j at place i reads its own guess instead of the feature, after the target's pairs up to place i - j + 1
        and its own guesses since: exactly what drafting reads from its cache in its j-th step. Its first j - 1 places have no
        such history and are meaningless. Source: 2503.01840, section 3.2 (training-time test).
        """
        length = tokens.shape[1] - 1
        positions = torch.arange(length, device=tokens.device)[None]
        reads, cache, guesses = self.fused(features[:, :-1]), DynamicCache(), []
        behind = torch.arange(length)[:, None] - torch.arange(length)[None, :]  # how far column's place lies before row's
        for step in range(steps):
            seen = torch.cat([behind >= step, *(behind == step - own for own in range(1, step + 1))], dim=1)
            mask = torch.zeros(seen.shape, dtype=reads.dtype).masked_fill(~seen, -torch.inf)[None, None]
            guesses.append(self(reads, tokens[:, 1:], positions, mask.to(reads.device), cache))
            reads = torch.cat([guesses[-1][:, :1], guesses[-1][:, :-1]], dim=1)
        return guesses

    def cross_entropy(self, guesses: Tensor, logits: Tensor) -> Tensor:
        """The cross-entropy `[..]` in nats of the net's laws under the target's, softmax of `logits [.., V]`, place by place.

        Tokens that the net cannot draft are left out and the target's law renormalised, as in 2503.01840.
        """
        ours = self.logits(guesses)
        possible = ours > -torch.inf
        wanted = logits.masked_fill(~possible, -torch.inf).softmax(-1)
        surprise = -ours.log_softmax(-1)
        return (wanted * surprise.masked_fill(~possible, 0)).sum(-1)


class EagleNet(DraftNet):
    """The net of EAGLE-1 and 2. `layers`: how many decoder layers; the first has no norm at its input, as published.

    >>> from transformers import LlamaForCausalLM
    >>> config = LlamaConfig(vocab_size=8, hidden_size=8, intermediate_size=8, num_attention_heads=2, num_hidden_layers=1)
    >>> net = EagleNet(LlamaForCausalLM(config), config)
    >>> net.feature_layers, net.fc.weight.shape
    ((1,), torch.Size([8, 16]))
    >>> features, tokens = torch.randn(1, 5, 8), torch.tensor([[1, 2, 3, 4, 5]])
    >>> net.loss(features, tokens).shape
    torch.Size([])

    Raises ValueError if its width or vocabulary are not the target's.
    """

    def __init__(self, target: Any, config: LlamaConfig) -> None:
        super().__init__(target, config, layers=[target.config.get_text_config().num_hidden_layers])
        width = config.hidden_size
        self.fc = nn.Linear(2 * width, width, bias=False)
        self.layers: Any = nn.ModuleList(LlamaDecoderLayer(self.config, i) for i in range(config.num_hidden_layers))
        self.layers[0].input_layernorm = nn.Identity()
        self.to(dtype=target.dtype, device=target.device)

    def fused(self, features: Tensor) -> Tensor:
        """See `DraftNet.fused`: one feature is as wide as it should be."""
        return features

    def forward(self, features: Tensor, tokens: Tensor, positions: Tensor, mask: Tensor, cache: DynamicCache) -> Tensor:
        """See `DraftNet.forward`."""
        hidden: Tensor = self.fc(torch.cat([self.embedded(tokens), features], dim=-1))
        rotary = self.rotated(hidden, positions)
        for layer in self.layers:
            hidden = layer(hidden, attention_mask=mask, position_embeddings=rotary, cache=cache)
        return hidden

    def logits(self, guesses: Tensor) -> Tensor:
        """See `DraftNet.logits`: the target's own LM head."""
        logits: Tensor = self.target.get_output_embeddings()(guesses)
        return logits

    def loss(self, features: Tensor, tokens: Tensor, regression: float = 1.0, classification: float = 0.1) -> Tensor:
        """The training loss, a mean over places: regression to the next feature (smooth L1) and cross-entropy to p.

        features `[B, L, d]` of the target after each of `tokens [B, L]`. Source: 2401.15077, section 3.2, with its weights.
        """
        (guesses,) = self.unrolled(features, tokens, steps=1)
        wanted = features[:, 1:]  # the guess at place i is of feature i + 1
        with torch.no_grad():
            logits = self.logits(wanted)
        missed = nn.functional.smooth_l1_loss(guesses, wanted)
        return regression * missed + classification * self.cross_entropy(guesses, logits).mean()


class Eagle3Net(DraftNet):
    """The net of EAGLE-3. drafted: the target's token ids that it can draft, rising; layers: three of the target's.

    d2t `[draft V]`: drafted[d] - d, what is added to a draft token to make it the target's. t2d `[V]`: which tokens can be
    drafted. The paper takes layers 2, L//2 and L - 3, which a target of few layers has not: the default spreads three over it.

    >>> from transformers import LlamaForCausalLM
    >>> config = LlamaConfig(vocab_size=8, hidden_size=8, intermediate_size=8, num_attention_heads=2, num_hidden_layers=4)
    >>> net = Eagle3Net(LlamaForCausalLM(config), config, drafted=[1, 2, 5])
    >>> net.feature_layers, net.d2t.tolist(), net.t2d.int().tolist()
    ((1, 2, 3), [1, 1, 3], [0, 1, 1, 0, 0, 1, 0, 0])
    >>> net.logits(torch.zeros(8)).tolist()
    [-inf, 0.0, 0.0, -inf, -inf, 0.0, -inf, -inf]

    Raises ValueError for drafted ids that do not rise, or lie outside the vocabulary; for other than three different layers.
    """

    d2t: Tensor
    t2d: Tensor

    def __init__(self, target: Any, config: LlamaConfig, drafted: Sequence[int], layers: Sequence[int] | None = None) -> None:
        whole = target.config.get_text_config().num_hidden_layers
        if layers is None:
            layers = (2, whole // 2, whole - 3) if whole >= 7 else (1, whole // 2, whole - 1)
        if len(layers) != 3 or len(set(layers)) < 3:  # an engine collects a layer once, however often it is named
            raise ValueError(f"EAGLE-3 fuses the features of three different layers, got {tuple(layers)}: give layers=")
        super().__init__(target, config, layers)
        ids = torch.tensor(drafted)
        if not len(ids) or ids[0] < 0 or ids[-1] >= config.vocab_size or (ids[1:] <= ids[:-1]).any():
            raise ValueError(f"the drafted ids must rise within 0..{config.vocab_size - 1}, got {list(drafted)[:10]}..")
        width = config.hidden_size
        self.fc = nn.Linear(3 * width, width, bias=False)
        self.midlayer = _FusedLayer(self.config)
        self.norm = LlamaRMSNorm(width, eps=config.rms_norm_eps)
        self.lm_head = nn.Linear(width, len(ids), bias=False)
        self.to(dtype=target.dtype, device=target.device)
        self.register_buffer("d2t", (ids - torch.arange(len(ids))).to(target.device))
        self.register_buffer("t2d", torch.zeros(config.vocab_size, dtype=torch.bool).index_fill(0, ids, True).to(target.device))

    def fused(self, features: Tensor) -> Tensor:
        """See `DraftNet.fused`."""
        fused: Tensor = self.fc(features)
        return fused

    def forward(self, features: Tensor, tokens: Tensor, positions: Tensor, mask: Tensor, cache: DynamicCache) -> Tensor:
        """See `DraftNet.forward`."""
        made: Tensor = self.midlayer(self.embedded(tokens), features, self.rotated(features, positions), mask, cache)
        return made

    def logits(self, guesses: Tensor) -> Tensor:
        """See `DraftNet.logits`: its own head, its answers put where they belong among the target's tokens."""
        own: Tensor = self.lm_head(self.norm(guesses))
        targets = torch.arange(len(self.d2t), device=self.d2t.device) + self.d2t
        return own.new_full((*own.shape[:-1], len(self.t2d)), -torch.inf).index_copy(-1, targets, own)

    def loss(self, features: Tensor, tokens: Tensor, logits: Tensor, steps: int = 3) -> Tensor:
        """The training loss: cross-entropy to p, a mean over `steps` steps of drafting and over places.

        features `[B, L, 3d]` and logits `[B, L, V]` of the target after each of `tokens [B, L]`. No regression: the guesses
        need not be features. Source: 2503.01840, section 3.2.
        """
        losses = []
        for step, guesses in enumerate(self.unrolled(features, tokens, steps)):
            losses.append(self.cross_entropy(guesses[:, step:], logits[:, step + 1 :]).mean())
        return torch.stack(losses).mean()


class _FusedLayer(nn.Module):
    """A Llama decoder layer whose attention reads embedding and feature side by side, 2d wide."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        layer = LlamaDecoderLayer(config, 0)
        for name in ("q_proj", "k_proj", "v_proj"):
            narrow = getattr(layer.self_attn, name)
            setattr(layer.self_attn, name, nn.Linear(2 * config.hidden_size, narrow.out_features, bias=False))
        self.self_attn, self.mlp = layer.self_attn, layer.mlp
        self.input_layernorm, self.post_attention_layernorm = layer.input_layernorm, layer.post_attention_layernorm
        self.hidden_norm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(
        self, embedded: Tensor, features: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor, cache: DynamicCache
    ) -> Tensor:
        both = torch.cat([self.input_layernorm(embedded), self.hidden_norm(features)], dim=-1)
        attended, _ = self.self_attn(hidden_states=both, position_embeddings=rotary, attention_mask=mask, cache=cache)
        hidden = features + attended
        made: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return made
