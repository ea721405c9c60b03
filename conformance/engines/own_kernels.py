"""Our own CUDA kernels as components under audit, their source run on the CPU by the emulator.

Laws go in as their logarithms, in float32; random numbers as multiples of 2^-24. Without a C++ compiler nothing is run, and the
component says so: the torch references, which would answer in the kernels' place, are not what is audited here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

import specref.cuda
from conformance.components import Floats, Ints, Mask, TreeInputs, VerifiedBatch
from conformance.engines.own_components import BatchedTree
from conformance.protocols import Unsupported
from specref.batched.masks import links
from specref.cuda.emulator import emulator_unavailable_reason
from specref.cuda.reference_trees import DETERMINISTIC, IID, WITHOUT_REPLACEMENT

STEPS = 1 << 24
"""A uniform of the kernels is a multiple of 1 / STEPS."""

CHAIN_KERNELS = ("ratio", "one_hot", "token_matching")
TREE_KERNELS = ("without_replacement", "one_hot")


def require_emulator(name: str) -> None:
    """Raise Unsupported, saying what is missing, unless kernels can be run here."""
    reason = emulator_unavailable_reason()
    if reason is not None:
        problem = "no g++" if "g++" in reason.split(",")[0] and "Linux" not in reason else "no emulator"
        raise Unsupported(f"{problem}: {name} not run ({reason})")


class KernelChain:
    """A chain rule in our kernels: `verify_chain`, or `sample_rows` at every position for token matching."""

    trees: Literal[False] = False
    takes_uniforms = True

    def __init__(self, rule: str) -> None:
        self.rule, self.name = rule, f"kernel {rule}"

    def verify(self, p: Floats, q: Floats | None, drafts: Ints, *, uniforms: Floats | None, seed: int) -> VerifiedBatch:
        """See `ChainVerifier.verify`. Raises Unsupported without a C++ compiler."""
        require_emulator(self.name)
        B, positions, V = p.shape
        target, u = logits(p), numbers(uniforms, (B, positions), seed)
        ids = torch.from_numpy(np.where((drafts >= 0) & (drafts < V), drafts, -1)).int()
        if self.rule == "token_matching":
            return _matched(target, ids, u)
        draft = None if q is None else logits(q)
        draft_temp = None if draft is None else ones(B)
        return _batch(*torch.ops.specref.verify_chain(target, draft, norms(draft), ids, None, u, ones(B), draft_temp))


def _matched(target: Tensor, ids: Tensor, u: Tensor) -> VerifiedBatch:
    """Token matching by `sample_rows`: what is drawn at each position, up to the first that differs from the draft."""
    B, positions, V = target.shape
    drawn, _, status = torch.ops.specref.sample_rows(target.reshape(-1, V), ones(B * positions), None, u.flatten())
    drawn, bad = drawn.reshape(B, positions), status.reshape(B, positions) != 0
    same = (drawn[:, :-1] == ids) & ~bad[:, :-1]
    accepted = same.long().cumprod(dim=1).sum(dim=1)
    refused = bad.gather(1, accepted[:, None])[:, 0]
    return VerifiedBatch(accepted.numpy(), drawn.gather(1, accepted[:, None])[:, 0].long().numpy(), refused=refused.numpy())


class KernelTree:
    """A tree rule in our kernels, `verify_tree_sampled`.

    That one is told one law per parent, which its children were drawn from: independently (with_replacement) or without
    replacement. Where a row's laws are not of this kind, because its elder siblings had taken all the mass there was, the
    batched rule decides; `others` counts these rows, and `decided` those of the kernel.
    """

    trees: Literal[True] = True
    takes_uniforms = True

    def __init__(self, rule: str, with_replacement: bool = False) -> None:
        self.rule, self.with_replacement = rule, with_replacement
        self.name = "kernel tree with_replacement" if with_replacement else f"kernel tree {rule}"
        self.decided = self.others = 0

    def verify(
        self, p: Floats, q: Floats | None, tokens: Ints, parents: Ints, *, uniforms: Floats | None, seed: int
    ) -> VerifiedBatch:
        """See `TreeVerifier.verify`. Raises Unsupported without a C++ compiler."""
        require_emulator(self.name)
        B, N, _ = p.shape
        u = numbers(uniforms, (B, N), seed)
        first_child = links(torch.from_numpy(parents))[0].numpy()
        if q is None:
            fits, draft, mode = np.ones(B, bool), None, DETERMINISTIC
        else:
            fits = _one_law_per_parent(q, tokens, parents, first_child, self.with_replacement)
            draft = logits(q[np.arange(B)[:, None], np.maximum(first_child, 0)])  # that of the eldest child
            draft[torch.from_numpy(first_child < 0)] = 0.0  # of a leaf: any
            mode = IID if self.with_replacement else WITHOUT_REPLACEMENT
        path, out_ids, accepted, status = torch.ops.specref.verify_tree_sampled(
            *(torch.from_numpy(tokens).int(), *built(parents)[2:], logits(p), draft, norms(draft), mode, u),
            *(ones(B), None if draft is None else ones(B), None, None, N - 1),
        )
        answer = _batch(out_ids, accepted, status, path[:, 1:])
        self.decided, self.others = self.decided + int(fits.sum()), self.others + int((~fits).sum())
        if fits.all() or q is None:
            return answer
        some = np.flatnonzero(~fits)
        rest = BatchedTree(self.rule).verify(
            p[some], q[some], tokens[some], parents[some], uniforms=u[some].double().numpy(), seed=seed
        )
        for mine, theirs in zip(_fields(answer), _fields(rest), strict=True):
            mine[some] = theirs
        return answer


def _one_law_per_parent(q: Floats, tokens: Ints, parents: Ints, first_child: Ints, with_replacement: bool) -> Mask:
    """Which rows `[B]` have siblings of the law that the kernel thinks of: their eldest's, less its elders' tokens if gone."""
    rows, fits = np.arange(len(q)), np.ones(len(q), bool)
    for n in range(1, tokens.shape[1]):
        eldest = first_child[rows, parents[:, n]]
        law = q[rows, eldest].copy()
        for elder in range(1, n) if not with_replacement else ():
            gone = parents[:, elder] == parents[:, n]
            law[rows[gone], tokens[gone, elder]] = 0
        whole = law.sum(axis=1, keepdims=True)
        fits &= (whole[:, 0] > 1e-9) & (np.abs(law / np.maximum(whole, 1e-300) - q[:, n]).max(axis=1) < 1e-9)
    return fits


class KernelMasks:
    """`tree_build`: what each node of a tree sees, and where it stands."""

    name = "kernel tree_build"

    def build(self, prefix: int, tokens: Sequence[int], parents: Sequence[int]) -> TreeInputs:
        """See `MaskBuilder.build`. Raises Unsupported without a C++ compiler."""
        require_emulator(self.name)
        N = len(tokens)
        bits, positions, _, _ = built(np.array([parents]), prefix)
        tree = (bits[0, :, None] >> torch.arange(N) & 1).bool().numpy()
        mask = np.concatenate([np.ones((N, prefix), bool), tree], axis=1)
        return TreeInputs(mask, positions[0].long().numpy(), np.array(tokens))


def built(parents: Ints, prefix: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """mask, positions, first_child and next_sibling `[B, N]` of trees of which every node is meant."""
    B, N = parents.shape
    count, start = torch.full((B,), N, dtype=torch.int32), torch.full((B,), prefix, dtype=torch.int32)
    return specref.cuda.tree_build(torch.from_numpy(parents).int(), count, start)


def logits(laws: Floats) -> Tensor:
    """ln of laws `[..., V]` as float32; NaN for what is no probability."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return torch.from_numpy(np.ascontiguousarray(np.log(laws).astype(np.float32)))


def norms(draft: Tensor | None) -> Tensor | None:
    """`row_norm` of draft logits `[B, n, V]`, `[B, n, 2]`; None where drafts have no laws."""
    if draft is None:
        return None
    B, n, V = draft.shape
    norm: Tensor = torch.ops.specref.row_norm(draft.reshape(B * n, V), ones(B * n), None)[0]
    return norm.reshape(B, n, 2)


def ones(n: int) -> Tensor:
    """Inverse temperature 1 for n rows."""
    return torch.ones(n)


def numbers(uniforms: Floats | None, shape: tuple[int, int], seed: int) -> Tensor:
    """The uniforms rounded down to multiples of 2^-24, or fresh ones; float32."""
    if uniforms is None:
        steps = torch.randint(0, STEPS, shape, generator=torch.Generator().manual_seed(seed))
    else:
        steps = torch.from_numpy(np.floor(uniforms * STEPS))
    return (steps / STEPS).float()


def _batch(out_ids: Tensor, accepted: Tensor, status: Tensor, path: Tensor | None = None) -> VerifiedBatch:
    next_token = out_ids.gather(1, accepted.long()[:, None])[:, 0]
    found = None if path is None else path.long().numpy()
    return VerifiedBatch(accepted.long().numpy(), next_token.long().numpy(), found, refused=status.numpy() != 0)


def _fields(batch: VerifiedBatch) -> tuple[Ints, Ints, Ints, Mask]:
    assert batch.path is not None
    assert batch.refused is not None
    return batch.accepted, batch.next_token, batch.path, batch.refused
