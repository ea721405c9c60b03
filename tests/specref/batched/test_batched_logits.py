"""From logits, the ratio rule decides as it does from their softmax, and reads nothing behind the first rejection."""

from __future__ import annotations

import secrets

import numpy as np
import pytest
import torch
from batched_rows import random_chains

from specref.batched import Drafts
from specref.batched.chain import ratio
from specref.batched.logits import ratio_from_logits
from specref.batched.status import BAD_DRAFT, BAD_ID, BAD_TARGET


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("B", "V"), [(500, 7), (200, 64), (20, 4096), (0, 3)])
def test_decides_as_from_laws(dtype, B, V) -> None:
    """Random rows with zeros, ties, p = q, padding and variable k; also k = 0."""
    rng = np.random.default_rng(secrets.randbits(64))
    for k in (0, 1, 5):
        batch = random_chains(rng, B, k, V)
        target, draft, u = (torch.from_numpy(array).to(dtype) for array in (batch.p, batch.q, batch.u))
        target, draft = target.log(), draft.log()
        drafts = Drafts(batch.drafts.tokens, num_draft=batch.drafts.count)
        from_laws = ratio(target.softmax(-1), Drafts(drafts.tokens, draft.softmax(-1), drafts.count), u)
        assert ratio_from_logits(target, draft, drafts, u).rows() == from_laws.rows()


def certain(k: int) -> tuple[torch.Tensor, torch.Tensor, Drafts, torch.Tensor]:
    """Token 0 drafted k times from a flat law, by a target that allows it as well, but not in row 1."""
    target, draft = torch.zeros(3, k + 1, 4), torch.zeros(3, k, 4)
    target[1, 0, 0] = -torch.inf
    return target, draft, Drafts(torch.zeros(3, k, dtype=torch.long)), torch.full((3, k + 1), 0.5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_bad_logits_show_where_they_are_read(bad) -> None:
    target, draft, drafts, u = certain(3)
    good = ratio_from_logits(target, draft, drafts, u)
    assert good.accepted.tolist() == [3, 0, 3]
    target[0, 2, 3], target[1, 1], draft[2, 1, 3] = bad, bad, bad
    result = ratio_from_logits(target, draft, drafts, u)
    assert result.status.tolist() == [BAD_TARGET, 0, BAD_DRAFT]
    assert result.rows()[1] == good.rows()[1]
    assert result.next_token[[0, 2]].tolist() == [-1, -1]


def test_nothing_above_minus_infinity_and_bad_ids() -> None:
    target, draft, drafts, u = certain(2)
    target[0, 2] = -torch.inf
    drafts.tokens[2, 1] = 4
    assert ratio_from_logits(target, draft, drafts, u).status.tolist() == [BAD_TARGET, 0, BAD_ID]


def test_logits_of_a_model_in_training_are_decided_too() -> None:
    target, draft, drafts, u = certain(2)
    plain = ratio_from_logits(target, draft, drafts, u)
    result = ratio_from_logits(target.requires_grad_(), draft.requires_grad_(), drafts, u)
    assert result.rows() == plain.rows()
    for field in (result.accepted, result.next_token, result.status):
        field += 1  # ordinary tensors, free to be written to


def test_wrong_shapes_raise() -> None:
    target, draft, drafts, u = certain(2)
    with pytest.raises(ValueError, match="the draft's laws must be"):
        ratio_from_logits(target, draft[:, :, :3], drafts, u)
