"""Inputs on which every kernel must equal its torch reference bit for bit: random rows, and the corners of each definition.

Rows differ in everything (logits, temperature, threshold, uniforms), so that a mix-up of rows or positions shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from specref.cuda import reference, reference_cache, reference_filters, reference_trees

INFINITY, NAN = float("inf"), float("nan")


@dataclass(frozen=True)
class Case:
    """One call of an op. `mutated`: positions of arguments it changes; `tolerance`: None for bit equality."""

    op: str
    name: str
    arguments: tuple[Any, ...]
    plain: Callable[..., tuple[Tensor, ...]]
    mutated: tuple[int, ...] = ()
    tolerance: float | None = None

    def _call(self, function: Callable[..., tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        arguments = [a.clone() if i in self.mutated else a for i, a in enumerate(self.arguments)]
        return (*function(*arguments), *[arguments[i] for i in self.mutated])

    def expected(self) -> tuple[Tensor, ...]:
        """What the torch reference gives."""
        return self._call(self.plain)

    def computed(self) -> tuple[Tensor, ...]:
        """What the kernel gives."""
        return self._call(getattr(torch.ops.specref, self.op))

    def difference(self, expected: tuple[Tensor, ...]) -> str | None:
        """Run the kernel; None if it gives what is expected, else which output differs and where first."""
        for number, (mine, theirs) in enumerate(zip(self.computed(), expected, strict=True)):
            if self.tolerance is None or not mine.is_floating_point():
                same = mine == theirs
            else:
                same = torch.isclose(mine.double(), theirs.double(), rtol=self.tolerance, atol=self.tolerance)
            if not bool(same.all()):
                place = (~same).nonzero()[0].tolist()
                return f"{self.op}, {self.name}: output {number} at {place} is {mine[tuple(place)]}, not {theirs[tuple(place)]}"
        return None


class Maker:
    """Random inputs of one type and vocabulary size, from one seed."""

    def __init__(self, dtype: torch.dtype, V: int, seed: int = 0) -> None:
        self.dtype, self.V = dtype, V
        self.generator = torch.Generator().manual_seed(seed * 1_000_003 + V)

    def normal(self, *shape: int) -> Tensor:
        """Standard normal float32."""
        return torch.randn(*shape, generator=self.generator)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Uniform int32 in [low, high)."""
        return torch.randint(low, high, shape, generator=self.generator, dtype=torch.int32)

    def uniforms(self, *shape: int) -> Tensor:
        """Multiples of 2^-24 in [0, 1); some are exactly 0 and some the largest below 1."""
        u = torch.randint(0, 1 << 24, shape, generator=self.generator)
        kind = torch.randint(0, 12, shape, generator=self.generator)
        return torch.where(kind == 0, 0, torch.where(kind == 1, (1 << 24) - 1, u)).float() / (1 << 24)

    def temperatures(self, *shape: int) -> Tensor:
        """Inverse temperatures between 1/2 and 2."""
        return torch.rand(*shape, generator=self.generator) * 1.5 + 0.5

    def logits(self, *shape: int) -> Tensor:
        """Logits `[*shape, V]` with ties, masked tokens and, in some rows, a single token that has nearly all the mass."""
        z = self.normal(*shape, self.V) * 2
        kind = self.integers(0, 8, *shape)
        masked = torch.rand(z.shape, generator=self.generator) < 0.5
        z = torch.where((kind == 0)[..., None] & masked, -INFINITY, z)
        z = torch.where((kind == 1)[..., None], ((z * 2).round() / 2).clamp(max=1.5), z)  # ties, at the maximum above all
        z = torch.where((kind == 3)[..., None], z * 1e-6, z)  # subnormal in float16
        z = torch.where((kind == 4)[..., None], z * 1e-9, z)  # so near to 0 that 1 + z is 1
        peak = torch.nn.functional.one_hot(self.integers(0, self.V, *shape).long(), self.V)
        return torch.where((kind == 2)[..., None], z + 60 * peak, z).to(self.dtype)

    def even(self, *shape: int) -> Tensor:
        """Logits of laws that are uniform over 1, 2, 4 or 8 random tokens: all masses and cumulative masses are powers of 2."""
        order = torch.rand(*shape, self.V, generator=self.generator).argsort(dim=-1)
        some = 1 << self.integers(0, min(4, self.V.bit_length()), *shape)
        return torch.where(order < some[..., None], 1.5, -INFINITY).to(self.dtype)

    def sixteenths(self, *shape: int) -> Tensor:
        """Uniforms that fall exactly on the boundaries of such laws."""
        return self.integers(0, 16, *shape).float() / 16

    def cuts(self, logits: Tensor) -> Tensor:
        """Thresholds that keep some of each row; most equal one of its logits."""
        place = self.integers(0, max(1, self.V // 2), *logits.shape[:-1]).long()[..., None]
        exact = logits.float().sort(dim=-1, descending=True).values.gather(-1, place)[..., 0]
        return torch.where(self.integers(0, 3, *exact.shape) == 0, exact - 0.01, exact)

    def near(self, logits: Tensor) -> Tensor:
        """Draft logits near the target's; in some rows the same."""
        other = logits.float() + self.normal(*logits.shape) * 0.7
        same = self.integers(0, 6, *logits.shape[:-1]) == 0
        return torch.where(same[..., None], logits.float(), other).to(self.dtype)

    def drawn(self, logits: Tensor, inv_temp: Tensor, threshold: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Ids drawn from logits `[B, n, V]` as `sample_rows` does, and the norms."""
        B, n, V = logits.shape
        flat = None if threshold is None else threshold.reshape(-1)
        rows = inv_temp.repeat_interleave(n)
        ids, norm, _ = reference.sample_rows(logits.reshape(-1, V), rows, flat, self.uniforms(B * n))
        return ids.reshape(B, n), norm.reshape(B, n, 2)

    def parents(self, B: int, N: int) -> Tensor:
        """Random trees `[B, N]`, of all shapes between a chain and a star."""
        parents = torch.full((B, N), -1, dtype=torch.int32)
        reach = self.integers(1, N + 1, B)
        for n in range(1, N):
            back = torch.minimum(reach, torch.tensor(n))
            parents[:, n] = n - 1 - (torch.rand(B, generator=self.generator) * back).int().clamp(max=n - 1)
        return parents


def _spoil(logits: Tensor, *values: float) -> Tensor:
    """Put one bad value in each of the last rows."""
    spoiled = logits.clone()
    flat = spoiled.view(-1, spoiled.shape[-1])
    for i, value in enumerate(values, start=1):
        flat[-i, (i * 7) % flat.shape[-1]] = value
    return spoiled


def row_cases(make: Maker, rows: int) -> list[Case]:
    """row_norm, sample_rows and the two top-k / top-p ops."""
    V = make.V
    z = make.logits(rows)
    inv_temp, threshold, u = make.temperatures(rows), make.cuts(z), make.uniforms(rows)
    bad = _spoil(z, NAN, INFINITY)
    bad[0] = -INFINITY
    bad_temp = inv_temp.clone()
    bad_temp[1 % rows] = -1.0
    k = make.integers(0, min(60, V), rows) * (make.integers(0, 4, rows) > 0)
    k[-1] = V
    p = torch.rand(rows, generator=make.generator).clamp(min=1e-6)
    p[make.integers(0, 4, rows) == 0] = 1.0
    flat = torch.full_like(z, 1.5)  # one value: every logit is a tie
    late = z.clone()
    late[:, -1] = 80.0  # the maximum far beyond the first logits, and a row that begins masked
    late[0, : V // 2] = -INFINITY
    bad_p = p.clone()
    bad_p[0] = 0.0
    return [
        Case("row_norm", "random", (z, inv_temp, None), reference.row_norm),
        Case("row_norm", "filtered", (z, inv_temp, threshold), reference.row_norm),
        Case("row_norm", "bad rows", (bad, bad_temp, None), reference.row_norm),
        Case("sample_rows", "random", (z, inv_temp, None, u), reference.sample_rows),
        Case("sample_rows", "filtered", (z, inv_temp, threshold, u), reference.sample_rows),
        Case("sample_rows", "boundaries", (make.even(rows), inv_temp, None, make.sixteenths(rows)), reference.sample_rows),
        Case("sample_rows", "bad rows", (bad, bad_temp, None, u + 0.5), reference.sample_rows),
        Case("topk_topp_threshold", "random", (z, inv_temp, k, p), reference_filters.topk_topp_threshold),
        Case("topk_topp_threshold", "ties", (flat, inv_temp, k, p), reference_filters.topk_topp_threshold),
        Case("topk_topp_threshold", "late maximum", (late, inv_temp * 3, k, p), reference_filters.topk_topp_threshold),
        Case("topk_topp_threshold", "bad rows", (bad, bad_temp, k, bad_p), reference_filters.topk_topp_threshold),
        Case("topk_topp_softmax", "random", (z, inv_temp, None), reference_filters.topk_topp_softmax),
        Case("topk_topp_softmax", "filtered", (bad, bad_temp, threshold), reference_filters.topk_topp_softmax),
    ]


def chain_cases(make: Maker, B: int, K: int) -> list[Case]:
    """verify_chain, fused and split."""
    target = make.logits(B, K + 1)
    draft = make.near(target[:, :K])
    inv_t, inv_d = make.temperatures(B), make.temperatures(B)
    inv_d[: B // 2] = inv_t[: B // 2]
    ids, norm = make.drawn(draft, inv_d)
    u, count = make.uniforms(B, K + 1), make.integers(0, K + 1, B)
    cut_t, cut_d = make.cuts(target), make.cuts(draft)
    cut_ids, cut_norm = make.drawn(draft, inv_d, cut_d)
    likely = target[:, :K].float().argmax(dim=-1).int()
    bad_ids, bad_u, bad_count = ids.clone(), u.clone(), count.clone()
    bad_ids[0, 0], bad_u[1 % B, K], bad_count[2 % B], bad_ids[-1, -1] = make.V, 1.0, K + 1, -1
    bad_draft, bad_norm = _spoil(draft, NAN, INFINITY), norm.clone()
    bad_norm[0, 0] = NAN
    even_t, even_d = make.even(B, K + 1), make.even(B, K)
    even_t[:, 0], even_d[:, 0] = 0, 0
    even_ids, even_norm = make.drawn(even_d, inv_d)
    plain = (target, draft, norm, ids)
    cases = {
        "random": (*plain, None, u, inv_t, inv_d, None, None),
        "variable length": (*plain, count, u, inv_t, inv_d, None, None),
        "filtered": (target, draft, cut_norm, cut_ids, None, u, inv_t, inv_d, cut_t, cut_d),
        "boundaries": (even_t, even_d, even_norm, even_ids, None, make.sixteenths(B, K + 1), inv_t, inv_d, None, None),
        "one-hot": (target, None, None, likely, count, u, inv_t, None, None, None),
        "bad target": (_spoil(target, NAN, INFINITY, NAN), draft, norm, ids, None, u, inv_t, inv_d, None, None),
        "bad draft": (target, bad_draft, bad_norm, ids, None, u, inv_t, inv_d, None, None),
        "bad settings": (target, draft, norm, bad_ids, bad_count, bad_u, inv_t, inv_d, None, None),
    }
    return [
        Case("verify_chain", f"{name}, {'split' if split else 'fused'}", (*arguments, split), reference.verify_chain)
        for name, arguments in cases.items()
        for split in (False, True)
    ]


def tree_cases(make: Maker, B: int, N: int) -> list[Case]:
    """tree_build and the two tree verifiers."""
    parents, count, prefix = make.parents(B, N), make.integers(1, N + 1, B), make.integers(0, 1000, B)
    full = torch.full((B,), N, dtype=torch.int32)
    bad_parents, bad_count, bad_prefix = parents.clone(), count.clone(), prefix.clone()
    bad_parents[0, N - 1], bad_count[1 % B], bad_prefix[2 % B] = N - 1, N + 1, -1
    bad_count[0] = N
    _, _, child, sibling, _ = reference_trees.tree_build(parents, full, prefix)

    target = make.logits(B, N)
    draft = make.near(target)
    inv_t, inv_d = make.temperatures(B), make.temperatures(B)
    inv_d[: B // 2] = inv_t[: B // 2]
    rows = draft.gather(1, parents.clamp(min=0).long()[..., None].expand(-1, -1, make.V))  # each node's parent's row
    ids, _ = make.drawn(rows, inv_d)
    norm = make.drawn(draft, inv_d)[1]
    argmax = target.float().argmax(dim=-1).int()
    follow = torch.rand(B, N, generator=make.generator) < 0.6
    greedy_ids = torch.where(follow, argmax.gather(1, parents.clamp(min=0).long()), ids)
    u = make.uniforms(B, N)
    cut, cut_d = make.cuts(target), make.cuts(draft)
    cut_norm = reference.rows_of(draft, inv_d[:, None], cut_d).norm
    bad_argmax, bad_child, bad_ids, bad_u = argmax.clone(), child.clone(), ids.clone(), u.clone()
    bad_argmax[0, 0], bad_child[1 % B, N - 1], bad_ids[2 % B], bad_u[3 % B] = -1, 0, make.V, -0.5
    bad_draft = _spoil(draft, NAN, INFINITY)
    bad_draft[0, 0, 1] = NAN

    build, greedy, sampled = reference_trees.tree_build, reference_trees.verify_tree_greedy, reference_trees.verify_tree_sampled
    links = (child, sibling)
    cases = [
        Case("tree_build", "random", (parents, count, prefix), build),
        Case("tree_build", "bad trees", (bad_parents, bad_count, bad_prefix), build),
        Case("verify_tree_greedy", "argmax", (greedy_ids, *links, argmax, None, N - 1), greedy),
        Case("verify_tree_greedy", "logits", (greedy_ids, *links, None, target, N - 1), greedy),
        Case("verify_tree_greedy", "bad rows", (greedy_ids, bad_child, sibling, bad_argmax, None, N // 2), greedy),
        Case("verify_tree_greedy", "bad logits", (bad_ids, *links, None, _spoil(target, NAN), N // 2), greedy),
    ]
    for mode in (reference_trees.IID, reference_trees.WITHOUT_REPLACEMENT, reference_trees.DETERMINISTIC):
        with_draft = mode != reference_trees.DETERMINISTIC
        q = partial(lambda yes, *tensors: tensors if yes else (None,) * len(tensors), with_draft)
        good = (ids, *links, target, *q(draft, norm), mode, u, inv_t, *q(inv_d), None, None, N - 1)
        filtered = (ids, *links, target, *q(draft, cut_norm), mode, u, inv_t, *q(inv_d), cut, *q(cut_d), N - 1)
        bad = (bad_ids, bad_child, sibling, _spoil(target, NAN), *q(bad_draft, norm), mode, bad_u, inv_t, *q(inv_d))
        cases += [
            Case("verify_tree_sampled", f"mode {mode}", good, sampled),
            Case("verify_tree_sampled", f"mode {mode}, filtered", filtered, sampled),
            Case("verify_tree_sampled", f"mode {mode}, bad rows", (*bad, None, None, N // 2), sampled),
        ]
    return cases


def cache_cases(make: Maker, B: int = 4) -> list[Case]:
    """tree_attn (16-bit types only) and kv_compact_, contiguous and paged."""
    L, N, S, Hq, Hk, page = 2, 9, 45, 6, 2, 4
    pages_per_row = -(-S // page)
    table = torch.randperm(B * pages_per_row, generator=make.generator).reshape(B, pages_per_row).int()
    bad_table = table.clone()
    bad_table[0, 1] = B * pages_per_row
    parents = make.parents(B, N)
    lengths = make.integers(0, S - N, B)
    lengths[0], lengths[-1] = 30, 0
    mask = reference_trees.tree_build(parents, torch.full((B,), N, dtype=torch.int32), lengths)[0]
    path = torch.stack([torch.randperm(N, generator=make.generator) for _ in range(B)])[:, :5].sort(dim=-1).values
    path[:, 0] = 0
    path, accepted = path.int(), make.integers(0, 5, B)
    accepted[1 % B], path[1 % B] = 4, torch.tensor([0, 3, 5, 6, 8], dtype=torch.int32)
    bad_path, bad_lengths = path.clone(), lengths.clone()
    bad_path[0], accepted[0], bad_lengths[2 % B] = torch.tensor([0, 3, 3, 4, 5], dtype=torch.int32), 4, S - 2
    compact, attn = reference_cache.kv_compact_, reference_cache.tree_attn
    cases = []
    for D in (64, 3):  # 3: a token's bytes are no multiple of 16
        k, v = (make.normal(L, B, S, Hk, D).to(make.dtype) for _ in range(2))
        k_paged, v_paged = (make.normal(L, B * pages_per_row, page, Hk, D).to(make.dtype) for _ in range(2))
        for name, rest in (("random", (path, accepted, lengths)), ("bad rows", (bad_path, accepted, bad_lengths))):
            cases.append(Case("kv_compact_", f"{name}, D = {D}", (k, v, None, *rest), compact, mutated=(0, 1)))
            cases.append(
                Case("kv_compact_", f"{name}, paged, D = {D}", (k_paged, v_paged, table, *rest), compact, mutated=(0, 1))
            )
        cases.append(
            Case("kv_compact_", f"bad pages, D = {D}", (k_paged, v_paged, bad_table, path, accepted, lengths), compact, (0, 1))
        )
    if make.dtype == torch.float32:
        return cases
    for D in (64, 128):
        q = make.normal(B, N, Hq, D).to(make.dtype)
        tree = tuple(make.normal(B, N, Hk, D).to(make.dtype) for _ in range(2))
        cache = tuple(make.normal(B, S, Hk, D).to(make.dtype) for _ in range(2))
        pages = tuple(make.normal(B * pages_per_row, page, Hk, D).to(make.dtype) for _ in range(2))
        rest = (*tree, mask, lengths, D**-0.5)
        close = 2 * torch.finfo(make.dtype).eps
        cases += [
            Case("tree_attn", f"D = {D}", (q, *cache, None, *rest), attn, tolerance=close),
            Case("tree_attn", f"paged, D = {D}", (q, *pages, table, *rest), attn, tolerance=close),
            Case("tree_attn", f"bad pages, D = {D}", (q, *pages, bad_table, *rest), attn, tolerance=close),
        ]
    return cases


def cases(dtype: torch.dtype, V: int, size: int = 6, seed: int = 0) -> list[Case]:
    """All cases of one type and vocabulary size; `size` rows in each."""
    make = Maker(dtype, V, seed)
    return [
        *row_cases(make, size),
        *chain_cases(make, size, K=3 if V > 10_000 else 5),
        *tree_cases(make, size, N=5 if V > 10_000 else 12),
        *cache_cases(make),
    ]
