"""SGLang's two verifications of token trees.

As documented in sglang 0.5.23 (`sglang/kernels/ops/speculative/`: `sampling.py`, `tree.py`; shapes in
`sglang/kernels/jit/csrc/speculative/`): for B trees of N nodes, the root among them, `candidates` int64 `[B, N]` holds the
tokens, and three more of that shape say where each node stands in the batch, its first child and its next sibling (-1: none).
They write `predicts` int32 `[B N]`, the token after each accepted node; `accept_index` int32 `[B, depth + 1]`, the accepted
nodes' places from the root down; and `accept_token_num` int32 `[B]`, how many they are, the root not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from conformance.components import Floats, Ints, VerifiedBatch
from conformance.engines.own_kernels import numbers
from specref.batched.laws import picks
from specref.batched.masks import links


@dataclass
class Batch:
    """The arguments that both functions take, in their order: three to be written, and four that say what the trees are."""

    predicts: Tensor
    accept_index: Tensor
    accept_token_num: Tensor
    candidates: Tensor
    retrieve_index: Tensor
    next_token: Tensor
    next_sibling: Tensor

    @classmethod
    def of(cls, tokens: Ints, parents: Ints, device: str) -> Batch:
        """tokens, parents `[B, N]`; what is to be written is filled as SGLang fills it."""
        B, N = tokens.shape
        first_child, next_sibling = links(torch.from_numpy(parents))
        return cls(
            torch.zeros(B * N, dtype=torch.int32, device=device),
            torch.full((B, depth_of(parents) + 1), -1, dtype=torch.int32, device=device),
            torch.zeros(B, dtype=torch.int32, device=device),
            torch.tensor(tokens, dtype=torch.int64, device=device),
            torch.arange(B * N, dtype=torch.int64, device=device).view(B, N),
            first_child.to(device),
            next_sibling.to(device),
        )

    def arguments(self) -> tuple[Tensor, ...]:
        """In the order of the functions' own."""
        written = self.predicts, self.accept_index, self.accept_token_num
        return (*written, self.candidates, self.retrieve_index, self.next_token, self.next_sibling)

    def answer(self) -> VerifiedBatch:
        """What was written. Raises ValueError where the tokens on the accepted path are not the path's own."""
        B, N = self.candidates.shape
        predicts, tokens = _numpy(self.predicts).reshape(B, N), _numpy(self.candidates)
        count = _numpy(self.accept_token_num)
        nodes = _numpy(self.accept_index) - np.arange(B)[:, None] * N  # within their own tree
        place, rows = np.arange(nodes.shape[1] - 1), np.arange(B)
        on_path = place < count[:, None]
        before, after = (np.clip(some, 0, N - 1) for some in (nodes[:, :-1], nodes[:, 1:]))
        wrong = on_path & (predicts[rows[:, None], before] != tokens[rows[:, None], after])
        for row in np.flatnonzero(wrong.any(axis=1))[:1]:
            found = f"{predicts[row].tolist()} for the tokens {tokens[row].tolist()}"
            raise ValueError(f"row {row} accepted the nodes {nodes[row].tolist()}, and wrote {found}")
        path = np.full((B, N - 1), -1, dtype=np.int64)
        path[:, : len(place)] = np.where(on_path, nodes[:, 1:], -1)
        last = np.clip(nodes[rows, np.clip(count, 0, len(place))], 0, N - 1)
        return VerifiedBatch(count, predicts[rows, last], path)


class TargetOnly:
    """`tree_speculative_sampling_target_only`: one number decides among the children of a node by the target's law alone.

    Its rule is not the ratio rule: see `specref.rules.tree.target_only`. Both thresholds are 1, without which it is lossy.
    """

    trees: Literal[True] = True
    name, rule, takes_uniforms = "tree_speculative_sampling_target_only", "target_only", True

    def __init__(self, function: Callable[..., Any], device: str) -> None:
        self._function, self._device = function, device

    def verify(
        self, p: Floats, q: Floats | None, tokens: Ints, parents: Ints, *, uniforms: Floats | None, seed: int
    ) -> VerifiedBatch:
        """See `TreeVerifier.verify`. The number of a node's children is kept with the node, that of its first child with us."""
        batch = Batch.of(tokens, parents, self._device)
        u = numbers(uniforms, (p.shape[0], p.shape[1]), seed).to(self._device)
        first = batch.next_token
        of_children = torch.where(first > 0, u.gather(1, (first - 1).clamp(min=0)), torch.zeros_like(u))
        target = torch.tensor(p, dtype=torch.float32, device=self._device).contiguous()
        scratch = torch.zeros_like(target)  # it notes there which tokens were rejected
        thresholds = {"threshold_single": 1.0, "threshold_acc": 1.0}
        self._function(
            *batch.arguments(), of_children, u[:, -1].contiguous(), target, scratch, **thresholds, deterministic=True
        )
        return batch.answer()


class Greedy:
    """`verify_tree_greedy` over tokens that are drawn from the target's law at every node, as SGLang uses it too.

    A drafted token is accepted if it is the one that was drawn, so that the law is the target's; where that is certain, the
    longest path of its tokens is kept.
    """

    trees: Literal[True] = True
    name, rule, takes_uniforms = "verify_tree_greedy, tokens drawn from the target's law", "one_hot", False

    def __init__(self, function: Callable[..., Any], device: str) -> None:
        self._function, self._device = function, device

    def verify(
        self, p: Floats, q: Floats | None, tokens: Ints, parents: Ints, *, uniforms: Floats | None, seed: int
    ) -> VerifiedBatch:
        """See `TreeVerifier.verify`."""
        batch = Batch.of(tokens, parents, self._device)
        laws, generator = torch.from_numpy(p), torch.Generator().manual_seed(seed)
        drawn = picks(laws, torch.rand(laws.shape[:2], dtype=torch.float64, generator=generator))
        self._function(*batch.arguments(), drawn.to(self._device))
        return batch.answer()


def depth_of(parents: Ints) -> int:
    """Edges from the root to the deepest node of trees `[B, N]`.

    >>> depth_of(np.array([[-1, 0, 0, 2], [-1, 0, 0, 0]]))
    2
    """
    depths = np.zeros_like(parents)
    for node in range(1, parents.shape[1]):
        depths[:, node] = np.take_along_axis(depths, parents[:, node : node + 1], axis=1)[:, 0] + 1
    return int(depths.max())


def _numpy(written: Tensor) -> Ints:
    return written.cpu().numpy().astype(np.int64)
