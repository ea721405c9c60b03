"""A row whose inputs are no good has a status, a defined outcome, and no effect on other rows; `verify` names it."""

from __future__ import annotations

import secrets

import numpy as np
import pytest
import torch
from batched_rows import random_chains, random_trees

from specref.batched import BadRows, Drafts, Trees, verify
from specref.batched import block as batched_block
from specref.batched import chain as batched_chain
from specref.batched import tree as batched_tree
from specref.batched import typical as batched_typical
from specref.batched.status import BAD_DRAFT, BAD_ID, BAD_SETTING, BAD_TARGET, BAD_TREE, REASONS
from specref.cuda import reference

CHAIN_RULES = [
    batched_chain.ratio,
    batched_chain.token_matching,
    batched_chain.one_hot_ratio,
    batched_chain.greedy,
    batched_block.block,
]
TREE_RULES = [
    batched_tree.greedy,
    batched_tree.sequential_one_hot,
    batched_tree.recursive_rejection,
    batched_tree.target_only,
    batched_tree.traversal,
    batched_typical.typical,
]
WITH_LAWS = {batched_chain.ratio, batched_block.block, batched_tree.recursive_rejection, batched_tree.traversal}
WITHOUT_NUMBERS = {batched_chain.greedy, batched_tree.greedy}
NAN, INF = float("nan"), float("inf")


def spoil_chain(batch, fault):
    """Row 7 without padding, and then with one fault."""
    k, V = batch.tokens.shape[1], batch.p.shape[2]
    batch.count[7], batch.tokens[7], batch.p[7], batch.q[7] = k, 0, 1 / V, 1 / V
    if fault in (NAN, INF):
        batch.p[7, k // 2, 1] = fault
    elif fault == "nothing":
        batch.p[7, k] = 0
    elif fault == "draft":
        batch.q[7, k - 1, 0] = NAN
    elif fault == "token":
        batch.tokens[7, 0] = V
    elif fault == "number":
        batch.u[7, 1] = 1.0
    elif fault == "count":
        batch.count[7] = k + 1


def expected(rule, fault):
    if fault == "draft":
        return BAD_DRAFT if rule in WITH_LAWS else 0
    if fault == "number":
        return 0 if rule in WITHOUT_NUMBERS else BAD_SETTING
    if fault == "nothing" and rule in WITHOUT_NUMBERS:
        return 0  # scores that are all 0 are a tie
    return {"token": BAD_ID, "count": BAD_SETTING, "parents": BAD_TREE}.get(fault, BAD_TARGET)


@pytest.mark.parametrize("rule", CHAIN_RULES)
@pytest.mark.parametrize("fault", [NAN, INF, "nothing", "draft", "token", "number", "count"])
def test_a_bad_row_of_a_chain(rule, fault) -> None:
    seed = secrets.randbits(64)
    good, bad = (random_chains(np.random.default_rng(seed), B=20, k=3, V=6) for _ in range(2))
    spoil_chain(good, None)
    spoil_chain(bad, fault)
    assert_only_row_7(rule, good, bad, expected(rule, fault))


def assert_only_row_7(rule, good, bad, status) -> None:
    with_fault, without = bad.run(rule), good.run(rule)
    assert with_fault.status[7] == status
    if status:
        assert (with_fault.accepted[7], with_fault.next_token[7]) == (0, -1)
        assert (with_fault.path[7] == -1).all()
    others = np.arange(20) != 7
    assert (with_fault.status[others] == 0).all()
    assert torch.equal(with_fault.next_token[others], without.next_token[others])


@pytest.mark.parametrize("rule", TREE_RULES)
@pytest.mark.parametrize("fault", [NAN, "draft", "token", "number", "count", "parents"])
def test_a_bad_row_of_trees(rule, fault) -> None:
    def batch():
        made = random_trees(np.random.default_rng(seed), B=20, N=5, V=30)
        made.count[:] = 5
        made.p[:], made.q[:, 1:] = np.abs(np.nan_to_num(made.p)) + 0.01, np.abs(np.nan_to_num(made.q[:, 1:])) + 0.01
        made.tokens[:], made.parents[:] = np.arange(5), [-1, 0, 0, 1, 1]
        return made

    seed = secrets.randbits(64)
    good, bad = batch(), batch()
    if fault is NAN:
        bad.p[7, 4, 2] = NAN
    elif fault == "draft":
        bad.q[7, 4, 2] = INF
    elif fault == "token":
        bad.tokens[7, 3] = -2
    elif fault == "number":
        bad.u[7, 4] = NAN
    elif fault == "count":
        bad.count[7] = 0
    elif fault == "parents":
        bad.parents[7, 2] = 3
    status = BAD_TREE if fault == "count" else expected(rule, fault)
    assert_only_row_7(rule, good, bad, status)


@pytest.mark.parametrize("parents", [[-1, 0, 2], [-1, 0, 5], [-1, -1, 0], [0, 0, 0], [-1, 2, 1], [-2, 0, 0]])
def test_what_is_no_tree(parents) -> None:
    trees = Trees(torch.tensor([[0, 1, 2]]), torch.tensor([parents]))
    assert batched_tree.greedy(torch.ones(1, 3, 4), trees).status.tolist() == [BAD_TREE]


def test_siblings_with_one_token() -> None:
    """target_only alone needs distinct siblings."""
    trees = Trees(torch.tensor([[0, 1, 1]]), torch.tensor([[-1, 0, 0]]))
    p, u = torch.full((1, 3, 4), 0.25), torch.zeros(1, 3)
    assert batched_tree.target_only(p, trees, u).status.tolist() == [BAD_TREE]
    assert batched_tree.sequential_one_hot(p, trees, u).status.tolist() == [0]


def test_verify_names_the_rows() -> None:
    p, u = torch.full((4, 2, 3), 1 / 3), torch.zeros(4, 2)
    p[2, 0, 0] = NAN
    drafts = Drafts(torch.tensor([[0], [3], [0], [0]]))
    with pytest.raises(
        BadRows, match=r"2 of 4 rows cannot be verified: row 1: a drafted token .*; row 2: the target's law"
    ) as raised:
        verify(batched_chain.one_hot_ratio, p, drafts, u)
    assert raised.value.rows == (1, 2)
    assert verify(batched_chain.one_hot_ratio, p[3:], Drafts(torch.tensor([[0]])), u[3:]).rows()


def test_wrong_shapes_and_types_raise() -> None:
    p, u, drafts = torch.full((2, 2, 3), 1 / 3), torch.zeros(2, 2), Drafts(torch.zeros(2, 1, dtype=torch.long))
    for wrong_p, wrong_u, match in [
        (p[:, :1], u, "p must be"),
        (p, u[:, :1], "u must be"),
        (p, u.double(), "of p's type"),
        (p.long(), u, "p must be floating point"),
    ]:
        with pytest.raises(ValueError, match=match):
            batched_chain.one_hot_ratio(wrong_p, drafts, wrong_u)
    with pytest.raises(ValueError, match="were chosen, not drawn"):
        batched_chain.ratio(p, drafts, u)
    with pytest.raises(ValueError, match="were chosen, not drawn"):
        batched_tree.traversal(p, Trees(torch.zeros(2, 2, dtype=torch.long), torch.tensor([[-1, 0]] * 2)), u)
    with pytest.raises(ValueError, match="the draft's laws must be"):
        batched_chain.ratio(p, Drafts(torch.zeros(2, 1, dtype=torch.long), torch.ones(2, 1, 4)), u)
    with pytest.raises(ValueError, match="tokens must be int64"):
        Drafts(torch.zeros(2, 1))
    with pytest.raises(ValueError, match="num_draft must be"):
        Drafts(torch.zeros(2, 1, dtype=torch.long), num_draft=torch.ones(3))
    with pytest.raises(ValueError, match="parents must be"):
        Trees(torch.zeros(2, 2, dtype=torch.long), torch.zeros(2, 3, dtype=torch.long))
    with pytest.raises(ValueError, match="laws must be"):
        Trees(torch.zeros(2, 2, dtype=torch.long), torch.zeros(2, 2, dtype=torch.long), torch.ones(2, 1, 3))


@pytest.mark.parametrize(
    ("rule", "settings", "match"),
    [
        (batched_tree.target_only, {"tau_acc": 0.0}, "tau_acc is 0.0"),
        (batched_typical.ensemble, {"weight": 1.5}, "weight is 1.5"),
        (batched_typical.lenient, {"lenience": -1.0}, "lenience is -1.0"),
    ],
)
def test_settings_out_of_range_raise(rule, settings, match) -> None:
    with pytest.raises(ValueError, match=match):
        rule(torch.ones(1, 1, 2), None, torch.zeros(1, 1), **settings)


def test_the_bits_are_those_of_the_kernels() -> None:
    for name in ("BAD_TARGET", "BAD_DRAFT", "BAD_ID", "BAD_TREE", "BAD_SETTING"):
        assert getattr(reference, name) in REASONS
        assert getattr(reference, name) == globals()[name]
