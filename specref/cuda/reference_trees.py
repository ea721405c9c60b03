"""What the tree kernels compute, in plain torch, bit for bit. Loops run over the nodes of a tree, never over the batch."""

from __future__ import annotations

import torch
from torch import Tensor

from specref.cuda.reference import (
    BAD_DRAFT,
    BAD_ID,
    BAD_SETTING,
    BAD_TARGET,
    BAD_TREE,
    INFINITY,
    ONE,
    drafted_rows,
    int32,
    masses,
    pick,
    rows_of,
    scale_of,
    times_u,
    uniform_24,
)

IID, WITHOUT_REPLACEMENT, DETERMINISTIC = 0, 1, 2


def tree_build(parents: Tensor, num_nodes: Tensor, prefix_len: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """See `kernels/tree_build.cu`.

    >>> mask, *_ = tree_build(torch.tensor([[-1, 0, 0, 2]]), num_nodes=torch.tensor([4]), prefix_len=torch.tensor([10]))
    >>> [f"{bits:04b}" for bits in mask[0].tolist()]
    ['0001', '0011', '0101', '1101']
    """
    B, N = parents.shape
    node = torch.arange(N, device=parents.device)
    used = node < num_nodes[:, None]
    good_parent = torch.where(node == 0, parents == -1, (parents >= 0) & (parents < node))
    bad_tree = (num_nodes < 1) | (num_nodes > N) | (used & ~good_parent).any(dim=-1)
    bad_setting = prefix_len < 0
    used = used & ~(bad_tree | bad_setting)[:, None]

    # Parents precede children, so one pass in node order gives every node its parent's mask and depth.
    mask = torch.zeros(B, N, dtype=torch.int64, device=parents.device)
    depth = torch.zeros(B, N, dtype=torch.int64, device=parents.device)
    parent = parents.long().clamp(0, N - 1)
    for n in range(N):
        bit = torch.tensor((1 << n) - (1 << 64 if n == 63 else 0), device=parents.device)
        if n == 0:
            mask[:, 0] = bit
        else:
            mask[:, n] = mask.gather(1, parent[:, n : n + 1])[:, 0] | bit
            depth[:, n] = depth.gather(1, parent[:, n : n + 1])[:, 0] + 1
    mask = torch.where(used, mask, 0)
    positions = prefix_len[:, None] + torch.where(used, depth, 0)

    pair = used[:, :, None] & used[:, None, :]
    is_child = pair & (parents[:, None, :] == node[:, None])  # [B, node, its child]
    is_sibling = pair & (parents[:, None, :] == parents[:, :, None]) & (node[None, :] > node[:, None]) & (node[:, None] > 0)
    is_child &= node[None, :] > node[:, None]

    def first(flags: Tensor) -> Tensor:
        return torch.where(flags.any(dim=-1), flags.to(torch.int8).argmax(dim=-1), -1)

    status = torch.where(bad_tree, BAD_TREE, 0) | torch.where(bad_setting, BAD_SETTING, 0)
    return mask, int32(positions), int32(first(is_child)), int32(first(is_sibling)), int32(status)


def _check_links(ids: Tensor, first_child: Tensor, next_sibling: Tensor, V: int | None) -> tuple[Tensor, Tensor]:
    """The status of each tree `[B]`, and whether a good link leads to node n `[B, N]`."""
    B, N = ids.shape
    node = torch.arange(N, device=ids.device)
    status = torch.zeros(B, dtype=torch.int64, device=ids.device)
    linked = torch.zeros(B, N, dtype=torch.bool, device=ids.device)
    for to in (first_child.long(), next_sibling.long()):
        good = (to > node) & (to < N)
        status = status | torch.where(((to != -1) & ~good).any(dim=-1), BAD_TREE, 0)
        target_id = ids.gather(1, to.clamp(0, N - 1))
        bad_id = (target_id < 0) if V is None else (target_id < 0) | (target_id >= V)
        status = status | torch.where((good & bad_id).any(dim=-1), BAD_ID, 0)
        in_table = (to >= 0) & (to < N)
        linked |= torch.zeros_like(linked, dtype=torch.int8).scatter_add_(1, to.clamp(0, N - 1), in_table.to(torch.int8)).bool()
    return status, linked


def _of(table: Tensor, node: Tensor) -> Tensor:
    """table[b, node[b]] `[B]`; -1 stays -1."""
    return torch.where(node >= 0, table.gather(1, node.clamp(min=0)[:, None])[:, 0].long(), -1)


def _results(
    ids: Tensor, path: Tensor, accepted: Tensor, token: Tensor, status: Tensor, max_depth: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The four outputs of a walk; path `[B, D + 2]` holds the nodes from the root on."""
    place = torch.arange(max_depth + 1, device=ids.device)
    good = (status == 0)[:, None]
    walked = ids.long().gather(1, path[:, 1:].clamp(min=0))
    out = torch.where(place < accepted[:, None], walked, torch.where(place == accepted[:, None], token[:, None], -1))
    nodes = torch.where(place <= accepted[:, None], path[:, :-1], -1)
    return (
        int32(torch.where(good, nodes, -1)),
        int32(torch.where(good, out, -1)),
        int32(torch.where(status == 0, accepted, 0)),
        int32(status),
    )


def verify_tree_greedy(
    ids: Tensor,
    first_child: Tensor,
    next_sibling: Tensor,
    target_argmax: Tensor | None,
    target: Tensor | None,
    max_depth: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `kernels/verify_tree_greedy.cu`."""
    B, N = ids.shape
    if target_argmax is None:
        assert target is not None
        z = target.float()
        largest = torch.nan_to_num(z, nan=-INFINITY).amax(dim=-1)
        good = (z < INFINITY).all(dim=-1) & (largest > -INFINITY)
        argmax = torch.where(good, (z == largest[..., None]).to(torch.int8).argmax(dim=-1), -1)
    else:
        argmax = target_argmax.long()
    status, _ = _check_links(ids, first_child, next_sibling, None if target is None else target.shape[-1])
    node = torch.zeros(B, dtype=torch.int64, device=ids.device)
    accepted, token = torch.zeros_like(node), torch.full_like(node, -1)
    path = torch.full((B, max_depth + 2), -1, dtype=torch.int64, device=ids.device)
    path[:, 0] = 0
    walking = status == 0
    for step in range(min(N, max_depth + 1)):
        token = torch.where(walking, argmax.gather(1, node[:, None])[:, 0], token)
        status = torch.where(walking & (token < 0), BAD_TARGET, status)
        walking = walking & (token >= 0)
        child = _of(first_child, node)
        for _ in range(N):
            other = (child >= 0) & (_of(ids, child) != token)
            child = torch.where(other, _of(next_sibling, child), child)
        walking = walking & (child >= 0)
        if step == max_depth:
            status = torch.where(walking, BAD_TREE, status)
            break
        node = torch.where(walking, child, node)
        accepted = accepted + walking
        path[:, step + 1] = torch.where(walking, child, -1)
    return _results(ids, path, accepted, token, status, max_depth)


def verify_tree_sampled(
    ids: Tensor,
    first_child: Tensor,
    next_sibling: Tensor,
    target: Tensor,
    draft: Tensor | None,
    draft_norm: Tensor | None,
    mode: int,
    u: Tensor,
    inv_temp_t: Tensor,
    inv_temp_d: Tensor | None,
    threshold_t: Tensor | None,
    threshold_d: Tensor | None,
    max_depth: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `kernels/verify_tree_sampled.cu`. Each turn of the loop tries one child of every request that still walks."""
    B, N = ids.shape
    V = target.shape[-1]
    u24 = uniform_24(u)
    p = rows_of(target, inv_temp_t[:, None], threshold_t)
    setting = (scale_of(inv_temp_t) <= 0) | (u24[:, N - 1] < 0)
    q = None
    if draft is not None:
        assert inv_temp_d is not None
        assert draft_norm is not None
        setting |= scale_of(inv_temp_d) <= 0
        q = drafted_rows(draft, inv_temp_d[:, None], threshold_d, draft_norm)
    status, linked = _check_links(ids, first_child, next_sibling, V)
    bad_u = (linked[:, 1:] & (u24[:, :-1] < 0)).any(dim=-1)
    status = status | torch.where(setting | bad_u, BAD_SETTING, 0)

    node = torch.zeros(B, dtype=torch.int64, device=ids.device)
    accepted, child, rejected = torch.zeros_like(node), torch.full_like(node, -1), torch.zeros_like(node)
    path = torch.full((B, max_depth + 2), -1, dtype=torch.int64, device=ids.device)
    path[:, 0] = 0
    arrived = status == 0  # requests that have just come to a node
    walking = arrived.clone()
    zeros = torch.zeros(B, V, dtype=torch.int64, device=ids.device)
    p_mass, q_mass, gone = zeros, zeros, zeros.bool()
    left, to_draw_from, q_now, q_left = zeros, zeros, zeros, torch.zeros_like(node)
    target_left, bad_q_row = torch.zeros_like(node), torch.zeros_like(arrived)

    for _ in range(2 * N):
        # Come to a node: its law, its first child.
        status = torch.where(arrived & ~p.take(node).good, BAD_TARGET, status)
        arrived = arrived & (status == 0)
        first = _of(first_child, node)
        status = torch.where(arrived & (first >= 0) & (accepted == max_depth), BAD_TREE, status)
        arrived = arrived & (status == 0)
        new = arrived[:, None]
        if q is not None:
            law = q.take(node)
            status = torch.where(arrived & (first >= 0) & ~law.good, BAD_DRAFT, status)
            arrived, walking = arrived & (status == 0), walking & (status == 0)
            new = arrived[:, None]
            q_mass = torch.where(new, masses(law), q_mass)
            bad_entry = ~(law.logits * law.scale[:, None] < INFINITY)
            bad_q_row = torch.where(arrived, bad_entry.any(dim=-1), bad_q_row)
            q_mass = torch.where(new & bad_entry, 0, q_mass)
            q_now = torch.where(new, q_mass, q_now)
        p_mass = torch.where(new, masses(p.take(node)), p_mass)
        left = torch.where(new, p_mass, left)
        to_draw_from = torch.where(new, p_mass, to_draw_from)
        gone = gone & ~new
        target_left = torch.where(arrived, ONE, target_left)
        rejected = torch.where(arrived, 0, rejected)
        child = torch.where(arrived, first, child)
        walking = walking & (status == 0) & (child >= 0)
        if not bool(walking.any()):
            break

        # Try one child.
        x = _of(ids, child).clamp(min=0)[:, None]
        coin = u24.gather(1, (child - 1).clamp(min=0)[:, None])[:, 0].clamp(min=0)
        again = gone.gather(1, x)[:, 0]
        if mode == DETERMINISTIC:
            p_x = torch.where(again, 0, p_mass.gather(1, x)[:, 0])
            accept = times_u(target_left, coin) < p_x
            target_left = torch.where(walking & ~accept, (target_left - p_x).clamp(min=0), target_left)
        else:
            assert q is not None
            bad_x = ~(q.take(node).logits.gather(1, x)[:, 0] * q.take(node).scale < INFINITY)
            status = torch.where(walking & bad_x, BAD_DRAFT, status)
            walking = walking & (status == 0)
            accept = times_u(q_now.gather(1, x)[:, 0], coin) < left.gather(1, x)[:, 0]
        accept = accept & walking
        turned_down = walking & ~accept
        node = torch.where(accept, child, node)
        accepted = accepted + accept
        path = path.scatter(1, accepted[:, None], torch.where(accept, child, _of(path, accepted))[:, None])
        arrived = accept
        child = torch.where(turned_down, _of(next_sibling, child), child)
        gone = gone.scatter(1, x, gone.gather(1, x) | turned_down[:, None])

        # What is left after a rejection.
        if mode == DETERMINISTIC:
            to_draw_from = torch.where(turned_down[:, None], torch.where(gone, 0, p_mass), to_draw_from)
            continue
        status = torch.where(turned_down & bad_q_row, BAD_DRAFT, status)
        turned_down = turned_down & (status == 0)
        rest = (left - q_now).clamp(min=0)
        total = rest.sum(dim=-1)
        some = (turned_down & (total > 0))[:, None]
        to_draw_from = torch.where(some, rest, torch.where(turned_down[:, None], left, to_draw_from))
        left = torch.where(some, _normalised(rest, total), left)
        if mode == WITHOUT_REPLACEMENT:
            mass_left = torch.where(gone, 0, q_mass)
            q_left = torch.where(turned_down, mass_left.sum(dim=-1), q_left)
            q_now = torch.where(turned_down[:, None], _normalised(mass_left, q_left), q_now)
            child = torch.where(turned_down & (q_left == 0), -1, child)
        walking = walking & (status == 0)

    weights = torch.where(to_draw_from.any(dim=-1, keepdim=True), to_draw_from, p_mass)
    token = pick(weights, u24[:, N - 1].clamp(min=0))
    return _results(ids, path, accepted, token, status, max_depth)


def _normalised(mass: Tensor, total: Tensor) -> Tensor:
    """mass / total in units of 2^-40 through a 64-bit reciprocal, as the kernel: mass * floor((2^64 - 1) / total) / 2^24."""
    safe = total.clamp(min=1)
    # floor((2^64 - 1) / t) in signed arithmetic: 2^64 - 1 = 2 * (2^63 - 1) + 1
    half, rest = (2**63 - 1) // safe, (2**63 - 1) % safe
    reciprocal = 2 * half + (2 * rest + 1) // safe  # wraps to the right 64 bits for total = 1
    product = mass * reciprocal[:, None]  # below 2^64, read as signed
    return torch.where((total > 0)[:, None], (product >> 24) & (2**40 - 1), 0)
