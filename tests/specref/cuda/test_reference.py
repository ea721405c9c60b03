"""The torch references themselves, against slower and simpler things: Python integers, fractions, the plain rules."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import torch

from specref.chance import ReplayedChance
from specref.cuda import reference, reference_filters, reference_trees
from specref.cuda.proof.cases import Maker
from specref.rules.chain import one_hot_ratio, ratio
from specref.tree import TokenTree

ONE = 1 << 40


def _seed():
    return torch.initial_seed() % 2**20


def test_fused_multiply_add_rounds_once():
    make = Maker(torch.float32, 1, _seed())
    a, b, c = (make.normal(20_000) for _ in range(3))
    # Sums that end exactly half-way between two floats but for something far below: where rounding twice goes wrong.
    a[:2000] = 1 + 2.0**-12
    b[:2000] = 1 + 2.0**-12
    c[:2000] = make.integers(-8, 8, 2000).float() * 2.0**-46
    got = reference.fused_multiply_add(a, b, c)
    for x, y, z, result in zip(a.tolist(), b.tolist(), c.tolist(), got.tolist(), strict=True):
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        error = abs(Fraction(result) - exact)
        for neighbour in (np.nextafter(np.float32(result), np.float32(s)) for s in (-np.inf, np.inf)):
            other = abs(Fraction(float(neighbour)) - exact)
            assert error < other or (error == other and np.float32(result).view(np.int32) % 2 == 0)


def test_integer_helpers():
    make = Maker(torch.float32, 1, _seed())
    mass = torch.cat([torch.randint(0, ONE, (500,), generator=make.generator), torch.tensor([0, 1, ONE, ONE - 1])])
    u24 = torch.randint(0, 1 << 24, mass.shape, generator=make.generator)
    assert reference.times_u(mass, u24).tolist() == [m * u >> 24 for m, u in zip(mass.tolist(), u24.tolist(), strict=True)]
    totals = torch.cat([torch.randint(1, ONE, (500,), generator=make.generator), torch.tensor([1, 2, 3, ONE])])
    parts = (totals * torch.rand(len(totals), generator=make.generator)).long()
    got = reference_trees._normalised(parts[:, None], totals)[:, 0].tolist()
    assert got == [m * ((2**64 - 1) // t) >> 24 for m, t in zip(parts.tolist(), totals.tolist(), strict=True)]
    p24 = torch.randint(1, 1 << 24, (len(mass),), generator=make.generator)
    large = mass << 20
    got = reference_filters._share_of(large, p24).tolist()
    assert got == [max(1, -(-m * p // 2**24)) for m, p in zip(large.tolist(), p24.tolist(), strict=True)]


def test_masses_are_the_softmax():
    make = Maker(torch.float32, 5000, _seed())
    z, inv_temp = make.normal(20, 5000) * 3, make.temperatures(20)
    rows = reference.rows_of(z, inv_temp, None)
    exact = torch.softmax(z.double() * inv_temp.double()[:, None], dim=-1)
    mass = reference.masses(rows).double() / ONE
    assert float((mass - exact).abs().max()) < 1e-6
    assert float((mass.sum(dim=-1) - 1).abs().max()) < 1e-6
    likely = exact > 1e-6
    assert float(((mass - exact) / exact)[likely].abs().max()) < 1e-5


def _laws(masses):
    return [np.array([Fraction(int(m), ONE) for m in row], dtype=object) for row in masses]


def test_chain_decides_as_the_plain_rule():
    """The masses are exact numbers: `rules.ratio` on them, with the same uniforms, must take the same decisions."""
    V, K, B = 24, 3, 400
    make = Maker(torch.float32, V, _seed())
    target = make.logits(B, K + 1)
    draft = make.near(target[:, :K])
    inv = make.temperatures(B)
    ids, norm = make.drawn(draft, inv)
    u = make.uniforms(B, K + 1)
    out, accepted, status = reference.verify_chain(target, draft, norm, ids, None, u, inv, inv)
    likely = target[:, :K].float().argmax(dim=-1).int()
    out_1, accepted_1, status_1 = reference.verify_chain(target, None, None, likely, None, u, inv)
    assert not status.any()
    assert not status_1.any()
    p = reference.masses(reference.rows_of(target, inv[:, None], None)).tolist()
    q = reference.masses(reference.drafted_rows(draft, inv[:, None], None, norm)).tolist()
    compared = 0
    for b in range(B):
        uniforms = {("accept", i): Fraction(u[b, i].item()) for i in range(K)} | {("emit",): Fraction(u[b, K].item())}
        laws_p, laws_q = _laws(p[b]), _laws(q[b])
        a, x = int(accepted[b]), out[b].tolist()
        if a == K or any(left > right for left, right in zip(p[b][a], q[b][a], strict=True)):  # else: empty, by rounding
            verdict = ratio(laws_p, SimpleNamespace(tokens=ids[b].tolist(), laws=laws_q), ReplayedChance(uniforms))
            assert (verdict.accepted, verdict.next_token) == (a, x[a])
            assert x == [*ids[b, :a].tolist(), verdict.next_token, *[-1] * (K - a)]
            compared += 1
        a = int(accepted_1[b])
        if a == K or sum(p[b][a]) > p[b][a][likely[b, a]]:
            verdict = one_hot_ratio(laws_p, SimpleNamespace(tokens=likely[b].tolist(), laws=None), ReplayedChance(uniforms))
            assert (verdict.accepted, verdict.next_token) == (a, int(out_1[b, a]))
    assert compared > B // 2


def test_a_chain_is_the_tree_of_width_one():
    V, K, B = 30, 4, 200
    make = Maker(torch.float32, V, _seed())
    target, inv, u = make.logits(B, K + 1), make.temperatures(B), make.uniforms(B, K + 1)
    draft = make.near(target)
    ids, norm = make.drawn(draft, inv)
    chain = reference.verify_chain(
        target, draft[:, :K].contiguous(), norm[:, :K].contiguous(), ids[:, :K].contiguous(), None, u, inv, inv
    )
    nodes = torch.nn.functional.pad(ids[:, :K], (1, 0)).contiguous()
    child = torch.tensor([*range(1, K + 1), -1], dtype=torch.int32).expand(B, -1).contiguous()
    none = torch.full_like(child, -1)
    for mode in (reference_trees.IID, reference_trees.WITHOUT_REPLACEMENT):
        tree = reference_trees.verify_tree_sampled(nodes, child, none, target, draft, norm, mode, u, inv, inv, None, None, K)
        assert all(torch.equal(a, b) for a, b in zip(chain, tree[1:], strict=True))


def test_tree_build_is_token_tree():
    make = Maker(torch.float32, 1, _seed())
    for N in (1, 2, 7, 64):
        parents = make.parents(50, N)
        full, prefix = torch.full((50,), N, dtype=torch.int32), make.integers(0, 100, 50)
        mask, positions, child, sibling, status = reference_trees.tree_build(parents, full, prefix)
        assert not status.any()
        for b in range(50):
            tree = TokenTree(tokens=[0] * N, parents=parents[b].tolist())
            for n in range(N):
                path = [0, *tree.path(n)] if n else [0]
                assert int(mask[b, n]) & (2**64 - 1) == sum(1 << a for a in path)
                assert int(positions[b, n]) == int(prefix[b]) + len(path) - 1
                children = tree.children(n)
                assert int(child[b, n]) == (children[0] if children else -1)
                for left, right in zip(children, [*children[1:], -1]):
                    assert int(sibling[b, left]) == right


def test_threshold_is_top_k_then_top_p():
    make = Maker(torch.float32, 300, _seed())
    z = (make.normal(60, 300) * 3 * 8).round() / 8  # ties
    inv_temp = make.temperatures(60)
    k, p = make.integers(0, 40, 60), torch.rand(60, generator=make.generator) * 0.98 + 0.01
    p[::5] = 1.0
    threshold, kept, mass, status = reference_filters.topk_topp_threshold(z, inv_temp, k, p)
    assert not status.any()
    law = torch.softmax(z.double() * inv_temp.double()[:, None], dim=-1)
    for r in range(60):
        keep = torch.ones(300, dtype=torch.bool)
        if k[r]:
            keep = z[r] >= z[r].topk(int(k[r])).values[-1]
        if p[r] < 1:
            values = z[r][keep].unique().flip(0)
            share = torch.stack([law[r][z[r] >= v].sum() for v in values]) / law[r][keep].sum()
            reached = int((share >= float(p[r]) - 1e-6).nonzero()[0])
            unsure = abs(float(share[reached]) - float(p[r])) < 2e-6  # the masses are rounded; too near to say
            assert unsure or float(threshold[r]) == float(values[reached])
            if unsure:
                continue
            keep = z[r] >= values[reached]
        assert int(kept[r]) == int(keep.sum())
        assert torch.equal(z[r] >= threshold[r], keep)
        octave = torch.floor(z[r].max() * reference.scale_of(inv_temp[r : r + 1])[0])
        weight = float((torch.exp2(z[r].double() * inv_temp[r].double() * np.log2(np.e) - octave + 39))[keep].sum())
        assert abs(int(mass[r]) / weight - 1) < 1e-5
