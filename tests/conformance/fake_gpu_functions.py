"""FlashInfer's and SGLang's functions as they are documented, computed by our rules, and strict about what they are handed.

Signatures, shapes and types: flashinfer-python 0.7.4, `flashinfer/sampling.py` and `csrc/sampling.cu`; sglang 0.5.23,
`sglang/kernels/ops/speculative/` and `sglang/kernels/jit/csrc/speculative/`. A fault of ours is planted by its name.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specref.batched import Drafts, Trees, VerifiedRows
from specref.batched.chain import ratio
from specref.batched.masks import links
from specref.batched.status import require_good
from specref.batched.tree import greedy, target_only
from specref.tree import TokenTree

F32, I32, I64, BOOL = torch.float32, torch.int32, torch.int64, torch.bool


def expect(name: str, tensor: object, dtype: torch.dtype, *shape: int) -> None:
    """What the functions' own code checks before it starts a kernel, or trusts."""
    assert isinstance(tensor, Tensor), f"{name} is a {type(tensor).__name__}"
    assert tensor.dtype == dtype, f"{name} is {tensor.dtype}, not {dtype}"
    assert tuple(tensor.shape) == shape, f"{name} is {list(tensor.shape)}, not {list(shape)}"
    assert tensor.is_contiguous(), f"{name} is not contiguous"


class Chain:
    """`flashinfer.sampling.chain_speculative_sampling`."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault

    def __call__(
        self,
        draft_probs: Tensor,
        draft_token_ids: Tensor,
        target_probs: Tensor,
        maybe_output_accepted_token_num: Tensor | None = None,
        maybe_output_emitted_draft_token_num: Tensor | None = None,
        deterministic: bool = True,
        generator: torch.Generator | None = None,
        seed: int | None = None,
        offset: int | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        B, k = draft_token_ids.shape
        V = target_probs.shape[2]
        expect("draft_probs", draft_probs, F32, B, k, V)
        expect("draft_token_ids", draft_token_ids, I32, B, k)
        expect("target_probs", target_probs, F32, B, k + 1, V)
        assert isinstance(generator, torch.Generator), "without a generator the global one is read, which the call does not say"
        assert deterministic
        assert seed is offset is maybe_output_accepted_token_num is maybe_output_emitted_draft_token_num is None
        p, q, ids = target_probs.double(), draft_probs.double(), draft_token_ids.long()
        u = torch.rand(B, k + 1, dtype=torch.float64, generator=generator)
        out = self.decided(p, q, ids, u)
        require_good(out.status)
        place, count = torch.arange(k + 1), out.accepted[:, None]
        emitted = torch.where(place < count, torch.nn.functional.pad(ids, (0, 1)), -1)
        emitted = torch.where(place == count, out.next_token[:, None], emitted)
        alone = torch.ones(B, dtype=I32)  # of each draft alone: a metric that nothing here reads
        return emitted.int(), alone, out.accepted.int()

    def decided(self, p: Tensor, q: Tensor, ids: Tensor, u: Tensor) -> VerifiedRows:
        if self.fault == "another row's laws":
            q = q.roll(1, dims=0)
        if self.fault == "no residual":
            out = ratio(p, Drafts(ids, q), u)
            again = p.gather(1, out.accepted[:, None, None].expand(-1, 1, p.shape[2]))[:, 0]
            return VerifiedRows.of(out.accepted, (again.cumsum(1) <= u[:, -1:]).sum(1).clamp(max=p.shape[2] - 1), out.status)
        return ratio(p, Drafts(ids, q), u)


def parents_of(retrive_next_token: Tensor, retrive_next_sibling: Tensor) -> Tensor:
    """The parents `[B, N]` of trees that are told by first children and next siblings `[B, N]`."""
    parents = torch.full_like(retrive_next_token, -1)
    for row, (firsts, nexts) in enumerate(zip(retrive_next_token.tolist(), retrive_next_sibling.tolist(), strict=True)):
        for node, child in enumerate(firsts):
            while child != -1:
                assert parents[row, child] == -1, f"row {row}: node {child} is linked twice"
                parents[row, child] = node
                child = nexts[child]
    return parents


def expect_trees(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
) -> Trees:
    """The trees of a call; what both of SGLang's verifications ask of their first seven arguments."""
    B, N = candidates.shape
    expect("predicts", predicts, I32, B * N)
    expect("accept_index", accept_index, I32, B, accept_index.shape[1])
    expect("accept_token_num", accept_token_num, I32, B)
    given = {"candidates": candidates, "retrive_index": retrive_index}
    given |= {"retrive_next_token": retrive_next_token, "retrive_next_sibling": retrive_next_sibling}
    for name, tensor in given.items():
        expect(name, tensor, I64, B, N)
    assert retrive_index.flatten().tolist() == list(range(B * N)), "a node's place is its own"
    assert accept_index.eq(-1).all(), "places that are not written are told by -1"
    return Trees(candidates, parents_of(retrive_next_token, retrive_next_sibling))


def write(out: VerifiedRows, trees: Trees, predicts: Tensor, accept_index: Tensor, accept_token_num: Tensor) -> None:
    """The outcome, where both verifications write it."""
    require_good(out.status)
    B, N = trees.tokens.shape
    assert accept_index.shape[1] > int(out.accepted.max()), "accept_index has no room for the deepest path"
    path = torch.cat([torch.zeros(B, 1, dtype=I64), out.path], dim=1)
    for row, count in enumerate(out.accepted.tolist()):
        nodes = path[row, : count + 1]
        accept_index[row, : count + 1] = (row * N + nodes).int()
        after = torch.cat([trees.tokens[row, nodes[1:]], out.next_token[row : row + 1]])
        predicts[row * N + nodes] = after.int()
    accept_token_num.copy_(out.accepted)


class TargetOnly:
    """`tree_speculative_sampling_target_only`."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault

    def __call__(
        self,
        predicts: Tensor,
        accept_index: Tensor,
        accept_token_num: Tensor,
        candidates: Tensor,
        retrive_index: Tensor,
        retrive_next_token: Tensor,
        retrive_next_sibling: Tensor,
        uniform_samples: Tensor,
        uniform_samples_for_final_sampling: Tensor,
        target_probs: Tensor,
        draft_probs: Tensor,
        threshold_single: float = 1.0,
        threshold_acc: float = 1.0,
        deterministic: bool = True,
    ) -> None:
        B, N = candidates.shape
        found = (retrive_index, retrive_next_token, retrive_next_sibling)
        trees = expect_trees(predicts, accept_index, accept_token_num, candidates, *found)
        expect("uniform_samples", uniform_samples, F32, B, N)
        expect("uniform_samples_for_final_sampling", uniform_samples_for_final_sampling, F32, B)
        expect("target_probs", target_probs, F32, B, N, target_probs.shape[2])
        expect("draft_probs", draft_probs, F32, *target_probs.shape)
        assert not draft_probs.any(), "it notes rejected tokens there, so it must be zeros"
        assert 0 <= threshold_single <= 1
        assert 0 <= threshold_acc <= 1
        assert deterministic
        u = torch.zeros(B, N, dtype=torch.float64)
        first = retrive_next_token
        rows, nodes = (first > 0).nonzero(as_tuple=True)
        u[rows, first[rows, nodes] - 1] = uniform_samples[rows, nodes].double()
        u[:, -1] = uniform_samples_for_final_sampling.double()
        if self.fault == "thresholds of its own":
            threshold_acc = 0.25  # evidence of 1e103, give or take 1e7; with .5 of 1e30, give or take 1e6
        p = target_probs.double()
        if self.fault == "the root's law everywhere":
            p = p[:, :1].expand_as(p)
        write(target_only(p, trees, u, threshold_acc, threshold_single), trees, predicts, accept_index, accept_token_num)


class Greedy:
    """`verify_tree_greedy`."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault

    def __call__(
        self,
        predicts: Tensor,
        accept_index: Tensor,
        accept_token_num: Tensor,
        candidates: Tensor,
        retrive_index: Tensor,
        retrive_next_token: Tensor,
        retrive_next_sibling: Tensor,
        target_predict: Tensor,
    ) -> None:
        found = (retrive_index, retrive_next_token, retrive_next_sibling)
        trees = expect_trees(predicts, accept_index, accept_token_num, candidates, *found)
        expect("target_predict", target_predict, I64, *candidates.shape)
        V = int(max(target_predict.max(), candidates.max())) + 1  # the first id that is none of these
        if self.fault == "the eldest child alone":
            eldest = torch.zeros_like(candidates, dtype=BOOL).scatter_(1, retrive_next_token.clamp(min=0), value=True)
            trees.tokens = torch.where(eldest, candidates, V)
        if self.fault == "the token before":
            target_predict = target_predict[:, :1].expand_as(target_predict)
        best = torch.nn.functional.one_hot(target_predict, V + 1).double()
        write(greedy(best, trees), trees, predicts, accept_index, accept_token_num)


class Build:
    """`build_tree_kernel_efficient`, with masks that have columns for the prefix."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault

    def __call__(
        self,
        parent_list: Tensor,
        selected_index: Tensor,
        verified_seq_len: Tensor,
        tree_mask: Tensor,
        positions: Tensor,
        retrive_index: Tensor,
        retrive_next_token: Tensor,
        retrive_next_sibling: Tensor,
        topk: int,
        depth: int,
        draft_token_num: int,
        tree_mask_mode: int,
    ) -> None:
        B, N = len(verified_seq_len), draft_token_num
        lengths = verified_seq_len.tolist()
        expect("parent_list", parent_list, I64, B, topk * (depth - 1) + 1)
        expect("selected_index", selected_index, I64, B, N - 1)
        expect("verified_seq_len", verified_seq_len, I64, B)
        expect("tree_mask", tree_mask, BOOL, sum(lengths) * N + B * N * N)
        expect("positions", positions, I64, B * N)
        assert tree_mask_mode == 0
        written = {"retrive_index": retrive_index, "retrive_next_token": retrive_next_token}
        for name, tensor in (written | {"retrive_next_sibling": retrive_next_sibling}).items():
            expect(name, tensor, I64, B, N)
            assert tensor.eq(-1).all(), f"{name} must come filled with -1"
        start = 0
        for row, length in enumerate(lengths):
            tree = self.tree(parent_list[row].tolist(), selected_index[row].tolist(), topk)
            assert max(tree.depths) <= depth
            before = lengths[0] if self.fault == "the first request's prefix" else length
            mask = tree_mask[start : start + N * (length + N)].view(N, length + N)
            mask[:, length:] = self.seen(tree)
            positions[row * N : (row + 1) * N] = torch.tensor(tree.position_ids(before))
            retrive_index[row] = torch.arange(N) + row * N
            first_child, next_sibling = links(torch.tensor([tree.parents]))
            if self.fault == "a sibling lost":
                next_sibling[next_sibling == N - 1] = -1
            retrive_next_token[row], retrive_next_sibling[row] = first_child[0], next_sibling[0]
            start += N * (length + N)

    def tree(self, parent_list: list[int], selected: list[int], topk: int) -> TokenTree:
        """The tree that the numbers of candidates describe."""
        assert len(set(selected)) == len(selected), "a candidate is selected twice"
        parents = [-1]
        for number in selected:
            beam = number // topk
            parents.append(0 if beam == 0 else 1 + selected.index(parent_list[beam]))
        return TokenTree(list(range(len(parents))), parents)

    def seen(self, tree: TokenTree) -> Tensor:
        mask = torch.from_numpy(tree.ancestor_mask())
        if self.fault == "only the parent":
            own, parents = torch.eye(len(tree), dtype=BOOL), torch.tensor(tree.parents).clamp(min=0)
            mask = own | own[parents]
        return mask


chain_speculative_sampling = Chain()
tree_speculative_sampling_target_only, verify_tree_greedy, build_tree_kernel_efficient = TargetOnly(), Greedy(), Build()
