"""The law of what the sampling kernels emit, from random rows on the emulator, against the target's.

Each test draws fresh uniforms, has a false-fail rate of 1e-6 (chi-square, every cell expecting at least 5), and is shown a
fault it must reject. With n = 20,000 a total variation of .035 over 7 tokens, or of .05 over 49 pairs, is found with power .99.
"""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from specref.cuda import reference, reference_trees

ALPHA = 1e-6


def _generator():
    return torch.Generator().manual_seed(torch.initial_seed() % 2**31)


def _uniforms(generator, *shape):
    return torch.randint(0, 1 << 24, shape, generator=generator).float() / (1 << 24)


def _p_value(counts, law):
    expected, order = (law * counts.sum()).sort()
    counts = counts[order]
    rare = max(int((expected < 5).sum()), int((expected.cumsum(0) < 5).sum()) + 1)  # together they too expect 5 or more
    cells = torch.cat([counts[rare:], counts[:rare].sum()[None]]).double()
    wanted = torch.cat([expected[rare:], expected[:rare].sum()[None]])
    return float(stats.chi2.sf(float(((cells - wanted) ** 2 / wanted).sum()), len(cells) - 1))


def _rows(logits, B):
    return logits.expand(B, *logits.shape).contiguous()


def _chain(B, V, generator, coin=lambda u: u):
    """The first two tokens of B requests with two drafts, and their exact joint law."""
    target, draft = torch.randn(3, V, generator=generator) * 1.5, torch.randn(2, V, generator=generator) * 1.5
    one = torch.ones(B)
    ids, norm, _ = torch.ops.specref.sample_rows(
        _rows(draft, B).reshape(-1, V), torch.ones(2 * B), None, _uniforms(generator, 2 * B)
    )
    arguments = (_rows(target, B), _rows(draft, B), norm.reshape(B, 2, 2), ids.reshape(B, 2), None)
    out, accepted, status = torch.ops.specref.verify_chain(*arguments, coin(_uniforms(generator, B, 3)), one, one)
    assert not status.any()
    # A request that stops after one token goes on with a plain draw from the target's next law.
    plain, _, _ = torch.ops.specref.sample_rows(_rows(target[1], B), one, None, _uniforms(generator, B))
    second = torch.where(accepted == 0, plain, out[:, 1])
    pairs = torch.bincount(out[:, 0].long() * V + second.long(), minlength=V * V)
    p = torch.softmax(target.double(), dim=-1)
    return pairs, (p[0][:, None] * p[1]).flatten()


def test_chain(emulator):
    counts, law = _chain(20_000, 7, _generator())
    assert _p_value(counts, law) > ALPHA


def test_chain_with_one_coin_for_all_is_rejected(emulator):
    counts, law = _chain(8_000, 7, torch.Generator().manual_seed(5), coin=lambda u: u[:, :1].expand(-1, 3).contiguous())
    assert _p_value(counts, law) < ALPHA


def test_sample_rows(emulator):
    generator = _generator()
    logits = torch.randn(50, generator=generator) * 2
    ids, _, _ = torch.ops.specref.sample_rows(
        _rows(logits, 20_000), torch.full((20_000,), 0.8), None, _uniforms(generator, 20_000)
    )
    assert _p_value(torch.bincount(ids.long(), minlength=50), torch.softmax(logits.double() * 0.8, dim=-1)) > ALPHA


def _tree(B, V, mode, generator, children="lawful"):
    """The first token of B requests with three children of the root, and its law.

    No logit is below -2 or above 2: of thousands of such laws the rarest child was accepted once in 1,200 requests.
    """
    target, draft = ((torch.randn(4, V, generator=generator) * 1.5).clamp(-2, 2) for _ in range(2))
    q = torch.softmax(draft[0].double(), dim=-1)
    if children == "chosen":
        drawn = q.topk(3).indices.expand(B, 3)
    else:
        replacement = (mode == reference_trees.IID) == (children == "lawful")
        drawn = torch.multinomial(q.expand(B, V), 3, replacement=replacement, generator=generator)
    ids = torch.nn.functional.pad(drawn, (1, 0)).int()
    child = torch.tensor([1, -1, -1, -1], dtype=torch.int32).expand(B, 4).contiguous()
    sibling = torch.tensor([-1, 2, 3, -1], dtype=torch.int32).expand(B, 4).contiguous()
    one = torch.ones(B)
    law = (None, None, mode) if mode == reference_trees.DETERMINISTIC else (
        _rows(draft, B), reference.rows_of(draft, torch.ones(4), None).norm.expand(B, 4, 2).contiguous(), mode
    )  # fmt: skip
    inv_d = None if law[0] is None else one
    path, out, _, status = torch.ops.specref.verify_tree_sampled(
        ids, child, sibling, _rows(target, B), *law, _uniforms(generator, B, 4), one, inv_d, None, None, 1
    )
    assert not status.any()
    assert set(path[:, 1].tolist()) >= {-1, 1, 2, 3}  # all children are accepted sometimes
    return torch.bincount(out[:, 0].long(), minlength=V), torch.softmax(target[0].double(), dim=-1)


@pytest.mark.parametrize(
    ("mode", "children"),
    [
        (reference_trees.IID, "lawful"),
        (reference_trees.WITHOUT_REPLACEMENT, "lawful"),
        (reference_trees.DETERMINISTIC, "chosen"),
    ],
)
def test_tree(emulator, mode, children):
    counts, law = _tree(20_000, 7, mode, _generator(), children)
    assert _p_value(counts, law) > ALPHA


@pytest.mark.parametrize("mode", [reference_trees.IID, reference_trees.WITHOUT_REPLACEMENT])
def test_children_drawn_the_other_way_are_rejected(emulator, mode):
    counts, law = _tree(8_000, 7, mode, torch.Generator().manual_seed(3), "unlawful")
    assert _p_value(counts, law) < ALPHA


@pytest.mark.long
def test_chain_at_two_hundred_thousand(emulator):
    counts, law = _chain(200_000, 64, _generator())
    assert _p_value(counts, law) > ALPHA


@pytest.mark.long
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_tree_at_two_hundred_thousand(emulator, mode):
    counts, law = _tree(200_000, 64, mode, _generator(), "chosen" if mode == 2 else "lawful")
    assert _p_value(counts, law) > ALPHA
