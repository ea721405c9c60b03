"""Speed on a machine: a pass takes as long as reading its bytes or doing its arithmetic, whichever is longer (the roofline).

At small batches a pass over k + 1 tokens costs what a pass over one token costs, since the weights are read once either way:
speculation is nearly free. At large batches arithmetic rules, every rejected token is paid for, and speculation loses; unless
the contexts are so long that reading the key-value caches keeps even large batches memory-bound (Chen et al. 2408.11049). Both
sides of the roofline are bounds that no engine reaches: attention's arithmetic, sampling and communication are left out
(`Hardware.seconds_per_pass` may stand for what every pass costs besides).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from specref.speedup.formula import expected_tokens


@dataclass(frozen=True)
class Hardware:
    """bytes_per_second: memory bandwidth; flops_per_second: dense, in the model's number format; memory: bytes.

    seconds_per_pass: fixed cost of every pass of a model (launches, communication, sampling).
    """

    name: str
    bytes_per_second: float
    flops_per_second: float
    memory: float
    seconds_per_pass: float = 0.0

    def times(self, devices: int) -> Hardware:
        """That many devices, sharing every pass perfectly.

        >>> H100.times(4).name, H100.times(4).memory
        ('4 x H100 SXM', 320000000000.0)
        """
        return replace(
            self,
            name=f"{devices} x {self.name}",
            bytes_per_second=devices * self.bytes_per_second,
            flops_per_second=devices * self.flops_per_second,
            memory=devices * self.memory,
        )


@dataclass(frozen=True)
class Transformer:
    """parameters: their number. kv_bytes: key-value cache per token of context. bytes_per_parameter: 2 for bf16."""

    name: str
    parameters: float
    kv_bytes: float
    bytes_per_parameter: float = 2.0

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights, read once in every pass."""
        return self.parameters * self.bytes_per_parameter

    def pass_seconds(self, hardware: Hardware, batch: int, tokens: int, context: int) -> float:
        """Duration of one pass that reads `tokens` new tokens in each of `batch` rows, behind `context` tokens each.

        >>> round(1e3 * LLAMA3_8B.pass_seconds(H100, batch=1, tokens=1, context=0), 1)           # 16.1 GB at 3.35 TB/s
        4.8
        >>> one, six = (LLAMA3_8B.pass_seconds(H100, batch=256, tokens=tokens, context=0) for tokens in (1, 6))
        >>> round(six / one, 1)                                                # compute-bound: the drafts are no longer free
        5.2
        """
        read = self.weight_bytes + batch * context * self.kv_bytes
        arithmetic = 2 * self.parameters * batch * tokens
        return max(read / hardware.bytes_per_second, arithmetic / hardware.flops_per_second) + hardware.seconds_per_pass


@dataclass(frozen=True)
class Method:
    """A way of decoding.

    expected_tokens: tokens that a round emits on average. verified: tokens that the target reads per round (k + 1, or the nodes
    of a tree). drafter: what is run `draft_passes` times per round, if anything. own_memory: whether the drafter's weights and
    cache come on top of the target's (not so for early exit).
    """

    name: str
    expected_tokens: float
    verified: int
    drafter: Transformer | None = None
    draft_passes: int = 0
    own_memory: bool = True


def plain() -> Method:
    """Decoding without speculation.

    >>> plain().expected_tokens, plain().verified
    (1.0, 1)
    """
    return Method("plain", 1.0, 1)


def chain(name: str, acceptance: float, k: int, drafter: Transformer | None = None, *, own_memory: bool = True) -> Method:
    """k drafts in a row: one pass of `drafter` each (draft model, EAGLE, early exit), or none (prompt lookup).

    >>> chain("prompt lookup", 0.5, 3)
    Method(name='prompt lookup', expected_tokens=1.875, verified=4, drafter=None, draft_passes=0, own_memory=True)
    """
    passes = k if drafter else 0
    return Method(name, float(expected_tokens(acceptance, k)), k + 1, drafter, passes, own_memory)


def heads(name: str, tokens: float, verified: int, all_heads: Transformer) -> Method:
    """Heads that draft everything in one pass, as Medusa's do: `tokens` expected per round from a tree of `verified` nodes.

    >>> all_heads = medusa_heads(LLAMA3_8B, width=4096, vocabulary=128256, count=4)
    >>> heads("Medusa", tokens=2.5, verified=64, all_heads=all_heads).draft_passes, round(all_heads.parameters / 8.03e9, 2)
    (1, 0.27)
    """
    return Method(name, tokens, verified, all_heads, 1)


def medusa_heads(target: Transformer, width: int, vocabulary: int, count: int) -> Transformer:
    """The size of `count` Medusa heads: a residual block of width^2 and an output layer of width x vocabulary each.

    >>> medusa_heads(LLAMA3_8B, width=4096, vocabulary=128256, count=1).parameters
    542113792
    """
    return Transformer(f"{count} heads", count * width * (width + vocabulary), 0.0, target.bytes_per_parameter)


@dataclass(frozen=True)
class Row:
    """One method at one batch size.

    seconds_per_round; seconds_per_token: latency of a request after its first token; tokens_per_second: throughput of the whole
    batch; speed_up: against plain decoding at the same batch; memory: bytes of weights and caches; fits: whether the machine
    has that much.
    """

    method: str
    batch: int
    tokens_per_round: float
    seconds_per_round: float
    seconds_per_token: float
    tokens_per_second: float
    speed_up: float
    memory: float
    fits: bool


def row(target: Transformer, hardware: Hardware, method: Method, batch: int, context: int = 1024) -> Row:
    """What `method` does at this batch size, with `context` tokens behind every request.

    >>> one = row(LLAMA3_70B, H100.times(4), chain("8B draft", 0.7, 4, LLAMA3_8B), batch=1, context=0)
    >>> round(one.speed_up, 2), round(1e3 * one.seconds_per_token, 1), one.fits
    (1.91, 5.5, True)

    Raises ValueError for a batch below 1 or a negative context.
    """
    if batch < 1 or context < 0:
        raise ValueError(f"batch is {batch} and context {context}; give 1 request or more, and 0 tokens or more")
    seconds = target.pass_seconds(hardware, batch, method.verified, context)
    memory = target.weight_bytes + batch * context * target.kv_bytes
    if method.drafter:
        seconds += method.draft_passes * method.drafter.pass_seconds(hardware, batch, 1, context)
        if method.own_memory:
            memory += method.drafter.weight_bytes + batch * context * method.drafter.kv_bytes
    per_token = seconds / method.expected_tokens
    return Row(
        method=method.name,
        batch=batch,
        tokens_per_round=method.expected_tokens,
        seconds_per_round=seconds,
        seconds_per_token=per_token,
        tokens_per_second=batch / per_token,
        speed_up=target.pass_seconds(hardware, batch, 1, context) / per_token,
        memory=memory,
        fits=memory <= hardware.memory,
    )


def table(
    target: Transformer, hardware: Hardware, methods: Sequence[Method], batches: Sequence[int], context: int = 1024
) -> list[Row]:
    """A `Row` for every method at every batch size, methods together.

    >>> [round(row.speed_up, 2) for row in table(LLAMA3_8B, H100, [chain("lookup", 0.5, 4)], [1, 64, 256], context=0)]
    [1.94, 1.79, 0.45]
    """
    return [row(target, hardware, method, batch, context) for method in methods for batch in batches]


def best_k_on(
    target: Transformer,
    hardware: Hardware,
    acceptance: float,
    drafter: Transformer | None,
    batch: int,
    context: int = 1024,
    longest: int = 32,
) -> int:
    """The k in 0..longest with the lowest latency at this batch size; 0 means: do not speculate.

    >>> [best_k_on(LLAMA3_70B, H100.times(4), 0.7, LLAMA3_8B, batch) for batch in (1, 64, 128, 512)]
    [4, 3, 2, 0]
    """

    def latency(k: int) -> float:
        method = chain("draft", acceptance, k, drafter) if k else plain()
        return row(target, hardware, method, batch, context).seconds_per_token

    return min(range(longest + 1), key=latency)


def break_even_batch(
    target: Transformer, hardware: Hardware, method: Method, context: int = 1024, largest: int = 4096
) -> int | None:
    """The smallest batch size at which `method` is no faster than plain decoding; None if there is none up to `largest`.

    >>> break_even_batch(LLAMA3_8B, H100, chain("lookup", 0.5, 4), context=0)
    115
    """
    return next((batch for batch in range(1, largest + 1) if row(target, hardware, method, batch, context).speed_up <= 1), None)


H100 = Hardware("H100 SXM", bytes_per_second=3.35e12, flops_per_second=989e12, memory=80e9)
"""NVIDIA H100 SXM5, from its data sheet; dense bf16."""

LLAMA3_8B = Transformer("Llama-3 8B", parameters=8.03e9, kv_bytes=2 * 32 * 8 * 128 * 2)
"""32 layers, 8 key-value heads of 128, bf16."""

LLAMA3_70B = Transformer("Llama-3 70B", parameters=70.6e9, kv_bytes=2 * 80 * 8 * 128 * 2)
"""80 layers, 8 key-value heads of 128, bf16."""
