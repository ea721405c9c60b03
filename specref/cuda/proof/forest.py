"""Random trees of up to 64 nodes, of all shapes between chain and star, through every tree kernel and its reference.

The vocabulary is small, so that siblings often hold one token and time goes into trees: 10,000 take some minutes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from specref.cuda.emulator import emulated
from specref.cuda.ops_trees import MAX_NODES
from specref.cuda.proof.cases import Maker, tree_cases

V, BATCH = 12, 200
SETTINGS = ((32, 0), (64, 1), (96, 777))
"""Threads and schedules, in turn."""


@dataclass(frozen=True)
class Forest:
    """How many trees went through the kernels, with how many nodes, in how many calls, and what differed."""

    trees: int
    nodes: int
    calls: int
    wrong: tuple[str, ...]


def forest(trees: int, seed: int) -> Forest:
    """Build, verify greedily (from an argmax and from logits), and verify by sampling in all modes; bits are compared."""
    done = nodes = calls = batch = 0
    wrong = []
    while done < trees:
        make = Maker(torch.float32, V, seed * 1_000 + batch)
        B, N = min(BATCH, trees - done), int(make.integers(1, MAX_NODES + 1))
        cases = [case for case in tree_cases(make, B, N) if "bad" not in case.name and "filtered" not in case.name]
        threads, schedule = SETTINGS[batch % len(SETTINGS)]
        for case in cases:
            expected = case.expected()
            with emulated(threads=threads, schedule=schedule):
                difference = case.difference(expected)
            if difference:
                wrong.append(f"{difference} (N = {N}, seed {seed}, batch {batch})")
        done, nodes, calls, batch = done + B, nodes + B * N, calls + len(cases), batch + 1
    return Forest(done, nodes, calls, tuple(wrong))
