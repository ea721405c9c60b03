"""Batches of drafts, and what a rule decided about them. Rows are padded: each says how much of it is meant.

Drafts and trees may be claimed by anybody: what is wrong with a row shows in its status. Wrong shapes raise ValueError.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specref import rules
from specref.batched.laws import law_at
from specref.batched.status import BAD_DRAFT, BAD_ID, BAD_SETTING, BAD_TARGET, BAD_TREE, bad_numbers, flag, no_best, not_a_law


@dataclass(frozen=True)
class VerifiedRows:
    """What a rule decided, row by row: the fields of `specref.rules.Verified` as tensors, int64.

    accepted `[B]`: drafted tokens kept. next_token `[B]`: the token after them; -1 in a row with a status. path `[B, N-1]`: in
    a tree the accepted nodes from the root's child down, then -1; `[B, 0]` for chains. status `[B]`: `specref.batched.status`.
    """

    accepted: Tensor
    next_token: Tensor
    path: Tensor
    status: Tensor

    @classmethod
    def of(cls, accepted: Tensor, next_token: Tensor, status: Tensor, path: Tensor | None = None) -> VerifiedRows:
        """The outcome, with nothing accepted and no token in rows that have a status.

        >>> VerifiedRows.of(torch.tensor([1, 1]), torch.tensor([5, 5]), status=torch.tensor([0, 4])).rows()
        [Verified(accepted=1, next_token=5, path=()), Verified(accepted=0, next_token=-1, path=())]
        """
        good = status == 0
        if path is None:
            path = accepted.new_empty(len(accepted), 0)
        return cls(
            torch.where(good, accepted, 0), torch.where(good, next_token, -1), torch.where(good[:, None], path, -1), status
        )

    def rows(self) -> list[rules.Verified]:
        """The rows one by one, as the reference returns them."""
        lists = (self.accepted.tolist(), self.next_token.tolist(), self.path.tolist())
        return [rules.Verified(n, token, tuple(path[:n])) for n, token, path in zip(*lists)]


class Drafts:
    """Chains of drafted tokens, row by row: the batched `Draft`.

    tokens int64 `[B, k]`; laws `[B, k, V]`: those that the tokens were drawn from, None where they were chosen; num_draft
    `[B]`: how many tokens of each row are meant, 0 to k (None: all); what is behind them is never looked at.
    Raises ValueError for shapes that do not go together.

    >>> Drafts(torch.tensor([[3, 1], [2, 0]]), num_draft=torch.tensor([2, 1])).meant
    tensor([[ True,  True],
            [ True, False]])
    """

    def __init__(self, tokens: Tensor, laws: Tensor | None = None, num_draft: Tensor | None = None) -> None:
        _expect("tokens", tokens, tokens.dim() == 2, "int64 [B, k]", torch.int64)
        B, k = tokens.shape
        num_draft = torch.full((B,), k, device=tokens.device) if num_draft is None else num_draft.long()
        _expect("num_draft", num_draft, num_draft.shape == (B,), f"[{B}]", torch.int64)
        if laws is not None:
            _expect("laws", laws, laws.dim() == 3 and laws.shape[:2] == (B, k), f"[{B}, {k}, V]")
        self.tokens, self._laws = tokens, laws
        self.count = num_draft.clamp(0, k)
        self.meant = torch.arange(k, device=tokens.device) < self.count[:, None]
        self._wrong_count = num_draft != self.count

    @property
    def laws(self) -> Tensor:
        """`[B, k, V]`. Raises ValueError where the tokens were chosen."""
        if self._laws is None:
            raise ValueError(
                "these drafted tokens were chosen, not drawn, so they have no laws; "
                "verify them with one_hot_ratio, token_matching or greedy"
            )
        return self._laws

    def law_at(self, position: Tensor) -> Tensor:
        """The law of the drafted token at `position [B]` of each row, `[B, V]`; zeros behind the last one that is meant."""
        B, k, V = self.laws.shape
        if k == 0:
            return self.laws.new_zeros(B, V)
        law = law_at(self.laws, position.clamp(max=k - 1))
        return law.index_fill_(0, (position >= self.count).nonzero()[:, 0], 0.0)

    def checked(self, p: Tensor, u: Tensor | None, *, with_laws: bool, scores: bool = False) -> tuple[Tensor, Tensor]:
        """The tokens `[B, k]`, those outside the vocabulary replaced by 0, and the status `[B]` of every row.

        p `[B, k+1, V]`: the target's laws, or `scores` that only have to have a largest one. u `[B, k+1]`, or None if the rule
        asks for no numbers. with_laws: does the rule read the draft's laws? Raises ValueError for shapes that do not fit.
        """
        tokens, status = self.checked_tokens(p, u, self.laws if with_laws else None)
        after = torch.arange(p.shape[1], device=p.device) <= self.count[:, None]  # the positions that have a target law
        status |= flag((no_best(p) if scores else not_a_law(p)) & after, BAD_TARGET)
        if with_laws:
            status |= flag(not_a_law(self.laws) & self.meant, BAD_DRAFT)
        return tokens, status

    def checked_tokens(self, p: Tensor, u: Tensor | None, q: Tensor | None) -> tuple[Tensor, Tensor]:
        """The part of `checked` that reads nothing of p `[B, k+1, V]` and the draft's q `[B, k, V]`: laws or logits."""
        B, k = self.tokens.shape
        V = _vocabulary(p, u, (B, k + 1), q)
        outside = (self.tokens < 0) | (self.tokens >= V)
        status = flag(outside & self.meant, BAD_ID) | flag(self._wrong_count, BAD_SETTING)
        if u is not None:
            status |= bad_numbers(u)
        return self.tokens.masked_fill(outside, 0), status


class Trees:
    """Token trees, row by row: the batched `TokenTree` with its draft. Node 0 is the root, the last committed token.

    tokens int64 `[B, N]` (the root's is never looked at); parents int64 `[B, N]`: -1 for the root, and every other parent
    precedes its child; laws `[B, N, V]`: laws[b, n] is the one that node n was drawn from (of the root: anything), None where
    tokens were chosen; num_nodes `[B]`: how many nodes of each row are meant, 1 to N, the root counted (None: all).
    Raises ValueError for shapes that do not go together.

    >>> Trees(torch.tensor([[7, 1, 2]]), parents=torch.tensor([[-1, 0, 0]]), num_nodes=torch.tensor([2])).meant
    tensor([[ True,  True, False]])
    """

    def __init__(self, tokens: Tensor, parents: Tensor, laws: Tensor | None = None, num_nodes: Tensor | None = None) -> None:
        _expect("tokens", tokens, tokens.dim() == 2 and tokens.shape[1] > 0, "int64 [B, N] with N > 0", torch.int64)
        B, N = tokens.shape
        _expect("parents", parents, parents.shape == (B, N), f"int64 [{B}, {N}]", torch.int64)
        num_nodes = torch.full((B,), N, device=tokens.device) if num_nodes is None else num_nodes.long()
        _expect("num_nodes", num_nodes, num_nodes.shape == (B,), f"[{B}]", torch.int64)
        if laws is not None:
            _expect("laws", laws, laws.dim() == 3 and laws.shape[:2] == (B, N), f"[{B}, {N}, V]")
        self.tokens, self._laws = tokens, laws
        node = torch.arange(N, device=tokens.device)
        self.meant = node < num_nodes.clamp(1, N)[:, None]
        misplaced = torch.where(node == 0, parents != -1, (parents < 0) | (parents >= node)) & self.meant
        self.malformed = misplaced.any(dim=1) | (num_nodes < 1) | (num_nodes > N)
        # Whatever is wrong or not meant becomes a tree that is safe to walk: a root alone.
        self.meant = self.meant & ~(self.malformed[:, None] & (node > 0))
        self.parents = parents.where(self.meant, -1)
        self.parents[:, 0] = -1

    @property
    def laws(self) -> Tensor:
        """`[B, N, V]`. Raises ValueError where the tokens were chosen."""
        if self._laws is None:
            raise ValueError(
                "the tokens of these trees were chosen, not drawn, so they have no laws; "
                "verify them with sequential_one_hot, target_only or greedy"
            )
        return self._laws

    def path_to(self, node: Tensor) -> tuple[Tensor, Tensor]:
        """The depth `[B]` of one node `[B]` of each tree, and the nodes `[B, N-1]` from the root's child down to it, then -1.

        >>> trees = Trees(torch.tensor([[7, 1, 2, 3]]), parents=torch.tensor([[-1, 0, 0, 2]]))
        >>> trees.path_to(torch.tensor([3]))
        (tensor([2]), tensor([[ 2,  3, -1]]))
        """
        N = self.tokens.shape[1]
        place = torch.arange(N, device=node.device)
        seen = place == node[:, None]
        for n in range(N - 1, 0, -1):  # parents precede children: from the back, every node hands on to its parent
            seen |= seen[:, n, None] & (place == self.parents[:, n, None])
        nodes = torch.where(seen, place, N)[:, 1:].sort(dim=1).values
        return seen.sum(dim=1) - 1, torch.where(nodes < N, nodes, -1)

    def checked(self, p: Tensor, u: Tensor | None, *, with_laws: bool, scores: bool = False) -> tuple[Tensor, Tensor]:
        """The tokens `[B, N]`, those outside the vocabulary replaced by 0, and the status `[B]` of every row.

        p `[B, N, V]`, u `[B, N]`; the rest as `Drafts.checked`.
        """
        V = _vocabulary(p, u, (self.tokens.shape[0], self.tokens.shape[1]), self.laws if with_laws else None)
        status = flag((no_best(p) if scores else not_a_law(p)) & self.meant, BAD_TARGET) | flag(self.malformed, BAD_TREE)
        outside = (self.tokens < 0) | (self.tokens >= V)
        status |= flag((outside & self.meant)[:, 1:], BAD_ID)
        if with_laws:
            status |= flag((not_a_law(self.laws) & self.meant)[:, 1:], BAD_DRAFT)
        if u is not None:
            status |= bad_numbers(u)
        return self.tokens.masked_fill(outside, 0), status


def _vocabulary(p: Tensor, u: Tensor | None, shape: tuple[int, int], laws: Tensor | None) -> int:
    """V, after checking that p `[*shape, V]`, u `[*shape]` and the draft's laws `[B, n, V]` go together."""
    _expect("p", p, p.dim() == 3 and tuple(p.shape[:2]) == shape and p.shape[2] > 0, f"[{shape[0]}, {shape[1]}, V]")
    if not p.is_floating_point():
        raise ValueError(f"p must be floating point, got {p.dtype}")
    V = p.shape[2]
    if u is not None:
        _expect("u", u, tuple(u.shape) == shape, f"{p.dtype} [{shape[0]}, {shape[1]}], of p's type", p.dtype)
    if laws is not None:
        _expect("the draft's laws", laws, laws.shape[2] == V, f"{p.dtype} [*, *, {V}], of p's type", p.dtype)
    return V


def _expect(name: str, tensor: Tensor, fits: bool, wanted: str, dtype: torch.dtype | None = None) -> None:
    if not fits or (dtype is not None and tensor.dtype != dtype):
        raise ValueError(f"{name} must be {wanted}; got {tensor.dtype} {list(tensor.shape)}")
